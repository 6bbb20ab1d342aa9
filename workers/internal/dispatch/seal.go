package dispatch

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
)

// ErrSeal is the error of a message that was not sealed by the other side of the conversation, for this conversation.
var ErrSeal = errors.New("the message is not sealed by the other side of this conversation")

// Identity is the key pair of a worker's session, or of a dispatcher's epoch. Its public half is in the lease row,
// which only its own login may write; its private half never leaves the process.
type Identity struct{ key *ecdh.PrivateKey }

// NewIdentity returns a random key pair.
func NewIdentity() (Identity, error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	return Identity{key}, err
}

// Public returns the public half, 32 bytes.
func (i Identity) Public() []byte { return i.key.PublicKey().Bytes() }

// Conversation names a session in an epoch. Both sides must agree on it.
type Conversation struct {
	Session     string
	Incarnation string
	Epoch       int64
}

// label returns a text that is unique for the conversation.
func (c Conversation) label() string {
	return "taskledger dispatch 1 " + strconv.Quote(c.Session) + " " + strconv.Quote(c.Incarnation) + " " +
		strconv.FormatInt(c.Epoch, 10)
}

// Seal seals and opens the messages of one side of a conversation, by AES-256-GCM with a key for each direction. The
// keys follow from X25519 of the two identities by HKDF with SHA-256. The nonce is the message's number, which precedes
// it in clear. A replayed message opens again: the protocol's own numbers refuse it. It is not safe for concurrent use.
type Seal struct {
	send, receive cipher.AEAD
	sent          uint64
}

// Side is a side of a conversation.
type Side int

// The sides of a conversation.
const (
	WorkerSide Side = iota
	DispatcherSide
)

// NewSeal returns the seal of one side, whose identity is own. peer is the public half of the other side's identity.
func NewSeal(side Side, own Identity, peer []byte, c Conversation) (*Seal, error) {
	public, err := ecdh.X25519().NewPublicKey(peer)
	if err != nil {
		return nil, fmt.Errorf("public key of the other side: %w", err)
	}
	secret, err := own.key.ECDH(public)
	if err != nil {
		return nil, fmt.Errorf("public key of the other side: %w", err)
	}
	reports, err := newAEAD(secret, c.label()+" report")
	if err != nil {
		return nil, err
	}
	offers, err := newAEAD(secret, c.label()+" offer")
	if err != nil {
		return nil, err
	}
	if side == WorkerSide {
		return &Seal{send: reports, receive: offers}, nil
	}
	return &Seal{send: offers, receive: reports}, nil
}

func newAEAD(secret []byte, label string) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, label, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// numberSize is the size of a message's number in bytes.
const numberSize = 8

// Seal returns a sealed message.
func (s *Seal) Seal(message []byte) []byte {
	s.sent++
	sealed := make([]byte, numberSize, numberSize+len(message)+s.send.Overhead())
	binary.BigEndian.PutUint64(sealed, s.sent)
	return s.send.Seal(sealed, nonce(s.send, sealed), message, nil)
}

// Open returns the message that the other side has sealed. It returns [ErrSeal] for any other bytes.
func (s *Seal) Open(sealed []byte) ([]byte, error) {
	if len(sealed) < numberSize {
		return nil, ErrSeal
	}
	message, err := s.receive.Open(nil, nonce(s.receive, sealed), sealed[numberSize:], nil)
	if err != nil {
		return nil, ErrSeal
	}
	return message, nil
}

// nonce returns the nonce of a message whose number is at its beginning.
func nonce(a cipher.AEAD, sealed []byte) []byte {
	n := make([]byte, a.NonceSize())
	copy(n[len(n)-numberSize:], sealed[:numberSize])
	return n
}
