package stream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
)

// Errors of a message without an acknowledgement. The message may or may not be stored.
var (
	// ErrNoAck is returned if the acknowledgement did not arrive in time.
	ErrNoAck = errors.New("no acknowledgement in time")
	// ErrDisconnected is returned if the connection was lost before the acknowledgement arrived.
	ErrDisconnected = errors.New("disconnected before the acknowledgement")
	// ErrNoStream is returned if no stream takes the subject: the stream is missing or without a leader.
	ErrNoStream = errors.New("no stream takes the message (no responders)")
)

// Codes of [RefusedError] that are about the stream and not about the message.
const (
	codeStoreFailed           = 10077 // also: full
	codeInsufficientResources = 10023
	codeStorageExceeded       = 10047
	codeTooManyRequests       = 10167 // for a message that did not fit into the queue of waiting messages
	codeWrongSequence         = 10071 // see Expect
	codeWrongSequenceOfMany   = 10164 // the same, without the sequence
)

// RefusedError reports that the stream answered and did not store the message.
type RefusedError struct {
	Code int    // JetStream's err_code
	Text string // JetStream's description
}

func (e *RefusedError) Error() string { return fmt.Sprintf("refused: %s (%d)", e.Text, e.Code) }

// The texts of code 10077 if the stream is full; the code also covers disk errors.
const (
	errMaximumBytes    = "maximum bytes exceeded"
	errMaximumMessages = "maximum messages exceeded"
)

// Full reports whether the stream or its server is full.
func (e *RefusedError) Full() bool {
	return e.Code == codeStoreFailed && e.Text == errMaximumBytes || e.Code == codeInsufficientResources ||
		e.Code == codeStorageExceeded || e.Code == codeStoreFailed && e.Text == errMaximumMessages
}

// WrongSequence reports whether the stream's last sequence differs from the sequence that the message expects, see
// [Expect].
func (e *RefusedError) WrongSequence() bool {
	return e.Code == codeWrongSequence || e.Code == codeWrongSequenceOfMany
}

// Codes of refusals that are about the message: the stream refuses the same message each time.
const (
	codeMessageTooLarge = 10054
	codeHeaderTooLarge  = 10097
)

// ForMessage reports whether the refusal is about the message, so that sending it again fails again.
func (e *RefusedError) ForMessage() bool {
	return e.Code == codeMessageTooLarge || e.Code == codeHeaderTooLarge
}

// Result is the outcome of one message of a page.
type Result struct {
	Seq uint64 // its sequence in the stream; 0: not stored
	Err error  // nil, [*RefusedError], or one of the sentinels
}

var ackEnd = []byte(`}`)

// acks are the PubAcks of a stream.
type acks struct {
	stream string
	prefix []byte
}

func acksOf(stream string) acks { return acks{stream, []byte(`{"stream":"` + stream + `","seq":`)} }

// parse reads a PubAck. Nearly all have one form, which needs no JSON decoder.
func (a acks) parse(header nats.Header, data []byte) Result {
	if rest, ok := bytes.CutPrefix(data, a.prefix); ok {
		n := 0
		for n < len(rest) && '0' <= rest[n] && rest[n] <= '9' {
			n++
		}
		seq, err := strconv.ParseUint(string(rest[:n]), 10, 64)
		if err == nil && rest[0] != '0' && bytes.Equal(rest[n:], ackEnd) {
			return Result{Seq: seq}
		}
	}
	return a.parseRare(header, data)
}

func (a acks) parseRare(header nats.Header, data []byte) Result {
	if len(data) == 0 {
		if header.Get("Status") == "503" {
			return Result{Err: ErrNoStream}
		}
		return Result{Err: fmt.Errorf("%w: empty answer, status %q", ErrNoAck, header.Get("Status"))}
	}
	var ack struct {
		Stream string `json:"stream"`
		Seq    uint64 `json:"seq"`
		Error  *struct {
			Code int    `json:"err_code"`
			Text string `json:"description"`
		} `json:"error"`
	}
	switch err := json.Unmarshal(data, &ack); {
	case err != nil:
		return Result{Err: fmt.Errorf("%w: unreadable answer %.80q", ErrNoAck, data)}
	case ack.Error != nil:
		return Result{Err: &RefusedError{Code: ack.Error.Code, Text: ack.Error.Text}}
	case ack.Stream != a.stream:
		return Result{Err: fmt.Errorf("%w: the subject belongs to the stream %q", ErrNoStream, ack.Stream)}
	case ack.Seq == 0:
		return Result{Err: fmt.Errorf("%w: answer without a sequence", ErrNoAck)}
	}
	return Result{Seq: ack.Seq}
}
