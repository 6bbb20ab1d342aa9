package outbox

import (
	"errors"
	"fmt"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
)

// ForeignStreamError is the error of a stream that belongs to another ledger.
type ForeignStreamError = stream.ForeignError

// ForeignWriterError is the error of a stream that holds a message which this ledger did not send: another
// program publishes there, or this database lost events that it had published.
type ForeignWriterError struct {
	Seq    uint64 // of the message in the stream
	ID     string // its ce-id, "" if it has none
	Reason string // why the message is foreign
}

func (e *ForeignWriterError) Error() string {
	return fmt.Sprintf("message %d (%q) in stream %s is foreign: %s: stop the other writer; if this database was "+
		"restored, rewound or failed over with losses, delete the stream: the relay rebuilds it from the ledger",
		e.Seq, e.ID, stream.Name, e.Reason)
}

// isRefusal reports whether a relay must not continue after an error before an operator has acted.
func isRefusal(err error) bool {
	var origin *feed.OriginError
	var writer *ForeignWriterError
	var owner *ForeignStreamError
	return errors.As(err, &origin) || errors.As(err, &writer) || errors.As(err, &owner) ||
		errors.Is(err, ledger.ErrNotMigrated)
}
