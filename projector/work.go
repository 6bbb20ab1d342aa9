package projector

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/work_want.sql
	workWantSQL string
	//go:embed sql/work_progress.sql
	workProgressSQL string
	//go:embed sql/work_end.sql
	workEndSQL string
)

// The work that an operator may ask the program for that runs a projection.
const (
	WorkRebuild = "rebuild"
	WorkVerify  = "verify"
)

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
		var version int
		_, err = pgquery.Row(ctx, tx, workWantSQL, []any{name, work}, &version)
		return err
	})
	return pgerr.Explain("ask for "+work+" of "+name, err)
}

// Failure returns the error with which work has ended, "" if it has succeeded or not ended.
func (w Work) Failure() string {
	var failure workError
	_ = json.Unmarshal(w.Result, &failure) // a report lacks this member
	return failure.Error
}

// Report returns the outcome of a verification that has succeeded.
func (w Work) Report() (r Report, err error) {
	err = json.Unmarshal(w.Result, &r)
	return r, err
}

func recordProgress(ctx context.Context, db ledger.DB, name, work string, done, total int64) error {
	_, err := db.Exec(ctx, workProgressSQL, name, work, done, total)
	return pgerr.Explain("record the progress of "+name, err)
}

// recordWorkEnd records the result of work, and that the request for it is done. The records of a failed rebuild end
// with it.
func recordWorkEnd(ctx context.Context, db DB, name, work string, result any, failure error) error {
	text, err := json.Marshal(result)
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, workEndSQL, name, work, string(text)); err != nil {
			return err
		}
		if work != WorkRebuild || failure == nil { // the swap has ended the records of a successful rebuild
			return nil
		}
		return operation.End(ctx, tx, rebuildOf(name, Act{Actor: runnerActor}), failure)
	})
	return pgerr.Explain("record the result of "+name, err)
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
