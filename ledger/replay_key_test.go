package ledger_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A replay of a prefix returns the events whose keys begin with it, even at the ends of Unicode, from any position on.
func TestReplayOfAPrefix(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "operator")
	for _, id := range append(oddBizIDs, "\uD7FF", "\uE000", "a\U0010ffff", "a\U0010ffffb", "b", "a/") {
		ledgertest.Enqueue(t, pool, ledger.Key{Kind: "k", BizID: id}, "")
		ledgertest.Enqueue(t, pool, ledger.Key{Kind: "k.other", BizID: id}, "")
	}
	var all []ledger.Event
	for e, err := range ledger.Events(t.Context(), pool, ledger.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	prefixes := []string{"k", "k.", "k/", "k/a", "k/a/", "k/\U0010ffff", "k/a\U0010ffff", "k/\uD7FF", "k/%", "none/"}
	for _, prefix := range prefixes {
		for _, after := range []ledger.Position{0, all[len(all)/2].Position} {
			r := ledger.Range{Prefix: prefix, StartAfter: after}
			var want []ledger.Position
			for _, e := range all {
				if r.Matches(e) {
					want = append(want, e.Position)
				}
			}
			if diff := difference.Of(want, replayed(t, pool, r)); diff != "" {
				t.Errorf("prefix %q after %d (-want +got):\n%s", prefix, after, diff)
			}
		}
	}
}

// The events of one task are read without other tasks' events. A prefix with many events is read like the whole range.
func TestReplayOfAPrefixReadsFewBlocks(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	if _, err := pool.Exec(t.Context(), `insert into taskledger.event (kind, biz_id, version, attempt, shard, type)
		select 'k', i, 1, 0, 0, 'enqueued' from generate_series(1, 15000) i`); err != nil {
		t.Fatal(err)
	}
	if n := len(replayed(t, pool, ledger.Range{Prefix: "k/"})); n != 15_000 {
		t.Errorf("%d events of a prefix with many", n)
	}
	for i := range 12 {
		ledgertest.Append(t, pool, ledger.Key{Kind: "k", BizID: "one"}, ledger.EventStarted)
		ledgertest.Enqueue(t, pool, ledger.Key{Kind: "k", BizID: ledger.BizID(fmt.Sprint("other ", i))}, "")
	}
	var top int64
	if err := pool.QueryRow(t.Context(), `select max(position) from taskledger.event`).Scan(&top); err != nil {
		t.Fatal(err)
	}
	var snapshot string
	if err := pool.QueryRow(t.Context(), `select pg_current_snapshot()`).Scan(&snapshot); err != nil {
		t.Fatal(err)
	}
	place := []any{"3:3:", 0, "3", "3:3:", 0, snapshot, snapshot, top, top, 0, 2000, "{}", "{}", "", "k/one"}
	for _, statistics := range []string{"", "analyze taskledger.event"} {
		if _, err := pool.Exec(t.Context(), statistics); err != nil {
			t.Fatal(err)
		}
		for file, args := range map[string][]any{
			"sql/key_events.sql": {"k", "one", "onf", 10_001},
			"sql/replay_key.sql": append(place[:len(place):len(place)], "k", "one", "onf"),
		} {
			statement, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if blocks := plantest.Blocks(t, pool, nil, string(statement), args...); blocks > 120 {
				t.Errorf("%s reads %d blocks, %q", file, blocks, statistics)
			}
		}
	}
}
