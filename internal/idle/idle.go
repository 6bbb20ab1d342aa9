// Package idle reads whether the services of a ledger have nothing to do, and until when.
package idle

import (
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/schedules"
)

//go:embed sql/look.sql
var lookSQL string

// never is a time without an event.
const never = time.Duration(1<<63 - 1)

// HasTasks is a reason why the services are needed.
const HasTasks = "a task is available or running"

// State is what the services of a ledger have to do, by the database's clock.
type State struct {
	// Reason is why the services are needed now; "" if they are not.
	Reason string
	// Quiet is the time since the newest event.
	Quiet time.Duration
	// Next is the time until the first timer or schedule is due.
	Next time.Duration
}

// Readers names the readers of the feed that must have passed every event, besides the projector.
type Readers struct{ Relay, Seal bool }

// names returns the names of the readers.
func (r Readers) names() []string {
	names := []string{feed.ProjectorReader}
	if r.Relay {
		names = append(names, relayReader)
	}
	if r.Seal {
		names = append(names, feed.SealReader)
	}
	return names
}

// relayReader is the relay's reader of the feed.
const relayReader = "relay"

// Look reads the state in one snapshot.
//
// A transaction in progress counts as a reason, in whatever database: it may be an enqueue, which the snapshot does not
// show. It keeps a compute awake anyway. A snapshot names it only if one with a higher ID has ended, so one does first.
func Look(ctx context.Context, db *pgxpool.Pool, readers Readers) (State, error) {
	s := State{Quiet: never, Next: never}
	if _, err := db.Exec(ctx, "select pg_catalog.pg_current_xact_id()"); err != nil {
		return s, pgerr.Explain("begin to read what is to do", err)
	}
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return s, pgerr.Explain("begin to read what is to do", err)
	}
	defer pgquery.Rollback(ctx, tx)
	var quiet, timer *int64
	var hasTasks, isBehind, isOpen bool
	if _, err = pgquery.Row(ctx, tx, lookSQL, []any{pgarray.Of(readers.names()...)},
		&quiet, &hasTasks, &isBehind, &isOpen, &timer); err != nil {
		return s, pgerr.Explain("read what is to do", err)
	}
	firing, err := schedules.ReadNext(ctx, tx)
	if err != nil {
		return s, err
	}
	if quiet != nil {
		s.Quiet = micros(*quiet)
	}
	for _, due := range []*int64{timer, firing} {
		if due != nil {
			s.Next = min(s.Next, micros(*due))
		}
	}
	switch {
	case hasTasks:
		s.Reason = HasTasks
	case isBehind:
		s.Reason = "an event is not published, projected or sealed yet"
	case isOpen:
		s.Reason = "a transaction is in progress"
	}
	return s, nil
}

// micros returns a duration of n microseconds, at least 0 and at most never.
func micros(n int64) time.Duration {
	if n > int64(never/time.Microsecond) {
		return never
	}
	return time.Duration(max(0, n)) * time.Microsecond
}
