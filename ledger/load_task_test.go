package ledger_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Load returns the fold of all events of a task, wherever a history of many events contains failures, ends and
// releases.
func TestLoadIsTheFold(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range 120 {
		k := ledger.Key{Kind: "long", BizID: ledger.BizID(fmt.Sprint(i))}
		events := randomHistory(random, k, 60+random.IntN(100), i%2 == 0)
		insertHistory(t, pool, events)
		history, err := ledger.History(t.Context(), pool, k)
		if err != nil {
			t.Fatal(err)
		}
		want, err := ledger.Fold(history)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ledger.Load(t.Context(), pool, k)
		if err != nil {
			t.Fatal(err)
		}
		if diff := difference.Of(want, got); diff != "" {
			t.Fatalf("after %d events (-fold +load):\n%s", len(history), diff)
		}
	}
}

// randomHistory returns events of a task that fold. In a rare history, events other than started and progressed are
// rare.
func randomHistory(random *rand.Rand, k ledger.Key, n int, rare bool) []ledger.Event {
	task := ledger.Task{}
	events := make([]ledger.Event, 0, n)
	table := ledger.Transitions()
	for len(events) < n {
		e := ledger.Event{Key: k, Version: task.Version + 1, Type: table[random.IntN(len(table))].Type}
		if e.Type == ledger.EventSucceeded && len(events) < n-1 {
			continue // nothing follows it
		}
		isUsual := e.Type == ledger.EventStarted || e.Type == ledger.EventProgressed
		if rare && task.State == ledger.StateRunning && !isUsual && random.IntN(30) > 0 {
			continue
		}
		switch e.Type {
		case ledger.EventFailed:
			e.Data = fmt.Appendf(nil, `{"error":{"message":"failure %d"},"retry_at":"2030-01-01T00:00:%02dZ"}`,
				e.Version, random.IntN(60))
		case ledger.EventBuried:
			e.Data = fmt.Appendf(nil, `{"reason":"buried at %d"%s}`, e.Version,
				[]string{"", `,"error":{"message":"broken"}`}[random.IntN(2)])
		case ledger.EventCancelled, ledger.EventExpired, ledger.EventDiscarded:
			e.Data = fmt.Appendf(nil, `{"reason":"ended at %d"}`, e.Version)
		case ledger.EventProgressed:
			e.Data = fmt.Appendf(nil, `{%q:%d}`, []string{"checkpoint", "progress"}[random.IntN(2)], e.Version)
		case ledger.EventSucceeded:
			e.Data = [][]byte{nil, []byte(`[]`), fmt.Appendf(nil, `{"result":%d}`, e.Version)}[random.IntN(3)]
		}
		for _, e.Attempt = range []ledger.Attempt{task.Attempt, task.Attempt + 1} {
			if next, err := task.Apply(e); err == nil {
				task, events = next, append(events, e)
				break
			}
		}
	}
	return events
}

// insertHistory inserts the events of a task as the owner.
func insertHistory(t *testing.T, pool *pgxpool.Pool, events []ledger.Event) {
	t.Helper()
	var types, data []string
	var attempts []int32
	for _, e := range events {
		types, attempts = append(types, string(e.Type)), append(attempts, int32(e.Attempt))
		data = append(data, string(e.Data))
	}
	if _, err := pool.Exec(t.Context(), `
		insert into taskledger.event (kind, biz_id, version, attempt, shard, type, actor, data)
		select $1, $2, i, attempt, 7, type, 'actor ' || i, nullif(data, '')::json
		  from unnest($3::taskledger.event_type[], $4::integer[], $5::text[]) with ordinality e(type, attempt, data, i)
		 order by i`, events[0].Kind, events[0].BizID, types, attempts, data); err != nil {
		t.Fatal(err)
	}
}

// Load reads as few blocks of a task with 100,000 events as of one with 1,000, among tasks of few events.
func TestLoadOfALongHistory(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	const loops = `
		insert into taskledger.event (kind, biz_id, version, attempt, shard, type, actor, data)
		select 'poll', $1, i, i / 2, 0, (case when i = 1 then 'enqueued' when i = 50000 then 'failed' when i % 2 = 0
		       then 'snoozed' else 'released' end)::taskledger.event_type, 'w',
		       case when i % 2 = 0 and i <> 50000 then '{"run_at":"2030-01-01T00:00:00Z"}'::json end
		  from generate_series(1, $2::integer) i`
	for id, events := range map[string]int{"short": 1_000, "long": 100_000} {
		if _, err := pool.Exec(t.Context(), loops, id, events); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pool.Exec(t.Context(), `insert into taskledger.event (kind, biz_id, version, attempt, shard, type)
		select 'poll', 'other-' || i, 1, 0, 0, 'enqueued' from generate_series(1, 10000) i`); err != nil {
		t.Fatal(err)
	}
	blocks := func(file, id string, more ...any) int {
		statement, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return plantest.Blocks(t, pool, nil, string(statement), append([]any{"poll", id}, more...)...)
	}
	for _, statistics := range []string{"", "analyze taskledger.event"} {
		if _, err := pool.Exec(t.Context(), statistics); err != nil {
			t.Fatal(err)
		}
		short, long := blocks("sql/load_long.sql", "short", 1<<30), blocks("sql/load_long.sql", "long", 1<<30)
		first := blocks("sql/load.sql", "long", 65)
		t.Logf("%q: blocks of 1,000 events %d, of 100,000 events %d, first events %d", statistics, short, long, first)
		if long > 2*short || first > 300 {
			t.Error("Load reads more of a longer history")
		}
	}
	if all := blocks("sql/history.sql", "long"); all < 10_000 {
		t.Errorf("the whole history has %d blocks: this proves nothing", all)
	}
	task, err := ledger.Load(t.Context(), pool, ledger.Key{Kind: "poll", BizID: "long"})
	if err != nil || task.Version != 100_000 || task.Failures != 1 || task.State != ledger.StateScheduled {
		t.Errorf("%v, %d failures, %v", task, task.Failures, err)
	}
}

// The failures before the release of a dead task do not count, even if it died with the last of the first events.
func TestLoadOfADeadTaskThatWasReleased(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	k := ledger.Key{Kind: "dead", BizID: "1"}
	types := []ledger.EventType{ledger.EventEnqueued}
	for len(types) < 63 {
		types = append(types, ledger.EventFailed, ledger.EventReleased)
	}
	types = append(types, ledger.EventBuried, ledger.EventReleased, ledger.EventFailed)
	events := make([]ledger.Event, len(types))
	for i, eventType := range types {
		events[i] = ledger.Event{Key: k, Type: eventType, Attempt: ledger.Attempt((i + 1) / 2)}
	}
	events[63].Attempt, events[64].Attempt, events[65].Attempt = 31, 31, 32
	insertHistory(t, pool, events)
	if task, err := ledger.Load(t.Context(), pool, k); err != nil || task.Failures != 1 {
		t.Errorf("%v, %d failures, %v", task, task.Failures, err)
	}
}

// Load of a task with about as many events as it reads at once.
func TestLoadAtTheLimit(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	random := rand.New(rand.NewPCG(1, 1))
	for n := 62; n < 68; n++ {
		k := ledger.Key{Kind: "limit", BizID: ledger.BizID(fmt.Sprint(n))}
		events := randomHistory(random, k, n, false)
		insertHistory(t, pool, events)
		if task, err := ledger.Load(t.Context(), pool, k); err != nil || int(task.Version) != n {
			t.Errorf("%d events: %v, %v", n, task, err)
		}
	}
}
