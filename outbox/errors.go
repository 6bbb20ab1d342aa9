package outbox

import (
	"errors"
	"fmt"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
)

// ForeignStreamError says that the stream belongs to another ledger.
type ForeignStreamError = stream.ForeignError

// ForeignWriterError says that the stream holds a message which this ledger did not send:
// somebody else publishes there, or this database has forgotten what it once sent.
type ForeignWriterError struct {
	Seq    uint64 // of the message in the stream
	ID     string // its ce-id, "" if it has none
	Reason string // how it was told
}

func (e *ForeignWriterError) Error() string {
	return fmt.Sprintf("message %d (%q) in stream %s is not ours: %s: stop the other writer; "+
		"if this database was restored, rewound or failed over with losses, delete the stream: the relay rebuilds it from the ledger",
		e.Seq, e.ID, stream.Name, e.Reason)
}

// refuses reports whether a relay must not go on, whatever comes back to life.
func refuses(err error) bool {
	var origin *feed.OriginError
	var writer *ForeignWriterError
	var owner *ForeignStreamError
	return errors.As(err, &origin) || errors.As(err, &writer) || errors.As(err, &owner) || errors.Is(err, ledger.ErrNotMigrated)
}
