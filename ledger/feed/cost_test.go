package feed_test

import (
	"testing"

	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
)

// fill inserts n events of tasks named from first on, in db's transaction.
func fill(f *feedFixture, db ledger.DB, first, n int) {
	f.t.Helper()
	f.exec(db, `
		with tx as materialized (select pg_current_xact_id() as xid)
		insert into taskledger.event (xid, version, attempt, shard, type, kind, biz_id, data)
		select tx.xid, 1, 0, 0, 'enqueued', 'bulk', g::text, '{"n":1}'
		  from tx, generate_series($1::integer, $2::integer) g`,
		first, first+n-1)
}

// blocks returns the number of blocks that a statement touches.
func blocks(f *feedFixture, sql string, args []any) int {
	f.t.Helper()
	return plantest.Blocks(f.t, f.pool, nil, sql, args...)
}

// A page costs the same in a small window and in a large one, in its tail and in its late arm, with or
// without statistics. The test compares the number of blocks, not time.
func TestFeedPageCostDoesNotGrow(t *testing.T) {
	f := newFeedFixture(t)
	fill(f, f.pool, 1, 3_000)
	small := []any{"3:3:", int64(0), "3", edgeNow(f)[0], int64(3_000)}

	late := f.begin()
	fill(f, late, 1_000_001, 100_000)
	lower := edgeNow(f)
	f.commit(late)
	fill(f, f.pool, 10_001, 300_000)
	upper := edgeNow(f)
	tail := []any{"3:3:", int64(103_000), "3", upper[0], upper[1]}
	lateArm := []any{lower[0], lower[1], lower[2], upper[0], lower[1]}

	for _, statistics := range []string{"vacuum taskledger.event", "vacuum analyze taskledger.event"} {
		t.Run(statistics, func(t *testing.T) {
			f.exec(f.pool, statistics)
			page := func(window []any, after int64) int {
				return blocks(f, feed.PageSQL, append(append([]any{}, window...), after, int64(1_001)))
			}
			want := page(small, 1_500)
			for name, got := range map[string]int{
				"a tail of 300,000, at its begin":      page(tail, 103_000),
				"a tail of 300,000, in its middle":     page(tail, 250_000),
				"a late arm of 100,000, at its begin":  page(lateArm, 0),
				"a late arm of 100,000, in its middle": page(lateArm, 50_000),
			} {
				t.Logf("%s: %d blocks; in a window of 3,000: %d", name, got, want)
				if got > want*12/10 {
					t.Errorf("%s: a page touches %d blocks, in a window of 3,000 it touches %d", name, got, want)
				}
			}
		})
	}
}

// edgeNow returns the edge of a window opened now: snapshot, top, bound.
func edgeNow(f *feedFixture) []any {
	f.t.Helper()
	var standby, hasXID bool
	var incarnation, until string
	var top int64
	var bound *string
	err := f.pool.QueryRow(f.ctx, feed.WindowSQL, "3:3:", int64(-1), "3").
		Scan(&standby, &hasXID, &incarnation, &until, &top, &bound)
	if err != nil {
		f.t.Fatal(err)
	}
	return []any{until, top, *bound}
}
