package seal_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// cuttingDB cuts the seal before a statement that reads late batches.
type cuttingDB struct {
	ledger.DB
	cut func()
}

func (d cuttingDB) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if sql == seal.SaltsLateSQL {
		d.cut()
	}
	return d.DB.Query(ctx, sql, args...)
}

// Late events have their leaves even if the archive cuts the seal while they are read.
func TestReadWhileTheSealIsCut(t *testing.T) {
	f := newFixture(t)
	late, err := f.app.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ledgertest.Enqueue(t, late, ledgertest.Key(t, "coupon.send/late"), `{}`)
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
	events, err := seal.ReadRange(t.Context(), f.reader, 0, 1_000_000, nil, 2000)
	if err != nil {
		t.Fatal(err)
	}
	cuts := 0
	cut := func() {
		cuts++
		ledgertest.ExecAsOwner(t, f.app, `
			select taskledger_internal.cut_seal(s.batch, s.first_leaf + cardinality(s.positions), '', '/to', 'x', 'y')
			  from taskledger.seal s where s.is_late`)
	}
	if err := seal.AddLeaves(t.Context(), cuttingDB{f.reader, cut}, events); err != nil {
		t.Fatal(err)
	}
	if left := f.count("select count(*) from taskledger.seal s where s.is_late"); cuts != 1 || left > 0 {
		t.Fatalf("%d cuts, %d late batches are left", cuts, left)
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
}
