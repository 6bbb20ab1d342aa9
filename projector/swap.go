package projector

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
)

var (
	//go:embed sql/swap_patience.sql
	swapPatienceSQL string
	//go:embed sql/swap_tables.sql
	swapTablesSQL string
	//go:embed sql/swap_lock.sql
	swapLockSQL string
	//go:embed sql/swap_users.sql
	swapUsersSQL string
	//go:embed sql/swap_version.sql
	swapVersionSQL string
	//go:embed sql/swap_schema.sql
	swapSchemaSQL string
	//go:embed sql/swap_rights.sql
	swapRightsSQL string
	//go:embed sql/swap_attached.sql
	swapAttachedSQL string
	//go:embed sql/swap_dependents.sql
	swapDependentsSQL string
	//go:embed sql/swap_move.sql
	swapMoveSQL string
	//go:embed sql/swap_drop.sql
	swapDropSQL string
	//go:embed sql/swap_registry.sql
	swapRegistrySQL string
	//go:embed sql/swap_retire_parked.sql
	swapRetireParkedSQL string
	//go:embed sql/swap_parked.sql
	swapParkedSQL string
)

// Patience of the swap, in milliseconds. While it waits for a table, readers of the table wait behind it.
const (
	holdPatience = 30_000
	lockPatience = 400
)

// swap replaces the tables in use by the new ones, in one transaction. Runners wait meanwhile; readers wait while the
// tables are moved, for less than a second. If others have locked the tables for longer, it returns an error
// (lock_not_available) and has changed nothing.
func (b *build) swap(ctx context.Context, f *feed.Feed) error {
	err := inPage(ctx, b.db, b.target, func(tx pgx.Tx) error {
		if err := b.hold(ctx, tx, f); err != nil {
			return err
		}
		fault.Point(fault.SwapHeld)
		if err := b.replace(ctx, tx); err != nil {
			return b.explain(err)
		}
		fault.Point(fault.SwapMoved)
		return nil
	})
	return pgerr.Explain("replace the tables", err)
}

// hold stops the runners of the projection, and applies the last events.
func (b *build) hold(ctx context.Context, tx pgx.Tx, f *feed.Feed) error {
	if _, err := tx.Exec(ctx, swapPatienceSQL, fmt.Sprint(holdPatience)); err != nil {
		return pgerr.Explain("replace the tables", err)
	}
	if err := feed.Hold(ctx, tx, reader(b.name)); err != nil {
		return err
	}
	if err := f.Mark(ctx, tx, b.mark.text()); err != nil { // another process may have begun the build again
		return err
	}
	// A window that ends now contains every event that the tables in use contain.
	for {
		page, ok, err := f.Poll(ctx)
		if err != nil || !ok {
			return err
		}
		b.mark.Done += int64(len(page.Events))
		if err := page.Advance(ctx, tx, b.mark.text()); err != nil {
			return err
		}
		if err := b.target.apply(ctx, tx, page.Events); err != nil {
			return fmt.Errorf("replace the tables: %w", err)
		}
		if page.Last() {
			return nil
		}
	}
}

// replace moves the new tables to the place of the old ones, with everything that depends on these.
func (b *build) replace(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, swapPatienceSQL, fmt.Sprint(lockPatience)); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, swapVersionSQL, b.name); err != nil {
		return err
	}
	// A later request of an operator waits for the row, and starts a new rebuild.
	if err := operation.End(ctx, tx, rebuildOf(b.name, Act{Actor: b.actor}), nil); err != nil {
		return err
	}
	have, _, err := readRegistered(ctx, tx, b.name)
	if err != nil {
		return err
	}
	if have.Version > b.mark.Version {
		return &VersionError{Projection: b.name, Tables: have.Version, Program: b.mark.Version}
	}
	if err := b.checkInUse(ctx, tx); err != nil {
		return err
	}
	added, err := texts(ctx, tx, swapTablesSQL, b.schema)
	if err != nil {
		return err
	}
	old, names := pgarray.Of(b.tables(have)...), pgarray.Of(added...)
	// Readers lock a view before its tables. So do these statements, which change nothing yet.
	if err := execAll(ctx, tx, swapDependentsSQL, b.inUse, old); err != nil {
		return err
	}
	if err := execAll(ctx, tx, swapLockSQL, b.inUse, old); err != nil {
		return err
	}
	// The definitions are read before the tables move, so they name the tables in use.
	rights, err := texts(ctx, tx, swapRightsSQL, b.inUse, old, b.schema)
	if err != nil {
		return err
	}
	isSame := have.Version != 0 && have.shape == b.mark.Shape
	attached, err := texts(ctx, tx, swapAttachedSQL, b.inUse, old, b.schema, number(isSame))
	if err != nil {
		return err
	}
	dependents, err := texts(ctx, tx, swapDependentsSQL, b.inUse, old)
	if err != nil {
		return err
	}
	if err := execAll(ctx, tx, swapMoveSQL, b.inUse, old, b.schema, names); err != nil {
		return err
	}
	for _, statement := range slices.Concat(rights, attached, dependents) {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	if err := execAll(ctx, tx, swapDropSQL, b.schema, old); err != nil {
		return err
	}
	return b.register(ctx, tx, names)
}

