package seal

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/taskledger/taskledger/ledger"
)

// NewKey returns a new Ed25519 key that signs the checkpoints of an origin: the secret part, and the public part that
// an auditor gets. Both are one line, in the form of golang.org/x/mod/sumdb/note. They contain the origin.
func NewKey(origin string) (secret, public string, err error) {
	if !strings.HasPrefix(origin, originPrefix) {
		return "", "", &ledger.InvalidError{Field: "origin", Value: origin, Rule: "must begin with " + originPrefix}
	}
	secret, public, err = note.GenerateKey(rand.Reader, origin)
	if err == nil {
		_, err = note.NewVerifier(public) // it checks the name
	}
	if err != nil {
		return "", "", &ledger.InvalidError{Field: "origin", Value: origin, Rule: "must contain neither space nor +"}
	}
	return secret, public, nil
}

// Signer signs checkpoints. It is safe for concurrent use.
type Signer struct {
	signer note.Signer
	public string
}

// NewSigner returns the signer of a secret key. Its error does not contain the key.
func NewSigner(secret string) (*Signer, error) {
	invalid := &ledger.InvalidError{Field: "key",
		Rule: "must be the secret key that taskledger seal --make-key has made: PRIVATE+KEY+…"}
	signer, err := note.NewSigner(secret)
	if err != nil {
		return nil, invalid
	}
	encoded, err := decodeKey(secret)
	if err != nil {
		return nil, invalid
	}
	key, ok := ed25519.NewKeyFromSeed(encoded[1:]).Public().(ed25519.PublicKey)
	if !ok {
		return nil, invalid
	}
	public, err := note.NewEd25519VerifierKey(signer.Name(), key)
	if err != nil {
		return nil, invalid
	}
	return &Signer{signer: signer, public: public}, nil
}

// decodeKey returns the algorithm and the seed of a secret key. The base64 of a key may contain a plus.
func decodeKey(secret string) ([]byte, error) {
	parts := strings.SplitN(secret, "+", 5) // PRIVATE, KEY, name, hash, key
	if len(parts) != 5 {
		return nil, errors.New("a secret key has five parts")
	}
	key, err := base64.StdEncoding.DecodeString(parts[4])
	if err == nil && len(key) != 1+ed25519.SeedSize {
		err = fmt.Errorf("%d bytes", len(key))
	}
	return key, err
}

// NewExternalSigner returns a signer whose secret key is elsewhere, for example in a hardware module. sign returns the
// Ed25519 signature of a text, 64 bytes. Each signature is verified with the public key before it is used.
func NewExternalSigner(public string, sign func(text []byte) ([]byte, error)) (*Signer, error) {
	verifier, err := logVerifier(public)
	if err != nil {
		return nil, err
	}
	return &Signer{signer: &externalSigner{verifier, sign}, public: public}, nil
}

type externalSigner struct {
	note.Verifier

	sign func(text []byte) ([]byte, error)
}

// Sign implements [note.Signer].
func (s *externalSigner) Sign(text []byte) ([]byte, error) {
	signature, err := s.sign(text)
	if err == nil && !s.Verify(text, signature) {
		err = fmt.Errorf("the signature of %d bytes is not valid for the key %s", len(signature), s.Name())
	}
	return signature, err
}

// Origin returns the origin of the checkpoints that the key signs.
func (s *Signer) Origin() string { return s.signer.Name() }

// PublicKey returns the public key.
func (s *Signer) PublicKey() string { return s.public }

// Sign returns a checkpoint with its signature, in the form of C2SP tlog-checkpoint. The key's origin replaces the
// ledger's, which it must contain. It returns an [*ledger.InvalidError] for a key of another ledger.
func (s *Signer) Sign(c Checkpoint) ([]byte, error) {
	named := Checkpoint{Origin: s.Origin(), Size: c.Size, Root: c.Root}
	if !named.IsOf(c.Origin) {
		return nil, &ledger.InvalidError{Field: "key", Value: s.Origin(),
			Rule: "must be a key of this ledger, " + c.Origin + ": taskledger seal --make-key"}
	}
	return note.Sign(&note.Note{Text: named.String()}, s.signer)
}

// logVerifier returns the verifier of a public key of a log.
func logVerifier(public string) (note.Verifier, error) {
	v, err := note.NewVerifier(public)
	if err != nil {
		return nil, &ledger.InvalidError{Field: "key", Value: public,
			Rule: "must be the public key that taskledger seal --make-key has printed"}
	}
	return v, nil
}
