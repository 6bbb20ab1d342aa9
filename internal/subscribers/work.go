package subscribers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/rebuild"
)

// ErrNoTables is the error of a rebuild or verification of a subscriber without tables.
var ErrNoTables = errors.New("the subscriber has no tables")

// RequestRebuild asks the program of a subscriber to rebuild its tables. The program begins within seconds. Once it has
// ended, [State].Wanted is "" again, and [State].Work contains its result. The act is recorded: its
// record is open until it succeeds in the transaction that replaces the tables, or is dead with the error. It commits.
// Default of actor: the database's session_user.
//
// Errors: [ErrUnknown], [ErrNoTables], [*ledger.InvalidError], [ledger.ErrNotMigrated].
func RequestRebuild(ctx context.Context, db DB, name, actor, reason string) error {
	o := RebuildOf(name, actor, reason)
	return request(ctx, db, name, rebuild.WorkRebuild, &o)
}

// RequestVerify asks the program of a subscriber to compare its tables with the events, see [RequestRebuild]. The
// outcome is the Report of [rebuild.Work]. It commits, and is not recorded. Errors: as in RequestRebuild.
func RequestVerify(ctx context.Context, db DB, name string) error {
	return request(ctx, db, name, rebuild.WorkVerify, nil)
}

func request(ctx context.Context, db DB, name, work string, o *operation.Operation) error {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		_, have, err := Registered(ctx, tx, name)
		if err == nil && len(have.Tables) == 0 {
			err = fmt.Errorf("subscriber %s: %w", name, ErrNoTables)
		}
		if err != nil {
			return err
		}
		if o != nil {
			o.Detail["version"] = fmt.Sprint(have.Version)
			if _, err := operation.Begin(ctx, tx, *o); err != nil {
				return err
			}
		}
		_, err = rebuild.Ask(ctx, tx, name, work)
		return err
	})
	return pgerr.Explain("ask for "+work+" of subscriber "+name, err)
}

// RebuildOf returns the operation of rebuilding the tables of a subscriber.
func RebuildOf(name, actor, reason string) operation.Operation {
	about := map[string]string{"subscriber": name}
	return operation.Operation{
		Action: operation.RebuildSubscriber, Actor: actor, Reason: reason, Same: about, Detail: maps.Clone(about),
	}
}

// ReadReport returns the outcome of a verification that has succeeded.
func ReadReport(w rebuild.Work) (r rebuild.Report, err error) {
	err = json.Unmarshal(w.Result, &r)
	return r, err
}
