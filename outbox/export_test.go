package outbox

import (
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
)

// SetPageSize makes a relay read pages of another size.
func (c *Config) SetPageSize(n int) { c.pageSize = n }

// WaitingSQL is the statement that counts what waits.
var WaitingSQL = waitingSQL

// Tally counts answers to messages of which the last known sequence is after; it returns the
// gaps as pairs, the events to park, the failure, and the error.
func Tally(after uint64, results []stream.Result) (gaps [][2]uint64, refused int, failed, err error) {
	s := &session{mark: mark{Seq: after}}
	messages := make([]message, len(results))
	for i := range messages {
		messages[i].msg = &nats.Msg{}
	}
	t, err := s.tally(messages, results)
	for _, g := range t.gaps {
		gaps = append(gaps, [2]uint64{g.from, g.to})
	}
	return gaps, len(t.refused), t.failed, err
}

// IsLoss reports whether an error says that the stream has lost messages.
func IsLoss(err error) bool {
	var found *loss
	return errors.As(err, &found)
}
