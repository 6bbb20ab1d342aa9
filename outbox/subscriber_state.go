package outbox

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/rebuild"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/state_parked_count.sql
var stateParkedCountSQL string

// SubscriberState is what the database contains of a subscriber with [Tables] or [Park], in addition to [Subscriber].
type SubscriberState struct {
	rebuild.State

	Parked    int `json:"parked"`    // events; at most maxListed
	Discarded int `json:"discarded"` // events; at most maxListed
}

type (
	// Failing is an event that stops a subscriber.
	Failing = rebuild.Failing
	// Work is a rebuild or a verification.
	Work = rebuild.Work
)

// The work of the program of a subscriber, see [Work].
const (
	WorkRebuild = rebuild.WorkRebuild
	WorkVerify  = rebuild.WorkVerify
)

// maxListed is the highest number of events that [SubscriberState] counts.
const maxListed = 10_000

// ReadSubscriberStates returns the states of all subscribers that have one, by name. It never commits. Errors:
// [ledger.ErrNotMigrated].
func ReadSubscriberStates(ctx context.Context, db ledger.DB) ([]SubscriberState, error) {
	states, err := rebuild.ReadAll(ctx, db)
	if err != nil {
		return nil, err
	}
	return countParked(ctx, db, states)
}

// ReadSubscriberState returns the state of a subscriber. It never commits. If the subscriber has no [Tables] and parks
// no events, all but the name is zero.
//
// Errors: [ErrUnknownSubscriber], [ledger.ErrNotMigrated].
func ReadSubscriberState(ctx context.Context, db ledger.DB, name string) (SubscriberState, error) {
	_, state, err := readState(ctx, db, name)
	if err != nil {
		return SubscriberState{}, err
	}
	all, err := countParked(ctx, db, []rebuild.State{state})
	if err != nil || len(all) == 0 {
		return SubscriberState{}, err
	}
	return all[0], nil
}

// readState returns the reader and the registered state of a subscriber that exists.
func readState(ctx context.Context, db ledger.DB, name string) (string, rebuild.State, error) {
	reader, err := existingReader(ctx, db, name)
	if err != nil {
		return "", rebuild.State{}, err
	}
	state, _, err := rebuild.Read(ctx, db, reader)
	state.Name = name
	return reader, state, err
}

// countParked adds the numbers of events that are parked and discarded, and leaves out the built-in projection.
func countParked(ctx context.Context, db ledger.DB, states []rebuild.State) ([]SubscriberState, error) {
	all := []SubscriberState{}
	at := make(map[string]int, len(states))
	var readers pgarray.Builder
	for _, s := range states {
		reader, err := feed.SubscriberReader(s.Name)
		if err != nil || s.IsBuiltIn {
			continue
		}
		at[reader] = len(all)
		all = append(all, SubscriberState{State: s})
		readers.Add(reader)
	}
	rows, err := db.Query(ctx, stateParkedCountSQL, readers.String(), int64(maxListed))
	if err != nil {
		return nil, pgerr.Explain("count parked events", err)
	}
	var reader string
	var parked, discarded int
	_, err = pgx.ForEachRow(rows, []any{&reader, &parked, &discarded}, func() error {
		all[at[reader]].Parked, all[at[reader]].Discarded = parked, discarded
		return nil
	})
	return all, pgerr.Explain("count parked events", err)
}

// WaitFor waits until a subscriber has handled the event at a position, for example of a task that the caller has
// enqueued and committed. Then its tables reflect it, for every transaction that begins afterwards. db is a pool or an
// idle connection to the primary. To read the state of one task, use [ledger.Load], which does not wait.
//
// It waits as long as no program works as the subscriber: give ctx a deadline. Errors: the error of ctx,
// [ledger.ErrUnknownPosition], [ErrUnknownSubscriber], [ledger.ErrNotMigrated].
func WaitFor(ctx context.Context, db ledger.DB, name string, p ledger.Position) error {
	reader, err := existingReader(ctx, db, name)
	if err != nil {
		return err
	}
	if err := feed.AwaitPassed(ctx, db, reader, p); err != nil {
		return fmt.Errorf("wait for subscriber %s: %w", name, err)
	}
	return nil
}
