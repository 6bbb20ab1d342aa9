package seal

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/taskledger/taskledger/ledger"
)

const (
	algCosignature = 4 // Ed25519 by C2SP tlog-cosignature
	timeBytes      = 8
)

// witness verifies the cosignatures of a witness, by C2SP tlog-cosignature: a time, and the Ed25519 signature of the
// time and the checkpoint.
type witness struct {
	name string
	hash uint32
	key  ed25519.PublicKey
}

// newWitness returns the witness of a public key: name, hash and key, joined by plus signs.
func newWitness(public string) (*witness, error) {
	name, rest, _ := strings.Cut(public, "+")
	hashText, keyText, _ := strings.Cut(rest, "+")
	hash, hashErr := strconv.ParseUint(hashText, 16, 32)
	key, err := base64.StdEncoding.DecodeString(keyText)
	rule := ""
	switch {
	case name == "" || hashErr != nil || err != nil || len(key) == 0:
		rule = "must be the public key of a witness: name+hash+base64"
	case key[0] != algCosignature || len(key) != 1+ed25519.PublicKeySize:
		rule = "must be an Ed25519 key of a witness, type 4; the key of a log has type 1"
	case uint32(hash) != keyHash(name, key):
		rule = "must be complete: its hash does not fit its name and key"
	}
	if rule != "" {
		return nil, &ledger.InvalidError{Field: "witness", Value: public, Rule: rule}
	}
	return &witness{name: name, hash: uint32(hash), key: key[1:]}, nil
}

// keyHash returns the ID of a key, by C2SP signed-note.
func keyHash(name string, key []byte) uint32 {
	h := sha256.New()
	h.Write([]byte(name + "\n"))
	h.Write(key)
	return binary.BigEndian.Uint32(h.Sum(nil))
}

// Name implements [note.Verifier].
func (w *witness) Name() string { return w.name }

// KeyHash implements [note.Verifier].
func (w *witness) KeyHash() uint32 { return w.hash }

// Verify implements [note.Verifier].
func (w *witness) Verify(text, signature []byte) bool {
	if len(signature) != timeBytes+ed25519.SignatureSize {
		return false
	}
	at := binary.BigEndian.Uint64(signature)
	return at <= math.MaxInt64 && ed25519.Verify(w.key, cosigned(at, text), signature[timeBytes:])
}

// cosigned returns the message that a witness signs at a time.
func cosigned(at uint64, text []byte) []byte {
	return append(fmt.Appendf(nil, "cosignature/v1\ntime %d\n", at), text...)
}

// Cosignature is a valid cosignature of a witness.
type Cosignature struct {
	Witness string    `json:"witness"` // its name
	At      time.Time `json:"at"`      // by the clock of the witness
}

// cosignature returns the content of a verified signature.
func cosignature(s note.Signature) Cosignature {
	signature, _ := base64.StdEncoding.DecodeString(s.Base64) // it was decoded before
	at := binary.BigEndian.Uint64(signature[4:])              // after the ID of the key
	return Cosignature{Witness: s.Name, At: time.Unix(int64(at), 0).UTC()}
}
