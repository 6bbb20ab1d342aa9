package outbox

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/rebuild"
)

var (
	//go:embed sql/verify_query.sql
	verifyQuerySQL string
)

// verifyTables builds the tables of a subscriber a second time, from the events in the tables in use, and compares
// both. It is exact while writers and the subscriber work, and stops nothing. Its memory does not grow with the ledger.
// The transaction in which it reads the tables in use is open until the end. If several calls run at a time, one works
// and the others return an error.
//
// Other errors: invalid fields of s, [*HandleError], [*VersionError], [*TablesError], [subscribers.ErrNoTables],
// [ErrUnknownSubscriber], [ledger.ErrNotMigrated].
func verifyTables(ctx context.Context, s Subscription, o *rebuild.Options) (rebuild.Report, error) {
	s, err := s.withDefaults()
	if err != nil {
		return rebuild.Report{}, err
	}
	reader, _, err := registeredTables(ctx, s)
	if err != nil {
		return rebuild.Report{}, err
	}
	if err := s.checkArchive(ctx); err != nil {
		return rebuild.Report{}, err
	}
	v := verifier{
		Subscription: s, live: reader, options: o.WithDefaults(), schema: "taskledger_verify_" + s.Tables.Schema,
		reader: "verify/" + reader,
	}
	err = v.run(ctx)
	return v.report, pgerr.Explain("verify subscriber "+s.Name, err)
}

// verifier is one call of [verifyTables].
type verifier struct {
	Subscription

	live    string // the reader of the subscriber
	tx      pgx.Tx // sees the tables in use, and their place
	options rebuild.Options
	schema  string // of the other tables
	reader  string
	report  rebuild.Report
}

// run verifies in the transaction that claims the cursor of verifications: it ends with the process.
func (v *verifier) run(ctx context.Context) error {
	if _, err := v.open(ctx, v.claimed()); err != nil { // so that there is a row to claim
		return err
	}
	err := pgx.BeginTxFunc(ctx, v.DB, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
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

// claim returns [feed.ErrSuperseded] if another verification of the subscriber works.
func (v *verifier) claim(ctx context.Context, tx pgx.Tx) error {
	isOwn, err := feed.Claim(ctx, tx, v.claimed())
	if err == nil && !isOwn {
		err = fmt.Errorf("another verification is under way: %w", feed.ErrSuperseded)
	}
	return err
}

func (v *verifier) verify(ctx context.Context) error {
	have, found, err := rebuild.Read(ctx, v.tx, v.live)
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("subscriber %s: %w", v.Name, ErrUnknownSubscriber)
	case have.Version != v.Tables.Version || have.Shape != v.Tables.shape():
		return &VersionError{Of: "subscriber " + v.Name, Tables: have.Version, Program: v.Tables.Version}
	}
	if err := feed.CheckOrigin(ctx, v.tx, v.live); err != nil {
		return err
	}
	to, found, err := feed.PlaceOf(ctx, v.tx, v.live)
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
func (v *verifier) begin(ctx context.Context) (*feed.Feed, error) {
	if _, err := rebuild.CheckSchema(ctx, v.DB, "subscriber "+v.Name, v.schema); err != nil {
		return nil, err
	}
	f, err := v.open(ctx, v.reader)
	if err != nil {
		return nil, err
	}
	err = pgx.BeginTxFunc(ctx, v.DB, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := f.Restart(ctx, tx, nil); err != nil {
			return err
		}
		if err := v.drop(ctx, tx); err != nil {
			return err
		}
		_, err := rebuild.MakeTables(ctx, tx, "subscriber "+v.Name, v.schema, v.Tables.DDL)
		return err
	})
	return f, err
}

// drop removes the other tables of an earlier verification, and the events it has parked.
func (v *verifier) drop(ctx context.Context, tx pgx.Tx) error {
	if err := rebuild.DropSchema(ctx, tx, v.schema); err != nil {
		return err
	}
	return removeParked(ctx, tx, v.reader, nil)
}

// claimed returns the name of the cursor that the verification at work has locked. It never moves.
func (v *verifier) claimed() string { return "verifying/" + v.live }

func (v *verifier) open(ctx context.Context, reader string) (*feed.Feed, error) {
	return feed.Open(ctx, v.DB, reader, &feed.Options{
		PageSize: v.options.PageSize, AuditEvery: -1, Archive: v.Archive,
	})
}

// end removes the other tables, unless another verification has begun.
func (v *verifier) end(ctx context.Context) {
	err := pgx.BeginFunc(ctx, v.DB, func(tx pgx.Tx) error {
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
func (v *verifier) apply(ctx context.Context, f *feed.Feed, to feed.Place) error {
	h := &handling{
		Subscription: v.Subscription, schema: v.schema, parkedAs: v.reader, reader: v.live, log: v.options.Logger,
	}
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
		if err := h.transact(ctx, v.DB, advance, h.wanted(page.Events)); err != nil {
			return err
		}
		v.report.Events += int64(len(page.Events))
		v.options.Progress(min(v.report.Events, total), total)
	}
}

func (v *verifier) compareTables(ctx context.Context, tables []string) error {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return pgx.BeginTxFunc(ctx, v.DB, options, func(other pgx.Tx) error {
		for _, table := range tables {
			if err := v.compareTable(ctx, other, table); err != nil {
				return err
			}
		}
		return nil
	})
}

// compareTable compares the rows of a table in use with the rows of the other table, side by side in the order of keys.
func (v *verifier) compareTable(ctx context.Context, other pgx.Tx, table string) error {
	have, err := openRows(ctx, v.tx, v.Tables.Schema, table)
	if errors.Is(err, errNoTable) {
		v.report.Compare("table "+table, "missing", "exists")
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
			v.report.Compare(subject(have.key), have.row, "")
			have.taken = true
		case !hasHave || want.key < have.key:
			v.report.Compare(subject(want.key), "", want.row)
			want.taken = true
		default:
			v.report.Compare(subject(have.key), have.row, want.row)
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
