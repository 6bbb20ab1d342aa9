package projector

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/rebuild"
)

var (
	//go:embed sql/verify_query.sql
	verifyQuerySQL string
)

// VerifyProjection builds the tables of a projection a second time, from the events in the tables in use, and compares
// both. It is exact while writers and runners work, and stops nothing. Its memory does not grow with the ledger. The
// transaction in which it reads the tables in use is open until the end. If several calls run at a time, one works and
// the others return [feed.ErrSuperseded].
//
// Other errors: [*ApplyError], [*VersionError], [*TablesError], [ErrUnknownProjection], [ledger.ErrNotMigrated].
func VerifyProjection(ctx context.Context, db *pgxpool.Pool, p Projection, o *RebuildOptions) (Report, error) {
	if err := p.Validate(); err != nil {
		return Report{}, err
	}
	v := ownVerifier{
		Projection: p, db: db, options: o.WithDefaults(), schema: "taskledger_verify_" + p.Name,
		reader: reader(p.Name + "+verify"),
	}
	err := v.run(ctx)
	return v.report, pgerr.Explain("verify projection "+p.Name, err)
}

// ownVerifier is one call of [VerifyProjection].
type ownVerifier struct {
	Projection

	db      *pgxpool.Pool
	tx      pgx.Tx // sees the tables in use, and their place
	options RebuildOptions
	schema  string // of the other tables
	reader  string
	report  Report
}

// run verifies in the transaction that claims the cursor of verifications: it ends with the process.
func (v *ownVerifier) run(ctx context.Context) error {
	if _, err := v.open(ctx, v.claimed()); err != nil { // so that there is a row to claim
		return err
	}
	err := pgx.BeginTxFunc(ctx, v.db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		if err := v.claim(ctx, tx); err != nil {
			return err
		}
		v.tx = tx
		return v.verify(ctx)
	})
	if !errors.Is(err, feed.ErrSuperseded) {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
		defer cancel()
		v.end(ending)
	}
	return err
}

// claim returns [feed.ErrSuperseded] if another verification of the projection works.
func (v *ownVerifier) claim(ctx context.Context, tx pgx.Tx) error {
	isOwn, err := feed.Claim(ctx, tx, v.claimed())
	if err == nil && !isOwn {
		err = fmt.Errorf("another verification is under way: %w", feed.ErrSuperseded)
	}
	return err
}

func (v *ownVerifier) verify(ctx context.Context) error {
	have, found, err := rebuild.Read(ctx, v.tx, v.Name)
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("projection %q: %w", v.Name, ErrUnknownProjection)
	case have.Version != v.Version || have.Shape != v.shape():
		return &VersionError{Of: v.Name, Tables: have.Version, Program: v.Version}
	}
	if err := feed.CheckOrigin(ctx, v.tx, reader(v.Name)); err != nil {
		return err
	}
	to, found, err := feed.PlaceOf(ctx, v.tx, reader(v.Name))
	if err != nil {
		return err
	}
	if !found { // it has applied nothing
		to = feed.Place{Window: feed.Window{Seen: feed.Beginning()}}
	}
	f, err := v.begin(ctx)
	if err != nil {
		return err
	}
	if err := v.apply(ctx, f, to); err != nil {
		return err
	}
	return v.compareTables(ctx, have.Tables)
}

// begin makes the other tables, which belong to this verification alone.
func (v *ownVerifier) begin(ctx context.Context) (*feed.Feed, error) {
	if _, err := rebuild.CheckSchema(ctx, v.db, v.Name, v.schema); err != nil {
		return nil, err
	}
	f, err := v.open(ctx, v.reader)
	if err != nil {
		return nil, err
	}
	err = pgx.BeginTxFunc(ctx, v.db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := f.Restart(ctx, tx, nil); err != nil {
			return err
		}
		if err := v.drop(ctx, tx); err != nil {
			return err
		}
		_, err := rebuild.MakeTables(ctx, tx, v.Name, v.schema, v.DDL)
		return err
	})
	return f, err
}

// drop removes the other tables of an earlier verification, and the events it has parked.
func (v *ownVerifier) drop(ctx context.Context, tx pgx.Tx) error {
	if err := rebuild.DropSchema(ctx, tx, v.schema); err != nil {
		return err
	}
	return removeParked(ctx, tx, v.Name+"+verify", nil)
}

// claimed returns the name of the cursor that the verification at work has locked. It never moves.
func (v *ownVerifier) claimed() string { return v.reader + "ing" }

