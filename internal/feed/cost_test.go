package feed_test

import (
	"testing"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// fill inserts n events of tasks named from first on, in db's transaction. db is the owner, to whom no policy
// applies: a role takes several times as long.
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
	t.Parallel()
	f := newFeedFixture(t)
	fill(f, f.owner, 1, 3_000)
	small := []any{"3:3:", int64(0), "3", edgeNow(f)[0], int64(3_000)}

	late := f.beginOn(f.owner)
	fill(f, late, 1_000_001, 20_000)
	lower := edgeNow(f)
	f.commit(late)
	fill(f, f.owner, 10_001, 60_000)
	upper := edgeNow(f)
	tail := []any{"3:3:", int64(23_000), "3", upper[0], upper[1]}
	lateArm := []any{lower[0], lower[1], lower[2], upper[0], lower[1]}

	for _, statistics := range []string{"vacuum taskledger.event", "vacuum analyze taskledger.event"} {
		t.Run(statistics, func(t *testing.T) {
			f.exec(f.owner, statistics)
			page := func(window []any, after int64) int {
				return blocks(f, feed.PageSQL, append(append([]any{}, window...), after, int64(1_001)))
			}
			want := page(small, 1_500)
			for name, got := range map[string]int{
				"a tail of 60,000, at its begin":      page(tail, 23_000),
				"a tail of 60,000, in its middle":     page(tail, 50_000),
				"a late arm of 20,000, at its begin":  page(lateArm, 0),
				"a late arm of 20,000, in its middle": page(lateArm, 10_000),
			} {
				t.Logf("%s: %d blocks; in a window of 3,000: %d", name, got, want)
				if got > want*12/10+2 { // an index may be a level deeper
					t.Errorf("%s: a page touches %d blocks, in a window of 3,000 it touches %d", name, got, want)
				}
			}
		})
	}
}

// A page costs the same however many large transactions were unfinished when its window began, whether their events
// lie one transaction after the other or mixed: each transaction adds a few descents of an index, and no events. A
// step of the audit, which counts the same events, costs the same as well.
func TestManyLateTransactionsDoNotMakeAPageDear(t *testing.T) {
	t.Parallel()
	const transactions, events, pageSize = 30, 2_000, 1_001
	for name, piece := range map[string]int{"one after the other": events, "mixed": 50} {
		t.Run(name, func(t *testing.T) {
			f := newFeedFixture(t)
			late := make([]ledger.DB, transactions)
			commits := make([]func(), transactions)
			for i := range late {
				tx, err := f.connect(ledgertest.Database, ledgertest.Owner).Begin(f.ctx)
				if err != nil {
					t.Fatal(err)
				}
				fill(f, tx, i, 1) // draws the transaction ID
				late[i], commits[i] = tx, func() { f.commit(tx) }
			}
			for done := 0; done < events; done += piece {
				for i := range late { // the last transaction uses the lowest positions
					fill(f, late[transactions-1-i], 1_000_000*(i+1)+done, piece)
				}
			}
			edgeNow(f) // completes a transaction, so that the snapshot names those below it as running
			lower := edgeNow(f)
			for _, commit := range commits {
				commit()
			}
			upper := edgeNow(f)
			small := []any{"3:3:", int64(0), "3", upper[0], lower[1]}
			lateArm := []any{lower[0], lower[1], lower[2], upper[0], lower[1]}

			f.exec(f.owner, "vacuum analyze taskledger.event")
			for _, after := range []int64{0, 7_000, 25_000, 59_500} {
				page := func(window []any) int {
					return blocks(f, feed.PageSQL, append(append([]any{}, window...), after, int64(pageSize)))
				}
				got, want := page(lateArm), page(small)
				t.Logf("after %d: %d blocks; in one transaction: %d", after, got, want)
				if limit := want + 12*transactions; got > limit {
					t.Errorf("after %d: a page touches %d blocks, want at most %d", after, got, limit)
				}
			}

			const entries = 2_000
			step := func(since string) int {
				return blocks(f, feed.AuditSQL, []any{since, upper[0], "0", int64(0), int64(entries)})
			}
			got, want := step(lower[0].(string)), step("3:3:")
			t.Logf("a step of the audit: %d blocks; in one transaction: %d", got, want)
			if limit := 2*want + 4*transactions; got > limit {
				t.Errorf("a step of the audit touches %d blocks, want at most %d", got, limit)
			}
		})
	}
}

// edgeNow returns the edge of a window opened now: snapshot, top, bound.
func edgeNow(f *feedFixture) []any {
	f.t.Helper()
	var until, bound string
	var top int64
	err := f.pool.QueryRow(f.ctx, "select w.until, w.top, w.bound from ("+feed.WindowSQL+
		") w(is_standby, has_xid, top, incarnation, until, bound)", "3:3:", int64(-1), "3", 0, 0).
		Scan(&until, &top, &bound)
	if err != nil {
		f.t.Fatal(err)
	}
	return []any{until, top, bound}
}
