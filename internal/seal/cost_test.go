package seal_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	plantest.Prepare(t, ledgertest.URL(t, "archiver"), nil)
}

// No statement of a sealer or of a proof reads more blocks in a seal that has twelve times the batches, a third of them
// of late events. A new level of an index takes a block for each look-up.
func TestCostDoesNotGrow(t *testing.T) {
	f := newFixture(t)
	f.finish(1, 1)
	statements := map[string]struct {
		sql  string
		args []any
		more int
	}{
		"newest":   {sql: seal.NewestSQL, more: 2},
		"hashes":   {sql: seal.HashesSQL, args: []any{"{7,63,63}", "{-1,0,2}"}, more: 6},
		"unsealed": {sql: seal.UnsealedSQL, args: []any{"{1,2,30}"}, more: 24},
		"range":    {sql: seal.RangeSQL, args: []any{int64(1), int64(1) << 40, "{}", int64(10)}, more: 12},
		"leaves":   {sql: seal.LeavesFromSQL, args: []any{int64(7), int64(2)}, more: 12},
		"salts":    {sql: seal.SaltsSQL, args: []any{"{1,2,30}"}, more: 12},
		"late":     {sql: seal.SaltsLateSQL, args: []any{"{1,2,30}"}, more: 24},
		"events":   {sql: seal.EventsSQL, args: []any{"{1,2,30}"}, more: 6},
		"task":     {sql: seal.TaskSQL, args: []any{"coupon.send", "1", int64(0), int64(10)}, more: 30},
		"inserted": {sql: seal.InsertedSQL, args: []any{"{1,2,3}"}, more: 30},
		"unplaced": {sql: seal.UnplacedSQL, args: []any{int64(100)}, more: 6},
	}
	measure := func() map[string]int {
		f.forge("vacuum analyze taskledger.seal, taskledger.event, taskledger.cursor")
		blocks := make(map[string]int)
		for name, s := range statements {
			blocks[name] = plantest.Blocks(t, f.forger, nil, s.sql, s.args...)
		}
		return blocks
	}
	grow := func(rounds int) {
		for range rounds {
			tx := begin(t, f.app)
			ledgertest.Enqueue(t, tx, ledgertest.Key(t, fmt.Sprintf("coupon.send/late-%d",
				f.count("select count(*) from taskledger.event"))), `{}`)
			f.fill(60)
			f.seal()
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.seal()
		}
	}
	grow(8)
	small := measure()
	grow(100)
	f.fill(30_000)
	f.seal()
	if late := f.count("select count(*) from taskledger.seal where is_late"); late < 100 {
		t.Fatalf("%d batches of late events", late)
	}
	large := measure()
	rows := f.count("select count(*) from taskledger.cursor where reader = 'seal'")
	if rows > 140 { // 100, and the last call's
		t.Errorf("the cursor of the seal has %d rows: old ones are not removed", rows)
	}
	f.readAll(f.newest())
	for name, s := range statements {
		t.Logf("%s: %d blocks, then %d", name, small[name], large[name])
		if large[name] > small[name]+s.more {
			t.Errorf("%s reads %d blocks, and %d when the seal is larger", name, small[name], large[name])
		}
	}
}

// A page of an export reads its own events only, in a table that was never analyzed: with an estimate of few rows,
// PostgreSQL would read and sort the whole range for each page.
func TestRangeNeedsNoStatistics(t *testing.T) {
	f := newFixture(t)
	f.fill(20_000)
	tx := begin(t, f.reader)
	for _, sql := range []string{"set local plan_cache_mode = force_custom_plan", "prepare page as " + seal.RangeSQL} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := tx.Query(t.Context(), "explain execute page ('1', '1099511627776', '{}', '100')")
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	plan := strings.Join(lines, "\n")
	if err != nil || strings.Contains(plan, "Sort") || !strings.Contains(plan, "event_position_key") {
		t.Errorf("%v\n%s", err, plan)
	}
}

// Whatever the statistics are, no statement of a sealer, a verification or a proof is compiled.
func TestNoPlanIsCompiled(t *testing.T) {
	f := newFixture(t)
	plantest.Enlarge(t, f.forger)
	f.forger = plantest.Pool(t, f.forger, "")
	f.finish(1, 20)
	f.archiver, f.reader = f.forger, f.forger
	kept := f.seal().Checkpoint
	f.finish(21, 25)
	f.seal()
	f.expect([]seal.Checkpoint{kept})
	f.prove("coupon.send/17", kept)
}

// Every statement works in every query mode of pgx, with settings of a role that change the texts of values.
func TestQueryModes(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			config := f.archiver.Config()
			config.ConnConfig.DefaultQueryExecMode = mode
			for name, value := range map[string]string{
				"bytea_output": "escape", "DateStyle": "German", "timezone": "Asia/Kathmandu", "array_nulls": "off",
				"default_transaction_isolation": "serializable", "synchronous_commit": "off",
			} {
				config.ConnConfig.RuntimeParams[name] = value
			}
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			f.archiver, f.reader = pool, pool
			f.finish(1, 3)
			tx := begin(t, f.app)
			ledgertest.Enqueue(t, tx, ledgertest.Key(t, "coupon.send/ü \"'\\late"), `{"x": "ü"}`)
			f.finish(4, 30)
			kept := f.seal().Checkpoint
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			last := f.seal().Checkpoint
			f.expect([]seal.Checkpoint{kept, last})
			f.prove("coupon.send/17", kept)
			f.prove("coupon.send/ü \"'\\late", last)
			f.readAll(last)
		})
	}
}

// readAll compares the events of a tree with its leaves, as an export reads and writes both.
func (f *fixture) readAll(c seal.Checkpoint) {
	f.t.Helper()
	dir := seal.Directory(f.t.TempDir())
	if err := dir.WriteTiles(f.t.Context(), f.reader, seal.Archive{}, c); err != nil {
		f.t.Fatal(err)
	}
	hashes := seal.Log{Fetch: dir.Fetch}.Hashes(f.t.Context(), c)
	for from := ledger.Position(1); ; {
		events, err := seal.ReadRange(f.t.Context(), f.reader, from, 1<<40, nil, 700)
		if err != nil {
			f.t.Fatal(err)
		}
		if len(events) == 0 {
			return
		}
		var indexes []int64
		for _, e := range events {
			if e.Leaf == nil {
				f.t.Fatalf("position %d has no leaf", e.Position)
			}
			indexes = append(indexes, tlog.StoredHashIndex(0, *e.Leaf))
		}
		leaves, err := hashes.ReadHashes(indexes)
		if err != nil {
			f.t.Fatal(err)
		}
		for i, e := range events {
			if hash, err := e.LeafHash(); err != nil || hash != leaves[i] {
				f.t.Fatalf("position %d, leaf %d: %v", e.Position, *e.Leaf, err)
			}
		}
		from = events[len(events)-1].Position + 1
	}
}

// begin returns a transaction that is rolled back at the end of the test.
func begin(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(t.Context()) })
	return tx
}
