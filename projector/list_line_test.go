package projector_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// enqueueInLine enqueues a task of the kind line.step.
func enqueueInLine(t *testing.T, db ledger.DB, id string, o ledger.EnqueueOptions) {
	t.Helper()
	key := ledger.Key{Kind: "line.step", BizID: ledger.BizID(id)}
	if _, err := ledger.Enqueue(t.Context(), db, key, json.RawMessage(`{}`), &o); err != nil {
		t.Fatal(err)
	}
}

// inLine returns the listed tasks with their order keys.
func inLine(t *testing.T, db *pgxpool.Pool, f projector.TaskFilter) (ids []string) {
	t.Helper()
	for {
		tasks, next, err := projector.ReadTasks(t.Context(), db, f)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			ids = append(ids, strings.TrimSpace(string(task.BizID)+" "+task.OrderKey))
		}
		if f.StartAfter = next; next == 0 {
			return ids
		}
	}
}

// The tasks of a line are listed by their newest places, whatever their states, each once; a task that has left the
// line is not.
func TestListOfALine(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	in := func(key string) ledger.EnqueueOptions { return ledger.EnqueueOptions{OrderKey: key} }
	for i := range 9 {
		enqueueInLine(t, pool, fmt.Sprint(i), in("customer/17"))
		enqueueInLine(t, pool, fmt.Sprint("x", i), in("customer/18"))
		enqueueInLine(t, pool, fmt.Sprint("y", i), ledger.EnqueueOptions{})
	}
	enqueueInLine(t, pool, "due", ledger.EnqueueOptions{OrderKey: "customer/17", RunIn: time.Hour})
	enqueueInLine(t, pool, "10", in("customer/17"))
	step := func(id string, types ...ledger.EventType) {
		t.Helper()
		for _, typ := range types {
			ledgertest.Append(t, pool, ledger.Key{Kind: "line.step", BizID: ledger.BizID(id)}, typ)
		}
	}
	again := in("customer/17")
	again.IfExists = ledger.IfExistsReplace
	enqueueInLine(t, pool, "3", again) // to the end
	step("4", ledger.EventCancelled)
	step("5", ledger.EventScheduled, ledger.EventReleased) // to the end
	step("6", ledger.EventCancelled)
	other := in("customer/18")
	other.IfExists = ledger.IfExistsRerun
	enqueueInLine(t, pool, "6", other) // in another line
	step("7", ledger.EventCancelled)
	enqueueInLine(t, pool, "7", ledger.EnqueueOptions{IfExists: ledger.IfExistsRerun}) // in no line
	project(t, pool)

	const key = " customer/17"
	var want []string
	for _, id := range []string{"5", "3", "10", "due", "8", "4", "2", "1", "0"} {
		want = append(want, id+key)
	}
	for name, test := range map[string]struct {
		filter projector.TaskFilter
		want   []string
	}{
		"all": {projector.TaskFilter{OrderKey: "customer/17"}, want},
		"other": {projector.TaskFilter{OrderKey: "customer/18", Limit: 2},
			[]string{"6 customer/18", "x8 customer/18"}},
		"none": {projector.TaskFilter{OrderKey: "customer/1"}, nil},
		"scheduled": {projector.TaskFilter{OrderKey: "customer/17", State: ledger.StateScheduled},
			[]string{"due" + key}},
		"cancelled": {projector.TaskFilter{OrderKey: "customer/17", State: ledger.StateCancelled},
			[]string{"4" + key}},
		"kind":         {projector.TaskFilter{OrderKey: "customer/17", Kind: "line.other"}, nil},
		"prefix":       {projector.TaskFilter{OrderKey: "customer/17", Prefix: "d"}, []string{"due" + key}},
		"since":        {projector.TaskFilter{OrderKey: "customer/17", From: time.Now().Add(time.Hour)}, nil},
		"tag":          {projector.TaskFilter{OrderKey: "customer/17", Tag: "vip"}, nil},
		"another list": {projector.TaskFilter{Prefix: "3"}, []string{"3" + key}},
		"no line":      {projector.TaskFilter{Prefix: "7"}, []string{"7"}},
	} {
		for _, page := range []struct{ limit, walk int }{{0, 0}, {1, 0}, {3, 2}, {2, 1}} {
			f := test.filter
			f.Walk = page.walk
			if f.Limit == 0 {
				f.Limit = page.limit
			}
			got := inLine(t, pool, f)
			if name == "other" {
				got = got[:min(2, len(got))]
			}
			if diff := difference.Of(test.want, got); diff != "" {
				t.Errorf("%s, %+v (-want +got):\n%s", name, page, diff)
			}
		}
	}
	found, _, err := projection.FindTasks(t.Context(), pool, projection.Search{Prefix: "3"})
	if err != nil || len(found) != 1 || found[0].OrderKey != "customer/17" {
		t.Errorf("found %+v, %v", found, err)
	}
	for _, key := range []string{strings.Repeat("x", 256), "a\x00b", "\xff"} {
		_, _, err := projector.ReadTasks(t.Context(), pool, projector.TaskFilter{OrderKey: key})
		if invalid := new(ledger.InvalidError); !errors.As(err, &invalid) || invalid.Field != "order_key" {
			t.Errorf("order key %q: %v", key, err)
		}
	}
	check(t, pool)
}

// A page of a line costs the same in a long line, beside others, as in a short one, and reads no table as a whole.
func TestListOfALineReadsLittle(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	filled := 0
	fill := func(tasks int) {
		var entries []ledger.Entry
		for range tasks {
			filled++
			entries = append(entries, ledger.Entry{
				Key:     ledger.Key{Kind: "line.step", BizID: ledger.BizID(fmt.Sprint(filled))},
				Options: &ledger.EnqueueOptions{OrderKey: fmt.Sprint("customer/", filled%2)},
			})
		}
		for part := range slices.Chunk(entries, 10_000) {
			if _, err := ledger.EnqueueMany(t.Context(), pool, part); err != nil {
				t.Fatal(err)
			}
		}
		project(t, pool)
		if _, err := pool.Exec(t.Context(), "vacuum analyze taskledger.event, taskledger.task"); err != nil {
			t.Fatal(err)
		}
	}
	measure := func() int {
		return blocksOf(t, pool, "list_line", "", "", int64(1)<<62, 50, "", "", "", "", "", "", "false", "", "",
			100, "customer/1")
	}
	fill(1_000)
	small := measure()
	fill(20_000)
	if large := measure(); large > small+200 { // an index is one level deeper for each look-up
		t.Errorf("%d blocks beside 10,500 tasks in line, %d beside 500", large, small)
	}
}

// The plans of the statements of lines, by the statistics of a large ledger.
func TestPlansOfLines(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	plantest.Enlarge(t, pool)
	enqueueInLine(t, pool, "a", ledger.EnqueueOptions{OrderKey: "customer/17"})
	project(t, pool)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), "set local plan_cache_mode to force_generic_plan"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"list_line": {"Index Scan Backward using event_line on", "Index Scan Backward using event_line_scheduled",
			"Index Only Scan Backward using event_line on", "Index Scan using task_pkey"},
		"list_order_keys": {"Index Scan using event_pkey"},
	} {
		plan := explain(t, tx, name)
		for _, scan := range want {
			if !strings.Contains(plan, scan) {
				t.Errorf("%s: want %s, got\n%s", name, scan, plan)
			}
		}
		if strings.Contains(plan, "Seq Scan on") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}
