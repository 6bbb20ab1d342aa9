package rebuild

import (
	"context"
	_ "embed"
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
)

// Patience of the swap, in milliseconds. While it waits for a table, readers of the table wait behind it.
const (
	holdPatience = 30_000
	lockPatience = 400
)

// swap replaces the tables in use by the new ones, in one transaction. Runners wait meanwhile; readers wait while the
// tables are moved, for less than a second. If others have locked the tables for longer, it returns an error
// (lock_not_available) and has changed nothing.
func (b *Build) swap(ctx context.Context, f *feed.Feed) error {
	err := b.Target.InPage(ctx, func(tx pgx.Tx) error {
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
func (b *Build) hold(ctx context.Context, tx pgx.Tx, f *feed.Feed) error {
	if _, err := tx.Exec(ctx, swapPatienceSQL, fmt.Sprint(holdPatience)); err != nil {
		return pgerr.Explain("replace the tables", err)
	}
	if err := feed.Hold(ctx, tx, b.Reader); err != nil {
		return err
	}
	if err := f.Mark(ctx, tx, b.Mark.Text()); err != nil { // another process may have begun the build again
		return err
	}
	// A window that ends now contains every event that the tables in use contain.
	for {
		page, ok, err := f.Poll(ctx)
		if err != nil || !ok {
			return err
		}
		b.Mark.Done += int64(len(page.Events))
		if err := page.Advance(ctx, tx, b.Mark.Text()); err != nil {
			return err
		}
		if err := b.Target.Apply(ctx, tx, page.Events); err != nil {
			return fmt.Errorf("replace the tables: %w", err)
		}
		if page.Last() {
			return nil
		}
	}
}

// replace moves the new tables to the place of the old ones, with everything that depends on these.
func (b *Build) replace(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, swapPatienceSQL, fmt.Sprint(lockPatience)); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, swapVersionSQL, b.Reader); err != nil {
		return err
	}
	// A later request of an operator waits for the row, and starts a new rebuild.
	if err := operation.End(ctx, tx, b.Operation, nil); err != nil {
		return err
	}
	have, _, err := Read(ctx, tx, b.Reader)
	if err != nil {
		return err
	}
	if have.Version > b.Mark.Version {
		return &VersionError{Of: b.Name, Tables: have.Version, Program: b.Mark.Version}
	}
	if err := b.checkInUse(ctx, tx); err != nil {
		return err
	}
	added, err := pgquery.Texts(ctx, tx, swapTablesSQL, b.Schema)
	if err != nil {
		return err
	}
	old, names := pgarray.Of(b.tables(have)...), pgarray.Of(added...)
	// Readers lock a view before its tables. So do these statements, which change nothing yet.
	if err := pgquery.ExecAll(ctx, tx, swapDependentsSQL, b.InUse, old); err != nil {
		return err
	}
	if err := pgquery.ExecAll(ctx, tx, swapLockSQL, b.InUse, old); err != nil {
		return err
	}
	// The definitions are read before the tables move, so they name the tables in use.
	rights, err := pgquery.Texts(ctx, tx, swapRightsSQL, b.InUse, old, b.Schema)
	if err != nil {
		return err
	}
	isSame := have.Version != 0 && have.Shape == b.Mark.Shape
	attached, err := pgquery.Texts(ctx, tx, swapAttachedSQL, b.InUse, old, b.Schema, number(isSame))
	if err != nil {
		return err
	}
	dependents, err := pgquery.Texts(ctx, tx, swapDependentsSQL, b.InUse, old)
	if err != nil {
		return err
	}
	if err := pgquery.ExecAll(ctx, tx, swapMoveSQL, b.InUse, old, b.Schema, names); err != nil {
		return err
	}
	for _, statement := range slices.Concat(rights, attached, dependents) {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	if err := pgquery.ExecAll(ctx, tx, swapDropSQL, b.Schema, old); err != nil {
		return err
	}
	return b.register(ctx, tx, names)
}

// checkInUse returns an error if the schema of the tables in use was not made for them, and makes it if it
// was dropped. Names of tables come from the registry, which the role relay may write.
func (b *Build) checkInUse(ctx context.Context, tx pgx.Tx) error {
	if b.Owned != nil {
		return nil
	}
	var owner string
	var isOwn bool
	found, err := pgquery.Row(ctx, tx, swapSchemaSQL, []any{b.InUse, schemaComment(b.Name)}, &owner, &isOwn)
	switch {
	case err != nil:
		return err
	case !found:
		return makeSchema(ctx, tx, b.Name, b.InUse)
	case !isOwn:
		return &TablesError{
			Of: b.Name, Tables: []string{"schema " + b.InUse}, Reason: "it belongs to " + owner +
				" and was not made for it",
			Cure: "rename it, or set another Schema",
		}
	}
	return nil
}

// tables returns the names of the tables in use.
func (b *Build) tables(have State) []string {
	if b.Owned != nil {
		return b.Owned
	}
	return have.Tables
}

// users returns the sessions that use the tables, as far as the login may see them.
func (b *Build) users(ctx context.Context) []string {
	var all []string
	have, _, err := Read(ctx, b.DB, b.Reader)
	if err == nil {
		all, err = pgquery.Texts(ctx, b.DB, swapUsersSQL, b.InUse, pgarray.Of(b.tables(have)...))
	}
	if err != nil {
		b.Options.Logger.DebugContext(ctx, "the users of the tables are unknown", "error", err)
	}
	return all
}

// register records that the new tables are in use, at the place of the build.
func (b *Build) register(ctx context.Context, tx pgx.Tx, tables string) error {
	_, err := tx.Exec(ctx, swapRegistrySQL, b.Reader, int64(b.Mark.Version), b.Mark.Shape, tables, number(b.Parks),
		b.Mark.Done)
	if err != nil {
		return err
	}
	mark, err := b.Target.Swap(ctx, tx)
	if err != nil {
		return err
	}
	if err := feed.Take(ctx, tx, b.Reader, Builder(b.Reader), mark); err != nil {
		return err
	}
	return feed.Forget(ctx, tx, Builder(b.Reader))
}

// explain returns an error of the replacement with its cure.
func (b *Build) explain(err error) error {
	const dependentObjects = "2BP01"
	const duplicateSchema = "42P06"
	const invalidTableDefinition, invalidObject = "42P16", "42P17"
	var pg *pgconn.PgError
	switch {
	case !errors.As(err, &pg):
	case pg.Code == dependentObjects:
		return &TablesError{
			Of: b.Name, Tables: []string{"tables in use"}, Reason: pg.Message + ": " + pg.Detail,
			Cure: "drop the objects that depend on them, and make them again after the rebuild",
		}
	case pg.Code == duplicateSchema:
		return &TablesError{
			Of: b.Name, Tables: []string{"schema " + b.Schema + "_old"}, Reason: pg.Message,
			Cure: "drop it: no rebuild has made it",
		}
	case pg.Code == invalidTableDefinition, pg.Code == invalidObject, pgerr.IsNotMigrated(err):
		return &TablesError{
			Of: b.Name, Tables: []string{"a view or function of the tables in use"}, Reason: err.Error(),
			Cure: "drop it, and make it again after the rebuild",
		}
	case pgerr.Is(err, pgerr.InsufficientPrivilege):
		return &TablesError{
			Of: b.Name, Tables: []string{"tables in use"}, Reason: err.Error(),
			Cure: "rebuild as the owner of the tables and of the views that use them",
		}
	}
	return pgerr.Explain("replace the tables", err)
}
