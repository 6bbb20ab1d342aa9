package dispatch

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
)

// ErrSeal is the error of a message that the other side of the conversation did not seal for this conversation.
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

// SessionName returns the name of a session. It depends on the worker's id, which belongs to the login that owns its
// lease, so no other worker can open a session with that name.
func SessionName(worker string, public []byte) string {
	hash := sha256.Sum256(fmt.Appendf(nil, "%d %s %x", len(worker), worker, public))
	return hex.EncodeToString(hash[:16])
}

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
// keys follow from X25519 of the two identities by HKDF with SHA-256. A message begins with its nonce: four random
// bytes, because a session may get a second seal with the same keys, and the message's number. A replayed message
// opens again; the protocol's own numbers refuse it. One goroutine at a time may seal; any number may open.
type Seal struct {
	send, receive cipher.AEAD
	nonce         [nonceSize]byte // of the last message
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
	s := &Seal{send: offers, receive: reports}
	if side == WorkerSide {
		s.send, s.receive = reports, offers
	}
	_, err = rand.Read(s.nonce[:nonceSize-numberSize])
	return s, err
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

const (
	nonceSize  = 12
	numberSize = 8
)

// Seal returns a sealed message.
func (s *Seal) Seal(message []byte) []byte {
	number := s.nonce[nonceSize-numberSize:]
	binary.BigEndian.PutUint64(number, binary.BigEndian.Uint64(number)+1)
	sealed := make([]byte, nonceSize, nonceSize+len(message)+s.send.Overhead())
	copy(sealed, s.nonce[:])
	return s.send.Seal(sealed, s.nonce[:], message, nil)
}

// Open returns the message that the other side has sealed. It returns [ErrSeal] for any other bytes.
func (s *Seal) Open(sealed []byte) ([]byte, error) {
	if len(sealed) < nonceSize {
		return nil, ErrSeal
	}
	message, err := s.receive.Open(nil, sealed[:nonceSize], sealed[nonceSize:], nil)
	if err != nil {
		return nil, ErrSeal
	}
	return message, nil
}
