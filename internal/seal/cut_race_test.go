package seal_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// beforeStatement calls do before the first execution of a statement.
type beforeStatement struct {
	sql string
	do  func()
}

func (b *beforeStatement) TraceQueryStart(
	ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData,
) context.Context {
	if d.SQL == b.sql && b.do != nil {
		do := b.do
		b.do = nil
		do()
	}
	return ctx
}

func (*beforeStatement) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Each event is read with its leaf even if the archive removes it and cuts the seal between the statements.
func TestReadWhileTheSealIsCut(t *testing.T) {
	lateKey := ledgertest.Key(t, "coupon.send/late")
	readRange := func(f *fixture, db *pgxpool.Pool) ([]seal.Sealed, error) {
		return seal.ReadRange(f.t.Context(), db, 0, 1_000_000, nil, 2000)
	}
	readTasks := func(f *fixture, db *pgxpool.Pool) ([]seal.Sealed, error) {
		return seal.ReadTasks(f.t.Context(), db, []ledger.Key{lateKey, ledgertest.Key(f.t, "coupon.send/1")})
	}
	for name, test := range map[string]struct {
		before string // a statement
		read   func(*fixture, *pgxpool.Pool) ([]seal.Sealed, error)
		want   int // events
	}{
		"a range before its batches":      {before: seal.SaltsSQL, read: readRange, want: 20},
		"a range before its late batches": {before: seal.SaltsLateSQL, read: readRange, want: 20},
		"tasks":                           {before: seal.SaltsSQL, read: readTasks, want: 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			late, err := f.app.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ledgertest.Enqueue(t, late, lateKey, `{}`)
			f.finish(1, 3)
			f.seal()
			if err := late.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.seal()
			f.fill(10)
			f.seal()
			if n := f.count("select count(*) from taskledger.seal s where s.is_late"); n != 1 {
				t.Fatalf("%d late batches", n)
			}
			config := f.reader.Config()
			config.ConnConfig.Tracer = &beforeStatement{test.before, func() {
				f.forge(`delete from taskledger.event where kind = 'coupon.send'`)
				ledgertest.ExecAsOwner(t, f.app, `
					select taskledger_internal.cut_seal(s.batch, s.first_leaf + cardinality(s.positions), '', '/to',
					                                    'x', 'y')
					  from taskledger.seal s where s.is_late`)
			}}
			db, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(db.Close)
			events, err := test.read(f, db)
			if err != nil {
				t.Fatal(err)
			}
			if left := f.count("select count(*) from taskledger.seal s where s.is_late"); left > 0 {
				t.Fatalf("%d late batches are left", left)
			}
			if len(events) != test.want {
				t.Errorf("%d events, want %d", len(events), test.want)
			}
			var without []string
			for _, e := range events {
				if e.Leaf == nil {
					without = append(without, e.Key.String())
				}
			}
			if len(without) > 0 {
				t.Errorf("without a leaf: %s", strings.Join(without, ", "))
			}
		})
	}
}
