package outbox

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// ForeignStreamError is the error of a stream that belongs to another ledger.
type ForeignStreamError = stream.ForeignError

// ForeignWriterError is the error of a stream that holds a message which this ledger did not send: another
// program publishes there, or this database lost events that it had published.
type ForeignWriterError struct {
	Stream string
	Seq    uint64 // of the message in the stream
	ID     string // its ce-id, "" if it has none
	Reason string // why the message is foreign
}

func (e *ForeignWriterError) Error() string {
	return fmt.Sprintf("message %d (%q) in stream %s is foreign: %s: stop the other writer; if this database was "+
		"restored, rewound or failed over with losses: taskledger rebuild stream",
		e.Seq, e.ID, e.Stream, e.Reason)
}

// isStoreFailure reports whether JetStream does not store messages although the connection is open: it gave no
// acknowledgement, or refused messages for a reason other than a full stream.
func isStoreFailure(err error) bool {
	var refused *stream.RefusedError
	if errors.As(err, &refused) {
		return !refused.Full() && !refused.ForMessage()
	}
	return errors.Is(err, stream.ErrNoAck) || errors.Is(err, jetstream.ErrJetStreamNotEnabled) ||
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount)
}

// StoreError is the error of [Hook].RelayFailed if NATS is connected and JetStream stores no message. nats-server keeps
// the error of a full disk until it is restarted.
type StoreError struct{ Err error }

func (e *StoreError) Error() string { return e.Err.Error() }

// Unwrap returns the error of publishing.
func (e *StoreError) Unwrap() error { return e.Err }

// isRefusal reports whether a relay must not continue after an error before an operator has acted.
func isRefusal(err error) bool {
	var writer *ForeignWriterError
	var owner *ForeignStreamError
	var original *CopyError
	return feed.IsRefusal(err) || errors.As(err, &writer) || errors.As(err, &owner) || errors.As(err, &original) ||
		errors.Is(err, ledger.ErrNotMigrated)
}
