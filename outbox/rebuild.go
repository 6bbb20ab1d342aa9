package outbox

import (
	"context"
	"fmt"

	"github.com/taskledger/taskledger/internal/rebuild"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
)

type (
	// VersionError reports that the version of a subscriber's tables is newer than the program's, or that the DDL has
	// changed but not the version.
	VersionError = rebuild.VersionError
	// TablesError reports tables of a subscriber that do not exist, or that it cannot make or replace.
	TablesError = rebuild.TablesError
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

// rebuildTables builds the tables of a subscriber from the first event in a separate schema, and replaces the tables in
// use when it has caught up. The subscriber may work meanwhile, and readers read the old tables until the new ones are
// complete. It recreates views that use the tables, and keeps rights on the tables. It commits after each page. If
// it is killed, the next call continues, or begins again if the tables have changed.
//
// If several calls run at a time, one works and the others return an error. So does a call while a program of a higher
// version builds its tables. Other errors: [*HandleError], [*VersionError], [*TablesError], [subscribers.ErrNoTables],
// [ledger.ErrNotMigrated].
func rebuildTables(ctx context.Context, s Subscription, actor string, o *rebuild.Options) error {
	reader, have, err := registeredTables(ctx, s)
	switch {
	case err != nil:
		return err
	case have.Version > s.Tables.Version:
		return &VersionError{Of: "subscriber " + s.Name, Tables: have.Version, Program: s.Tables.Version}
	}
	if err := s.checkArchive(ctx); err != nil {
		return err
	}
	builder := rebuild.Builder(reader)
	schema := rebuild.Schema(s.Tables.Schema)
	b := &rebuild.Build{
		DB: s.DB, Options: o.WithDefaults(), Operation: subscribers.RebuildOf(s.Name, actor, ""),
		Name: "subscriber " + s.Name, Reader: reader, Schema: schema, InUse: s.Tables.Schema,
		Mark:  rebuild.Mark{Version: s.Tables.Version, Shape: s.Tables.shape()},
		Parks: s.OnFailure == Park, Archive: s.Archive,
		Target: &tablesBuild{pool: s.DB, handling: handling{
			Subscription: s, schema: schema, parkedAs: builder, reader: reader, log: s.Logger,
			invalidate: forgetBuild(s.DB, builder),
		}},
	}
	return b.Run(ctx)
}

// registeredTables returns the reader and the state of a subscriber with tables.
func registeredTables(ctx context.Context, s Subscription) (reader string, have rebuild.State, err error) {
	reader, have, err = subscribers.Registered(ctx, s.DB, s.Name)
	if err == nil && !s.Tables.isSet() {
		err = fmt.Errorf("subscriber %s: %w", s.Name, subscribers.ErrNoTables)
	}
	return reader, have, err
}

// rebuildActor is the author of the end of a rebuild that a subscriber's program does.
const rebuildActor = "subscriber"
