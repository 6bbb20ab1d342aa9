package seal

import (
	"encoding/json"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/taskledger/taskledger/ledger"
)

// Checkpoint identifies a tree, and with it all events that it covers and their order.
type Checkpoint struct {
	Origin string    `json:"origin"` // the ledger, see [Checkpoint.IsOf]
	Size   int64     `json:"size"`   // the number of leaves
	Root   tlog.Hash `json:"root"`   // the hash of the tree
}

// originPrefix begins each origin.
const originPrefix = "taskledger/"

// String returns the checkpoint in the form that [ParseCheckpoints] reads: three lines.
func (c Checkpoint) String() string {
	return c.Origin + "\n" + strconv.FormatInt(c.Size, 10) + "\n" + c.Root.String() + "\n"
}

// IsOf reports whether the checkpoint is one of the ledger with this origin: "taskledger/" and the ledger's
// installation. A signed checkpoint may have a longer origin: after a slash follows the name of the log, for example
// after a restore, when the old log cannot go on.
func (c Checkpoint) IsOf(ledgerOrigin string) bool {
	return c.Origin == ledgerOrigin || strings.HasPrefix(c.Origin, ledgerOrigin+"/")
}

// signaturePrefix begins each line of signatures.
const signaturePrefix = "— "

// entry is a checkpoint in a file.
type entry struct {
	Checkpoint

	line int    // its first, from 1
	note []byte // the signed note; nil: it is not signed
}

// ParseCheckpoints returns the checkpoints of a file, in its order, signed ones and others. It does not check
// signatures, see [Policy.OpenAll]. It returns an [*ledger.InvalidError] for a text that is not a sequence of
// checkpoints, separated by empty lines, or that is empty.
func ParseCheckpoints(text string) ([]Checkpoint, error) {
	entries, err := parseEntries(text)
	if err != nil {
		return nil, err
	}
	all := make([]Checkpoint, len(entries))
	for i, e := range entries {
		all[i] = e.Checkpoint
	}
	return all, nil
}

func parseEntries(text string) (all []entry, err error) {
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		if lines[i] == "" {
			continue
		}
		if i+2 >= len(lines) {
			return nil, invalidCheckpoint(i, "a checkpoint has three lines; remove an incomplete one at the end")
		}
		size, err := strconv.ParseInt(lines[i+1], 10, 64)
		root, rootErr := tlog.ParseHash(lines[i+2])
		switch {
		case !strings.HasPrefix(lines[i], originPrefix):
			return nil, invalidCheckpoint(i, "the first line of a checkpoint begins with "+strconv.Quote(originPrefix))
		case err != nil || size < 0 || strconv.FormatInt(size, 10) != lines[i+1]:
			return nil, invalidCheckpoint(i+1, "the second line of a checkpoint is the number of leaves")
		case rootErr != nil || root.String() != lines[i+2]:
			return nil, invalidCheckpoint(i+2, "the third line of a checkpoint is a hash of 32 bytes in base64")
		case i+3 < len(lines) && lines[i+3] != "":
			return nil, invalidCheckpoint(i+3, "an empty line follows a checkpoint")
		}
		e := entry{Checkpoint: Checkpoint{Origin: lines[i], Size: size, Root: root}, line: i + 1}
		i += 3
		signatures := ""
		for ; i+1 < len(lines) && strings.HasPrefix(lines[i+1], signaturePrefix); i++ {
			signatures += lines[i+1] + "\n"
		}
		if signatures != "" {
			e.note = []byte(e.String() + "\n" + signatures)
		}
		all = append(all, e)
	}
	if len(all) == 0 {
		return nil, &ledger.InvalidError{Field: "checkpoint", Rule: "must not be empty"}
	}
	return all, nil
}

func invalidCheckpoint(line int, rule string) error {
	return &ledger.InvalidError{Field: "checkpoint", Value: "line " + strconv.Itoa(line+1), Rule: rule}
}

// ParseProof returns a proof from its JSON. For any other text it returns an [*ledger.InvalidError], as
// [Proof.UnmarshalJSON] does.
func ParseProof(text []byte) (p Proof, err error) {
	if err := json.Unmarshal(text, &p); err != nil {
		return Proof{}, &ledger.InvalidError{Field: "proof", Rule: "must be the JSON of a proof: " + err.Error()}
	}
	return p, nil
}
