package outbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/rebuild"
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

// Bodies returns the bodies of the messages of events.
func Bodies(ctx context.Context, db *pgxpool.Pool, archive feed.Archive, of []ledger.Event) ([]string, error) {
	b, err := encoder{db: db, archive: archive}.prepare(ctx, of)
	var bodies []string
	for _, m := range b.messages {
		bodies = append(bodies, string(m.msg.Data))
	}
	return bodies, err
}

// ServedPatience is how long a page waits for acknowledgements at a time.
const ServedPatience = servedPatience

// MaxCursorEvery is the longest time between two cursor rows while pages are published.
const MaxCursorEvery = maxCursorEvery

// LookEvery returns the interval at which a relay with default settings that stands by looks at the lease.
func LookEvery() time.Duration { return (&lease{ttl: defaultLeaseTTL}).lookEvery() }

// MaxDelay is the longest delay before a relay that failed tries again.
const MaxDelay = maxDelay

// Statements that are tested.
var (
	EventsAtSQL = eventsAtSQL
)

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

// RetrySubscriber handles the parked events that an operator wants to be retried, at the place of a feed.
func RetrySubscriber(ctx context.Context, s Subscription, f *feed.Feed) error {
	s, err := s.withDefaults()
	if err != nil {
		return err
	}
	return (&subscriber{Subscription: s, reader: "subscriber/" + s.Name}).retryParked(ctx, f)
}

// RebuildTables builds the tables of a subscriber again.
func RebuildTables(ctx context.Context, s Subscription, o *rebuild.Options) error {
	s, err := s.withDefaults()
	if err != nil {
		return err
	}
	return rebuildTables(ctx, s, "", o)
}

// VerifyTables compares the tables of a subscriber with the events.
var VerifyTables = verifyTables
