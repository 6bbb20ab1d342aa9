package subscribers

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/rebuild"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/state_parked_count.sql
var stateParkedCountSQL string

// State is stored for a subscriber with tables, or one that parks events, in addition to [Subscriber].
type State struct {
	rebuild.State

	Parked    int `json:"parked"`    // events; at most maxListed
	Discarded int `json:"discarded"` // events; at most maxListed
}

// maxListed is the highest number of events that [State] counts.
const maxListed = 10_000

// ReadStates returns the states of all subscribers that have one, by name. It never commits. Errors:
// [ledger.ErrNotMigrated].
func ReadStates(ctx context.Context, db ledger.DB) ([]State, error) {
	states, err := rebuild.ReadAll(ctx, db)
	if err != nil {
		return nil, err
	}
	return countParked(ctx, db, states)
}

// ReadState returns the state of a subscriber. It never commits. If the subscriber has no tables and parks
// no events, all but the name is zero.
//
// Errors: [ErrUnknown], [ledger.ErrNotMigrated].
func ReadState(ctx context.Context, db ledger.DB, name string) (State, error) {
	_, state, err := Registered(ctx, db, name)
	if err != nil {
		return State{}, err
	}
	all, err := countParked(ctx, db, []rebuild.State{state})
	if err != nil || len(all) == 0 {
		return State{}, err
	}
	return all[0], nil
}

// Registered returns the reader and the registered state of a subscriber that exists.
func Registered(ctx context.Context, db ledger.DB, name string) (string, rebuild.State, error) {
	reader, err := Reader(ctx, db, name)
	if err != nil {
		return "", rebuild.State{}, err
	}
	state, _, err := rebuild.Read(ctx, db, reader)
	state.Name = name
	return reader, state, err
}

// countParked adds the numbers of events that are parked and discarded, and leaves out the built-in projection.
func countParked(ctx context.Context, db ledger.DB, states []rebuild.State) ([]State, error) {
	all := []State{}
	at := make(map[string]int, len(states))
	var readers pgarray.Builder
	for _, s := range states {
		reader, err := feed.SubscriberReader(s.Name)
		if err != nil || s.IsBuiltIn {
			continue
		}
		at[reader] = len(all)
		all = append(all, State{State: s})
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
