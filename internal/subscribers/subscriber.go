package subscribers

import (
	"context"
	"fmt"
	"time"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
)

// Subscriber is where a subscriber continues.
type Subscriber struct {
	Name     string          `json:"name"`
	IsPaused bool            `json:"paused"`
	Position ledger.Position `json:"position"` // about: earlier events may follow that were committed late
	MovedAt  time.Time       `json:"moved_at"` // when it last passed an event, or was moved
	IsLocal  bool            `json:"is_local"` // false: its place belongs to another database
	Lag      int64           `json:"lag"`      // events that it has not passed, at most 10,000
	IsCapped bool            `json:"lag_capped"`
	// OldestAt is when the oldest of these events was recorded. Zero: none.
	OldestAt time.Time `json:"oldest_at,omitzero"`
	Age      int64     `json:"age_ms"` // of that event, by the database's clock
	// Login is the session user that owns it: the first that read as it. "": no owner yet.
	Login string `json:"login,omitempty"`
	IsOwn bool   `json:"-"` // no login but this one owns it
}

// ReadAll returns at most limit subscribers of all languages whose names follow after, in the order of their
// names; "" is before the first. Its cost grows with limit, not with the number of subscribers or events. It returns an
// [*ledger.InvalidError] if limit is less than 1.
func ReadAll(ctx context.Context, db ledger.DB, after string, limit int) ([]Subscriber, error) {
	found, err := feed.SubscribersAfter(ctx, db, after, limit)
	all := make([]Subscriber, len(found))
	for i, s := range found {
		all[i] = Subscriber(s)
	}
	return all, err
}

// Read returns the subscriber with a name. It returns [ErrUnknown] if it does not exist.
func Read(ctx context.Context, db ledger.DB, name string) (Subscriber, error) {
	if _, err := feed.SubscriberReader(name); err != nil {
		return Subscriber{}, err
	}
	found, err := feed.Subscribers(ctx, db, name)
	switch {
	case err != nil:
		return Subscriber{}, err
	case len(found) == 0:
		return Subscriber{}, fmt.Errorf("subscriber %s: %w", name, ErrUnknown)
	}
	return Subscriber(found[0]), nil
}

// Point is how far a subscriber and the events were at a time.
type Point struct {
	Position ledger.Position // of the subscriber
	Newest   ledger.Position // of the events; 0: not known
}

// ReadHistory returns a subscriber's points at the end of each step, oldest first; the last one is now. A step is a
// number of seconds. Points from before the last hour, or before a new subscriber began, repeat the oldest known
// position. It never commits. Its cost grows with the number of steps, not of events.
func ReadHistory(
	ctx context.Context, db ledger.DB, name string, step time.Duration, steps int,
) ([]Point, error) {
	found, err := feed.SubscriberHistory(ctx, db, name, step, steps)
	all := make([]Point, len(found))
	for i, p := range found {
		all[i] = Point(p)
	}
	return all, err
}
