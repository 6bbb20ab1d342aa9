package outbox

import (
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
)

// SetPageSize sets the number of events that a relay reads at a time.
func (c *Config) SetPageSize(n int) { c.pageSize = n }

// Statements whose costs are tested.
var (
	WaitingSQL   = waitingSQL
	FollowedSQL  = followedSQL
	OvertakenSQL = overtakenSQL

	EventsAtSQL   = eventsAtSQL
	UnfinishedSQL = unfinishedSQL
)

// SumUp sums up results of messages after the last known sequence. It returns the gaps as pairs, the number
// of events to park, the failure, and the error.
func SumUp(after uint64, results []stream.Result) (gaps [][2]uint64, rejects int, failure, err error) {
	s := &session{mark: mark{Seq: after}}
	messages := make([]message, len(results))
	for i := range messages {
		messages[i].msg = &nats.Msg{}
	}
	sum, err := s.sumUp(messages, results)
	for _, g := range sum.gaps {
		gaps = append(gaps, [2]uint64{g.from, g.to})
	}
	return gaps, len(sum.rejects), sum.failure, err
}

// IsLoss reports whether an error is a loss of the stream.
func IsLoss(err error) bool {
	var lost *loss
	return errors.As(err, &lost)
}
