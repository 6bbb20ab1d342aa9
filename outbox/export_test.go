package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// SetPageSize sets the number of events that a relay reads at a time.
func (c *Config) SetPageSize(n int) { c.pageSize = n }

// SetRun has a relay claim for another run of the server than its session has read, and returns a function that takes
// it back. The relay has begun to work.
func (r *Relay) SetRun(run string) (restore func()) {
	mine := r.copies.mine.Load()
	other := *mine
	other.Run = run
	r.copies.mine.Store(&other)
	return func() { r.copies.mine.Store(mine) }
}

// SetMaxInspected sets how many messages of a gap are read, and returns a function that takes it back.
func SetMaxInspected(n uint64) (restore func()) {
	before := maxInspected
	maxInspected = n
	return func() { maxInspected = before }
}

// ServedPatience is how long a page waits for acknowledgements at a time.
const ServedPatience = servedPatience

// MaxCursorEvery is the longest time between two cursor rows while pages are published.
const MaxCursorEvery = maxCursorEvery

// LookEvery returns the interval at which a relay with default settings that stands by looks at the lease.
func LookEvery() time.Duration { return (&lease{ttl: DefaultLeaseTTL}).lookEvery() }

// PurgeEvery is the longest time that a relay waits between two purges.
const PurgeEvery = purgeEvery

// MaxDelay is the longest delay before a relay that failed tries again.
const MaxDelay = maxDelay

// Statements whose costs are tested.
var (
	WaitingSQL   = waitingSQL
	FollowedSQL  = followedSQL
	OvertakenSQL = overtakenSQL
	PassedSQL    = passedSQL

	EventsAtSQL   = eventsAtSQL
	UnfinishedSQL = unfinishedSQL
)

// SumUp sums up results of messages after the last known sequence. It returns the gaps as pairs, the number
// of events to park, the failure, and the error.
func SumUp(after uint64, results []stream.Result) (gaps [][2]uint64, rejects int, failure, err error) {
	s := &session{mark: mark{Seq: after}}
	messages := make([]message, len(results))
	for i := range messages {
		messages[i] = message{event: &ledger.Event{}, msg: &nats.Msg{}}
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

// Lease is the lease of a relay.
type Lease = lease

// NewLease returns the lease of a relay that cannot work.
func NewLease(db *pgxpool.Pool, name string, ttl time.Duration) *Lease {
	l := newLease(db, name, ttl)
	l.setNote("slow")
	return l
}

// Await waits until the relay holds the lease.
func (l *lease) Await(ctx context.Context) error {
	return l.await(ctx, func() bool { return true }, func() {})
}