func (v *ownVerifier) open(ctx context.Context, reader string) (*feed.Feed, error) {
	return feed.Open(ctx, v.db, reader, &feed.Options{
		PageSize: v.options.PageSize, AuditEvery: -1,
	})
}

// end removes the other tables, unless another verification has begun.
func (v *ownVerifier) end(ctx context.Context) {
	err := pgx.BeginFunc(ctx, v.db, func(tx pgx.Tx) error {
		if isOwn, err := feed.Claim(ctx, tx, v.claimed()); err != nil || !isOwn {
			return err
		}
		if err := v.drop(ctx, tx); err != nil {
			return err
		}
		return errors.Join(feed.Forget(ctx, tx, v.reader), feed.Forget(ctx, tx, v.claimed()))
	})
	if err != nil {
		v.options.Logger.WarnContext(ctx, "the tables of a verification stay; the next one drops them", "error", err)
	}
}

// apply applies the events that the tables in use contain. The cursor row of each page fences off other calls.
func (v *ownVerifier) apply(ctx context.Context, f *feed.Feed, to feed.Place) error {
	t := &ownTables{Projection: v.Projection, schema: v.schema, parkedAs: v.Name + "+verify", db: v.db}
	total, err := rebuild.LastPosition(ctx, v.tx)
	if err != nil {
		return err
	}
	for {
		page, ok, err := f.PollTo(ctx, to)
		if err != nil || !ok {
			return err
		}
		advance := func(tx pgx.Tx) error { return page.Advance(ctx, tx, nil) }
		if err := transact(ctx, v.db, t, advance, page.Events); err != nil {
			return err
		}
		v.report.Events += int64(len(page.Events))
		v.options.Progress(min(v.report.Events, total), total)
	}
}

func (v *ownVerifier) compareTables(ctx context.Context, tables []string) error {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return pgx.BeginTxFunc(ctx, v.db, options, func(other pgx.Tx) error {
		for _, table := range tables {
			if err := v.compareTable(ctx, other, table); err != nil {
				return err
			}
		}
		return nil
	})
}

// compareTable compares the rows of a table in use with the rows of the other table, side by side in the order of keys.
func (v *ownVerifier) compareTable(ctx context.Context, other pgx.Tx, table string) error {
	have, err := openRows(ctx, v.tx, v.Name, table)
	if errors.Is(err, errNoTable) {
		v.report.compare("table "+table, "missing", "exists")
		return nil
	}
	if err != nil {
		return err
	}
	defer have.rows.Close()
	want, err := openRows(ctx, other, v.schema, table)
	if err != nil {
		return err
	}
	defer want.rows.Close()
	subject := func(key string) string { return table + " " + key }
	for {
		hasHave, hasWant := have.next(), want.next()
		if have.err != nil || want.err != nil || !hasHave && !hasWant {
			return errors.Join(have.err, want.err)
		}
		v.report.Rows++
		switch {
		case !hasWant || hasHave && have.key < want.key:
			v.report.compare(subject(have.key), have.row, "")
			have.taken = true
		case !hasHave || want.key < have.key:
			v.report.compare(subject(want.key), "", want.row)
			want.taken = true
		default:
			v.report.compare(subject(have.key), have.row, want.row)
			have.taken, want.taken = true, true
		}
	}
}

var errNoTable = errors.New("the table does not exist")

// rowReader reads the rows of a table in the order of their keys.
type rowReader struct {
	rows         pgx.Rows
	key, row     string
	taken, ended bool
	err          error
}

// openRows reads a table. A row is its JSON, and its key the JSON of the primary key, or else the row.
func openRows(ctx context.Context, tx pgx.Tx, schema, table string) (*rowReader, error) {
	var sql string
	found, err := pgquery.Row(ctx, tx, verifyQuerySQL, []any{schema, table}, &sql)
	if err == nil && !found {
		err = errNoTable
	}
	if err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	return &rowReader{rows: rows, taken: true}, nil
}

// next reads the next row if the last one is taken, and reports whether there is one.
func (r *rowReader) next() bool {
	if r.taken && !r.ended {
		r.taken = false
		if r.ended = !r.rows.Next(); r.ended {
			r.err = r.rows.Err()
		} else if r.err = r.rows.Scan(&r.key, &r.row); r.err != nil {
			r.ended = true
		}
	}
	return !r.ended
}
