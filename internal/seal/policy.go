package seal

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/taskledger/taskledger/ledger"
)

// Policy is which signatures a checkpoint must have.
type Policy struct {
	Key       string   `json:"key"`       // the public key of the log. Required.
	Witnesses []string `json:"witnesses"` // public keys of witnesses. Default: none.
	Quorum    int      `json:"quorum"`    // how many of them must have cosigned. Default: 0.
}

// Validate reports every fault at once, each an [*ledger.InvalidError].
func (p Policy) Validate() error {
	_, err := p.parse()
	return err
}

// parsedPolicy is a valid policy.
type parsedPolicy struct {
	log       note.Verifier
	witnesses []*witness
	quorum    int
}

func (p Policy) parse() (parsed parsedPolicy, err error) {
	var faults []error
	if parsed.log, err = logVerifier(p.Key); err != nil {
		faults = append(faults, err)
	}
	for i, public := range p.Witnesses {
		w, err := newWitness(public)
		if err == nil && slices.Contains(p.Witnesses[:i], public) {
			err = &ledger.InvalidError{Field: "witness", Value: public, Rule: "must be given once"}
		}
		faults = append(faults, err)
		parsed.witnesses = append(parsed.witnesses, w)
	}
	if parsed.quorum = p.Quorum; p.Quorum < 0 || p.Quorum > len(p.Witnesses) {
		faults = append(faults, &ledger.InvalidError{Field: "quorum", Value: fmt.Sprint(p.Quorum),
			Rule: fmt.Sprintf("must be between 0 and %d, the number of witnesses", len(p.Witnesses))})
	}
	return parsed, errors.Join(faults...)
}

// Verifier implements [note.Verifiers].
func (p parsedPolicy) Verifier(name string, hash uint32) (note.Verifier, error) {
	if p.log.Name() == name && p.log.KeyHash() == hash {
		return p.log, nil
	}
	for _, w := range p.witnesses {
		if w.name == name && w.hash == hash {
			return w, nil
		}
	}
	return nil, &note.UnknownVerifierError{Name: name, KeyHash: hash}
}

// Verified is a checkpoint whose signatures satisfy a policy.
type Verified struct {
	Checkpoint

	Cosignatures []Cosignature `json:"cosignatures"` // of the policy's witnesses
}

// CosignedAt returns the time of the cosignature that is the k-th newest, where k is the quorum or 1; the zero time if
// fewer witnesses have signed.
func (v Verified) CosignedAt(quorum int) time.Time {
	times := make([]time.Time, len(v.Cosignatures))
	for i, c := range v.Cosignatures {
		times[i] = c.At
	}
	slices.SortFunc(times, func(a, b time.Time) int { return b.Compare(a) })
	if k := max(quorum, 1); k <= len(times) {
		return times[k-1]
	}
	return time.Time{}
}

// Open returns the checkpoint of a signed note. It needs no database. It returns [ErrSignature] if the log's key or too
// few witnesses have signed, or if a signature of a known key is invalid.
func (p Policy) Open(text []byte) (Verified, error) {
	parsed, err := p.parse()
	if err != nil {
		return Verified{}, err
	}
	entries, err := parseEntries(string(text))
	if err != nil {
		return Verified{}, err
	}
	if len(entries) > 1 {
		return Verified{}, &ledger.InvalidError{Field: "checkpoint", Rule: "must be one checkpoint"}
	}
	return parsed.open(entries[0])
}

// OpenAll is [Policy.Open] for each checkpoint of a file.
func (p Policy) OpenAll(text string) ([]Verified, error) {
	parsed, err := p.parse()
	if err != nil {
		return nil, err
	}
	entries, err := parseEntries(text)
	if err != nil {
		return nil, err
	}
	all := make([]Verified, len(entries))
	for i, e := range entries {
		if all[i], err = parsed.open(e); err != nil {
			return nil, fmt.Errorf("line %d: %w", e.line, err)
		}
	}
	return all, nil
}

func (p parsedPolicy) open(e entry) (Verified, error) {
	if e.Origin != p.log.Name() {
		return Verified{}, fmt.Errorf("%w: it is of the log %s, and the key is for %s", ErrSignature, e.Origin,
			p.log.Name())
	}
	if e.note == nil {
		return Verified{}, fmt.Errorf("%w: the checkpoint of %d leaves is not signed", ErrSignature, e.Size)
	}
	n, err := note.Open(e.note, p)
	var unverified *note.UnverifiedNoteError
	var invalid *note.InvalidSignatureError
	switch {
	case errors.As(err, &unverified):
		return Verified{}, fmt.Errorf("%w: the key %s with the ID %08x has not signed; %s", ErrSignature, p.log.Name(),
			p.log.KeyHash(), signers(unverified.Note))
	case errors.As(err, &invalid):
		return Verified{}, fmt.Errorf("%w: the signature of %s with the ID %08x is invalid", ErrSignature, invalid.Name,
			invalid.Hash)
	case err != nil:
		return Verified{}, fmt.Errorf("%w: %w", ErrSignature, err)
	}
	v := Verified{Checkpoint: e.Checkpoint, Cosignatures: []Cosignature{}}
	isSigned := false
	for _, s := range n.Sigs {
		if s.Name == p.log.Name() && s.Hash == p.log.KeyHash() {
			isSigned = true
		} else {
			v.Cosignatures = append(v.Cosignatures, cosignature(s))
		}
	}
	switch {
	case !isSigned:
		return Verified{}, fmt.Errorf("%w: the key %s with the ID %08x has not signed; %s", ErrSignature, p.log.Name(),
			p.log.KeyHash(), signers(n))
	case len(v.Cosignatures) < p.quorum:
		return Verified{}, fmt.Errorf("%w: %d of %d required witnesses have cosigned %d leaves; %s", ErrSignature,
			len(v.Cosignatures), p.quorum, e.Size, signers(n))
	}
	return v, nil
}

// signers lists the names and IDs of a note's signatures.
func signers(n *note.Note) string {
	var all []string
	for _, s := range append(slices.Clone(n.Sigs), n.UnverifiedSigs...) {
		all = append(all, fmt.Sprintf("%s %08x", s.Name, s.Hash))
	}
	if len(all) == 0 {
		return "it has no signature"
	}
	return "it is signed by " + strings.Join(all, ", ")
}

// LastSigned returns the text of the last signed checkpoint of a file.
func LastSigned(text string) ([]byte, error) {
	entries, err := parseEntries(text)
	if err != nil {
		return nil, err
	}
	for _, e := range slices.Backward(entries) {
		if e.note != nil {
			return e.note, nil
		}
	}
	return nil, fmt.Errorf("%w: no checkpoint is signed", ErrSignature)
}

// AddSignatures returns a signed note with further lines of signatures, such as an answer of a witness. Signatures that
// the note has already are left out.
func AddSignatures(signed, lines []byte) []byte {
	all := bytes.Clone(signed)
	for line := range bytes.Lines(lines) {
		if bytes.HasPrefix(line, []byte(signaturePrefix)) && !bytes.Contains(all, line) {
			all = append(all, line...)
		}
	}
	return all
}
