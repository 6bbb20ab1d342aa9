package outbox

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
	"github.com/taskledger/taskledger/ledger"
)

type (
	// TablesOptions configures [RebuildTables] and [VerifyTables]. Nil is the default of every field.
	TablesOptions = rebuild.Options
	// VersionError reports that the version of a subscriber's tables is newer than the program's, or that the DDL has
	// changed but not the version.
	VersionError = rebuild.VersionError
	// TablesError reports tables of a subscriber that do not exist, or that it cannot make or replace.
	TablesError = rebuild.TablesError
	// Report is the outcome of [VerifyTables].
	Report = rebuild.Report
)

// HandleError reports an event that a subscriber with [Tables] or [Park] cannot handle.
type HandleError struct {
	Subscriber string
	Event      ledger.Event
	Err        error // of Handle or of an upcast, or its panic
}

func (e *HandleError) Error() string {
	return fmt.Sprintf("subscriber %s cannot handle position %d, %s: %v", e.Subscriber, e.Event.Position, e.Event,
		e.Err)
}

// Unwrap returns the error of Handle.
func (e *HandleError) Unwrap() error { return e.Err }

// ErrNoTables is the error of a rebuild or verification of a subscriber without [Tables].
var ErrNoTables = errors.New("the subscriber has no tables")

// RebuildTables builds the tables of a subscriber from the first event in a separate schema, and replaces the tables in
// use when it has caught up. The subscriber may work meanwhile, and readers read the old tables until the new ones are
// complete. It recreates views that use the tables, and keeps rights on the tables. It commits after each page. If
// it is killed, the next call continues, or begins again if the tables have changed.
//
// If several calls run at a time, one works and the others return an error. So does a call while a program of a higher
// version builds its tables. Other errors: invalid fields of s, [*HandleError], [*VersionError], [*TablesError],
// [ErrNoTables], [ledger.ErrNotMigrated].
func RebuildTables(ctx context.Context, s Subscription, o *TablesOptions) error {
	s, err := s.withDefaults()
	if err != nil {
		return err
	}
	return rebuildTables(ctx, s, "", o)
}

func rebuildTables(ctx context.Context, s Subscription, actor string, o *TablesOptions) error {
	reader, have, err := registeredTables(ctx, s)
	switch {
	case err != nil:
		return err
	case have.Version > s.Tables.Version:
		return &VersionError{Of: "subscriber " + s.Name, Tables: have.Version, Program: s.Tables.Version}
	}
	builder := rebuild.Builder(reader)
	schema := rebuild.Schema(s.Tables.Schema)
	b := &rebuild.Build{
		DB: s.DB, Options: o.WithDefaults(), Operation: rebuildOf(s.Name, actor, ""),
		Name: "subscriber " + s.Name, Reader: reader, Schema: schema, InUse: s.Tables.Schema,
		Mark:  rebuild.Mark{Version: s.Tables.Version, Shape: s.Tables.shape()},
		Parks: s.OnFailure == Park,
		Target: &tablesBuild{pool: s.DB, handling: handling{
			Subscription: s, schema: schema, parkedAs: builder, reader: reader, log: s.Logger,
			invalidate: forgetBuild(s.DB, builder),
		}},
	}
	return b.Run(ctx)
}

// registeredTables returns the reader and the state of a subscriber with tables.
func registeredTables(ctx context.Context, s Subscription) (reader string, have rebuild.State, err error) {
	reader, have, err = readState(ctx, s.DB, s.Name)
	if err == nil && !s.Tables.isSet() {
		err = fmt.Errorf("subscriber %s: %w", s.Name, ErrNoTables)
	}
	return reader, have, err
}

// RequestRebuild asks the program of a subscriber to rebuild its tables. The program begins within seconds. Once it has
// ended, [SubscriberState].Wanted is "" again, and [SubscriberState].Work contains its result. The act is recorded: its
// record is open until it succeeds in the transaction that replaces the tables, or is dead with the error. It commits.
// Default of actor: the database's session_user.
//
// Errors: [ErrUnknownSubscriber], [ErrNoTables], [*ledger.InvalidError], [ledger.ErrNotMigrated].
func RequestRebuild(ctx context.Context, db DB, name, actor, reason string) error {
	o := rebuildOf(name, actor, reason)
	return request(ctx, db, name, rebuild.WorkRebuild, &o)
}

// RequestVerify asks the program of a subscriber to compare its tables with the events, see [RequestRebuild]. The
// outcome is [Work].Report. It commits, and is not recorded. Errors: as in RequestRebuild.
func RequestVerify(ctx context.Context, db DB, name string) error {
	return request(ctx, db, name, rebuild.WorkVerify, nil)
}

func request(ctx context.Context, db DB, name, work string, o *operation.Operation) error {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		_, have, err := readState(ctx, tx, name)
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

// rebuildActor is the author of the end of a rebuild that a subscriber's program does.
const rebuildActor = "subscriber"

// rebuildOf returns the operation of rebuilding the tables of a subscriber.
func rebuildOf(name, actor, reason string) operation.Operation {
	about := map[string]string{"subscriber": name}
	return operation.Operation{
		Action: operation.RebuildSubscriber, Actor: actor, Reason: reason, Same: about, Detail: maps.Clone(about),
	}
}

// ReadReport returns the outcome of a verification that has succeeded.
func ReadReport(w Work) (r Report, err error) {
	err = json.Unmarshal(w.Result, &r)
	return r, err
}
