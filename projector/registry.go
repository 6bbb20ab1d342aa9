package projector

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/rebuild"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/parked_count.sql
var parkedCountSQL string

// Registered is a projection as stored in the database.
type Registered struct {
	rebuild.State
	Parked  int `json:"parked"`  // events; at most maxListed
	Skipped int `json:"skipped"` // events; at most maxListed
}

// maxListed is the highest number of events that [Registered] counts.
const maxListed = 10_000

type (
	// Failing is an event that stops a projection.
	Failing = rebuild.Failing
	// Work is a rebuild or a verification.
	Work = rebuild.Work
)

// The work that an operator may ask the program for that runs a projection.
const (
	WorkRebuild = rebuild.WorkRebuild
	WorkVerify  = rebuild.WorkVerify
)

// ReadProjections returns the registered projections by name. It never commits. Errors: [ledger.ErrNotMigrated].
func ReadProjections(ctx context.Context, db ledger.DB) ([]Registered, error) {
	states, err := rebuild.ReadAll(ctx, db)
	if err != nil {
		return nil, err
	}
	return countParked(ctx, db, states)
}

// ReadProjection returns the projection that is registered under a name. It never commits.
//
// Errors: [ErrUnknownProjection], [ledger.ErrNotMigrated].
func ReadProjection(ctx context.Context, db ledger.DB, name string) (Registered, error) {
	state, found, err := rebuild.Read(ctx, db, name)
	if err == nil && !found {
		err = fmt.Errorf("projection %q: %w", name, ErrUnknownProjection)
	}
	if err != nil {
		return Registered{}, err
	}
	all, err := countParked(ctx, db, []rebuild.State{state})
	if err != nil {
		return Registered{}, err
	}
	return all[0], nil
}

// countParked adds the numbers of events that are parked and skipped.
func countParked(ctx context.Context, db ledger.DB, states []rebuild.State) ([]Registered, error) {
	all := make([]Registered, len(states))
	at := make(map[string]*Registered, len(states))
	var names pgarray.Builder
	for i, s := range states {
		all[i].State, at[s.Name] = s, &all[i]
		names.Add(s.Name)
	}
	rows, err := db.Query(ctx, parkedCountSQL, names.String(), int64(maxListed))
	if err != nil {
		return nil, pgerr.Explain("count parked events", err)
	}
	var name string
	var parked, skipped int
	_, err = pgx.ForEachRow(rows, []any{&name, &parked, &skipped}, func() error {
		at[name].Parked, at[name].Skipped = parked, skipped
		return nil
	})
	return all, pgerr.Explain("count parked events", err)
}

// Ask asks the program that runs a projection for [WorkRebuild] or [WorkVerify]. The program begins within seconds.
// Once it has ended, [Registered].Wanted is "" again, and [Registered].Work contains its result. A rebuild is recorded:
// its record is open until it succeeds in the transaction that replaces the tables, or is dead with the error. Ask
// commits.
//
// Errors: [ErrUnknownProjection], [*ledger.InvalidError], [ledger.ErrNotMigrated].
func Ask(ctx context.Context, db DB, name, work string, a Act) error {
	if work != WorkRebuild && work != WorkVerify {
		return &ledger.InvalidError{Field: "work", Value: work, Rule: "must be rebuild or verify"}
	}
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		have, err := ReadProjection(ctx, tx, name)
		if err != nil {
			return err
		}
		if work == WorkRebuild {
			act := rebuildOf(name, a)
			act.Detail["version"] = fmt.Sprint(have.Version)
			if _, err := operation.Begin(ctx, tx, act); err != nil {
				return err
			}
		}
		_, err = rebuild.Ask(ctx, tx, name, work)
		return err
	})
	return pgerr.Explain("ask for "+work+" of "+name, err)
}

// ReadReport returns the outcome of a verification that has succeeded.
func ReadReport(w Work) (r Report, err error) {
	err = json.Unmarshal(w.Result, &r)
	return r, err
}

// runnerActor is the author of the end of a rebuild that a runner does.
const runnerActor = "projector"

// rebuildOf returns the operation of rebuilding a projection.
func rebuildOf(name string, a Act) operation.Operation {
	about := map[string]string{"projection": name}
	return operation.Operation{
		Action: operation.RebuildProjection, Actor: a.Actor, Reason: a.Reason, Same: about, Detail: maps.Clone(about),
	}
}
