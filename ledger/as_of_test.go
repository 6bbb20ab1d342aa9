package ledger_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

var asOfTasks = flag.Int("as-of-tasks", 20_000, "number of tasks in TestStatesOfManyTasks")

// The states of a kind as of a moment equal the states of its tasks, loaded one by one as of that moment.
func TestStatesAsOf(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "operator")
	w := watch(t, pool)
	// Each type of event is the last one of a task at some time.
	paths := [][]ledger.EventType{
		{"started", "succeeded"}, {"started", "progressed", "failed"}, {"started", "interrupted"},
		{"started", "snoozed"}, {"buried", "released"}, {"cancelled"}, {"expired"}, {"discarded"}, {"scheduled"},
	}
	var keys []ledger.Key
	var moments []ledger.Moment
	for step := range 4 {
		for i, path := range paths {
			k := ledger.Key{Kind: ledger.Kind(fmt.Sprintf("k%d", i%2)), BizID: ledger.BizID(fmt.Sprint(i))}
			switch {
			case step == 0:
				keys = append(keys, k)
				ledgertest.Enqueue(t, pool, k, "")
			case step <= len(path):
				ledgertest.Append(t, pool, k, path[step-1])
			}
			events, err := ledger.History(t.Context(), pool, k)
			if err != nil {
				t.Fatal(err)
			}
			of, err := ledger.MomentOf(t.Context(), pool, events[len(events)-1].Position)
			if err != nil {
				t.Fatal(err)
			}
			moments = append(moments, of)
		}
		w.poll()
		moments = append(moments, w.at(w.now()))
	}
	moments = append(moments, ledger.Moment{})
	slices.SortFunc(keys, ledger.Key.Compare)
	for _, m := range moments {
		for _, kind := range []ledger.Kind{"", "k0", "k1", "absent"} {
			var want []string
			counts := make(map[ledger.StateCount]int64)
			for _, k := range keys {
				task, err := ledger.LoadAsOf(t.Context(), pool, k, m)
				if err == nil && (kind == "" || kind == k.Kind) {
					want = append(want, fmt.Sprint(k, task.Version, task.State))
					counts[ledger.StateCount{Kind: k.Kind, State: task.State}]++
				}
			}
			for _, limit := range []int{0, 2} {
				var got []string
				tasks := ledger.PastFilter{Moment: m, Kind: kind, Limit: limit}
				for more := true; more; {
					more = false
					for e, err := range ledger.ListAsOf(t.Context(), pool, tasks) {
						if err != nil {
							t.Fatal(err)
						}
						got = append(got, fmt.Sprint(e.Key, e.Version, e.State))
						tasks.StartAfter, more = e.Key, limit > 0
					}
				}
				if diff := difference.Of(want, got); diff != "" {
					t.Errorf("tasks of %q as of %s, limit %d (-want +got):\n%s", kind, m, limit, diff)
				}
			}
			got, err := ledger.CountAsOf(t.Context(), pool, m, kind)
			if err != nil || len(got) != len(counts) {
				t.Fatalf("%d counts as of %s, %v, want %d", len(got), m, err, len(counts))
			}
			for _, c := range got {
				if want := counts[ledger.StateCount{Kind: c.Kind, State: c.State}]; c.Tasks != want {
					t.Errorf("as of %s: %v, want %d", m, c, want)
				}
			}
		}
	}
	exceptional := ledger.PastFilter{States: []ledger.State{"dead", "scheduled"}, Limit: 3}
	for e, err := range ledger.ListAsOf(t.Context(), pool, exceptional) {
		if err != nil || e.State != "dead" && e.State != "scheduled" {
			t.Errorf("%v, %v", e, err)
		}
	}
	for _, err := range ledger.ListAsOf(t.Context(), pool, ledger.PastFilter{States: []ledger.State{"done"}}) {
		wantText(t, err, `invalid state "done": must be one of available, scheduled`)
	}
}

// The states of many tasks as of a moment are counted in bounded time. With -as-of-tasks 1000000 it prints the time.
func TestStatesOfManyTasks(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	tasks := *asOfTasks
	history(t, pool, tasks)
	for name, share := range map[string]int{"the whole past": 10, "half of it": 5, "a tenth": 1} {
		m, err := ledger.MomentOf(t.Context(), pool, ledger.Position(3*tasks*share/10))
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		counts, err := ledger.CountAsOf(t.Context(), pool, m, "bench.task")
		counted := time.Since(begin)
		sum := int64(0)
		for _, c := range counts {
			sum += c.Tasks
		}
		if err != nil || sum != int64(tasks*share/10) {
			t.Errorf("%s: %v, %v", name, counts, err)
		}
		begin = time.Now()
		listed := int64(0)
		for _, err := range ledger.ListAsOf(t.Context(), pool, ledger.PastFilter{Moment: m, Kind: "bench.task"}) {
			if listed++; err != nil {
				t.Fatal(err)
			}
		}
		if listed != sum {
			t.Errorf("%s: %d tasks were listed, and %d counted", name, listed, sum)
		}
		t.Logf("%s: %d tasks of %d events: counted in %s, listed in %s", name, sum, 3*tasks, counted, time.Since(begin))
	}
}
