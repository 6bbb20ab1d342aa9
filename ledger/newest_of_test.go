package ledger_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// NewestOf, FirstEvent, VersionAsOf and LoadAsOf agree with the whole history, wherever its events are.
func TestPartsOfAHistory(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range 60 {
		k := ledger.Key{Kind: "part", BizID: ledger.BizID(fmt.Sprint(i))}
		insertHistory(t, pool, randomHistory(random, k, 1+random.IntN(160), i%2 == 0))
		history, err := ledger.History(t.Context(), pool, k)
		if err != nil {
			t.Fatal(err)
		}
		if first, err := ledger.ArgsEvent(t.Context(), pool, k); err != nil || first.Version != 1 {
			t.Fatalf("first event %v, %v", first, err)
		}
		o := ledger.NewestOptions{Limit: 1 + random.IntN(80), Before: ledger.Version(random.IntN(len(history) + 2))}
		if random.IntN(3) > 0 {
			o.Types = []ledger.EventType{ledger.EventFailed, ledger.EventSnoozed, ledger.EventBuried}
			o.Contains = []string{"", "buried at"}[random.IntN(2)]
		}
		var want []ledger.Event
		for _, e := range history {
			if (o.Before == 0 || e.Version < o.Before) && (len(o.Types) == 0 || slices.Contains(o.Types, e.Type)) &&
				strings.Contains(string(e.Data), o.Contains) {
				want = append(want, e)
			}
		}
		want = want[max(0, len(want)-o.Limit):]
		got, err := ledger.NewestOf(t.Context(), pool, k, o)
		if diff := difference.Of(want, got); err != nil || diff != "" {
			t.Fatalf("%+v of %d events: %v (-want +got):\n%s", o, len(history), err, diff)
		}
	}
	none, err := ledger.NewestOf(t.Context(), pool, ledger.Key{Kind: "part", BizID: "absent"},
		ledger.NewestOptions{Limit: 1})
	if err != nil || none != nil {
		t.Errorf("of an unknown task: %v, %v", none, err)
	}
}

// A task as of a moment is the fold of the events before it.
func TestLoadAsOfIsTheFold(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	k := ledger.Key{Kind: "past", BizID: "1"}
	insertHistory(t, pool, randomHistory(rand.New(rand.NewPCG(3, 3)), k, 150, false))
	history, err := ledger.History(t.Context(), pool, k)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 2, 63, 64, 65, 66, 149, 150} {
		moment, err := ledger.MomentOf(t.Context(), pool, history[n-1].Position)
		if err != nil {
			t.Fatal(err)
		}
		version, err := ledger.VersionAsOf(t.Context(), pool, k, moment)
		if err != nil || int(version) != n {
			t.Fatalf("version %d as of event %d, %v", version, n, err)
		}
		want, err := ledger.Fold(history[:n])
		if err != nil {
			t.Fatal(err)
		}
		got, err := ledger.LoadAsOf(t.Context(), pool, k, moment)
		if diff := difference.Of(want, got); err != nil || diff != "" {
			t.Errorf("as of event %d: %v (-fold +load):\n%s", n, err, diff)
		}
	}
}

// insertPoller inserts a running task whose worker has checkpointed and snoozed by turns, and has failed once.
func insertPoller(t *testing.T, pool *pgxpool.Pool, id string, events int) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), `
		insert into taskledger.event (kind, biz_id, version, attempt, shard, type, actor, data)
		select 'poll', $1, i, (i + 2) / 4, 0, (case when i = 1 then 'enqueued' else
		       (array['released', 'started', 'progressed', case i when 200 then 'failed' else 'snoozed' end])
		       [(i - 1) % 4 + 1] end)::taskledger.event_type, 'w',
		       case i % 4 when 3 then '{"checkpoint":1}'::json when 0 then '{"run_at":"2030-01-01T00:00:00Z"}' end
		  from generate_series(1, $2::integer) i`, id, events); err != nil {
		t.Fatal(err)
	}
}

// No statement that reads a part of a task's events reads more of a task with 20,000 events than with 2,000.
func TestPartsOfALongHistory(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	insertPoller(t, pool, "short", 2_002)
	insertPoller(t, pool, "long", 20_002)
	if _, err := pool.Exec(t.Context(), `insert into taskledger.event (kind, biz_id, version, attempt, shard, type)
		select 'poll', 'other-' || i, 1, 0, 0, 'enqueued' from generate_series(1, 10000) i`); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), `select taskledger.heartbeat('sql', '{poll}')`); err != nil {
		t.Fatal(err)
	}
	text := func(file string) string {
		statement, err := os.ReadFile("sql/" + file)
		if err != nil {
			t.Fatal(err)
		}
		return string(statement)
	}
	for _, statistics := range []string{"", "analyze taskledger.event"} {
		if _, err := pool.Exec(t.Context(), statistics); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			name, statement string
			args            []any
		}{
			{name: "first event", statement: text("load.sql"), args: []any{1}},
			{name: "newest events", statement: text("history_end.sql"), args: []any{1 << 30, 200}},
			{name: "newest start", statement: text("newest_of.sql"), args: []any{"{started}", 1 << 30, 1, ""}},
			{
				name: "newest checkpoint", statement: text("newest_of.sql"),
				args: []any{"{progressed}", 1 << 30, 1, `"checkpoint"`},
			},
			{
				name: "failures", statement: text("newest_of.sql"),
				args: []any{"{failed,buried,cancelled,expired,discarded}", 1 << 30, 100, ""},
			},
			{name: "as of", statement: text("version_as_of.sql"), args: []any{"1:1:", "1:1:", 500}},
			{name: "state", statement: text("load_long.sql"), args: []any{1 << 30}},
			{
				name:      "taskledger_internal.failures_of",
				statement: `select * from taskledger_internal.failures_of($1::text, $2::text, 0)`,
			},
			{name: "taskledger.claim", statement: `select * from taskledger.claim($1::text, $2::text, 'sql')`},
		} {
			short := plantest.Blocks(t, pool, nil, c.statement, append([]any{"poll", "short"}, c.args...)...)
			long := plantest.Blocks(t, pool, nil, c.statement, append([]any{"poll", "long"}, c.args...)...)
			t.Logf("%q, %s: %d blocks of 2,000 events, %d of 20,000", statistics, c.name, short, long)
			if long > 2*short {
				t.Errorf("%s reads more of a longer history", c.name)
			}
		}
	}
	if n := plantest.Blocks(t, pool, nil, text("../../internal/operator/sql/snoozed.sql"), 100); n > 100 {
		t.Errorf("without short snoozes the statement reads %d blocks", n)
	}
	if all := plantest.Blocks(t, pool, nil, text("history.sql"), "poll", "long"); all < 2_000 {
		t.Errorf("the whole history has %d blocks: this proves nothing", all)
	}
}