// checkInUse returns an error if the schema of the tables in use does not belong to the projection, and makes it if it
// was dropped. Names of tables come from the registry, which the role relay may write.
func (b *build) checkInUse(ctx context.Context, tx pgx.Tx) error {
	if b.name == TasksName {
		return nil
	}
	var owner string
	var isOwn bool
	found, err := pgquery.Row(ctx, tx, swapSchemaSQL, []any{b.inUse, schemaComment(b.name)}, &owner, &isOwn)
	switch {
	case err != nil:
		return err
	case !found:
		return makeSchema(ctx, tx, b.name, b.inUse)
	case !isOwn:
		return &TablesError{
			Projection: b.name, Tables: []string{"schema " + b.inUse}, Reason: "it belongs to " + owner +
				" and was not made for the projection",
			Cure: "rename it, or give the projection another Name",
		}
	}
	return nil
}

// users returns the sessions that use the tables, as far as the login may see them.
func (b *build) users(ctx context.Context) []string {
	var all []string
	have, _, err := readRegistered(ctx, b.db, b.name)
	if err == nil {
		all, err = texts(ctx, b.db, swapUsersSQL, b.inUse, pgarray.Of(b.tables(have)...))
	}
	if err != nil {
		b.options.Logger.DebugContext(ctx, "the users of the tables are unknown", "error", err)
	}
	return all
}

// register records that the new tables are in use, at the place of the build.
func (b *build) register(ctx context.Context, tx pgx.Tx, tables string) error {
	_, err := tx.Exec(ctx, swapRegistrySQL, b.name, int64(b.mark.Version), b.mark.Shape, tables, number(b.parks),
		b.mark.Done)
	if err != nil {
		return err
	}
	if b.name != TasksName {
		retired := b.name + "+retired"
		if _, err := tx.Exec(ctx, swapRetireParkedSQL, b.name, retired); err != nil {
			return err
		}
		if err := removeParked(ctx, tx, retired, nil); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, swapParkedSQL, buildOf(b.name), b.name); err != nil {
			return err
		}
	}
	var mark json.RawMessage
	if b.mark.Tagged {
		mark = markOf(feed.Place{Window: feed.Window{Seen: feed.Beginning()}}, tagHistory{})
	}
	if err := feed.Take(ctx, tx, reader(b.name), reader(buildOf(b.name)), mark); err != nil {
		return err
	}
	return feed.Forget(ctx, tx, reader(buildOf(b.name)))
}

// explain returns an error of the replacement with its cure.
func (b *build) explain(err error) error {
	const dependentObjects = "2BP01"
	const duplicateSchema = "42P06"
	const invalidTableDefinition, invalidObject = "42P16", "42P17"
	var pg *pgconn.PgError
	switch {
	case !errors.As(err, &pg):
	case pg.Code == dependentObjects:
		return &TablesError{
			Projection: b.name, Tables: []string{"tables in use"}, Reason: pg.Message + ": " + pg.Detail,
			Cure: "drop the objects that depend on them, and make them again after the rebuild",
		}
	case pg.Code == duplicateSchema:
		return &TablesError{
			Projection: b.name, Tables: []string{"schema " + b.schema + "_old"}, Reason: pg.Message,
			Cure: "drop it: no rebuild has made it",
		}
	case pg.Code == invalidTableDefinition, pg.Code == invalidObject, pgerr.IsNotMigrated(err):
		return &TablesError{
			Projection: b.name, Tables: []string{"a view or function of the tables in use"}, Reason: err.Error(),
			Cure: "drop it, and make it again after the rebuild",
		}
	case pgerr.Is(err, pgerr.InsufficientPrivilege):
		return &TablesError{
			Projection: b.name, Tables: []string{"tables in use"}, Reason: err.Error(),
			Cure: "rebuild as the owner of the tables and of the views that use them",
		}
	}
	return pgerr.Explain("replace the tables", err)
}
