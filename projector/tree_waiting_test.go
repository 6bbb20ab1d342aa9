package projector_test

import (
	"fmt"
	"testing"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// A tree has the tasks that wait for its task, by key, as many as may be below one task. One that waits for another
// task, or that does not wait any longer, is not among them.
func TestTreeOfWaitingTasks(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	part, other := ledger.Key{Kind: "part", BizID: "a"}, ledger.Key{Kind: "part", BizID: "b"}
	for _, k := range []ledger.Key{part, other} {
		ledgertest.Enqueue(t, pool, k, `{}`)
	}
	enqueue := func(k ledger.Key, after ...ledger.Key) ledger.Enqueued {
		t.Helper()
		made, err := ledger.Enqueue(t.Context(), pool, k, nil, &ledger.EnqueueOptions{After: after})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	enqueue(ledger.Key{Kind: "whole", BizID: "other"}, other)
	for i := range 5 {
		enqueue(ledger.Key{Kind: "whole", BizID: ledger.BizID(fmt.Sprint(i))}, other, part)
	}
	moved := ledger.Key{Kind: "whole", BizID: "moved"}
	enqueue(moved, part)
	if _, err := ledger.Append(t.Context(), pool, ledger.AppendRequest{Key: moved, Expected: 1,
		Type: ledger.EventCancelled}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		limits projector.TreeLimits
		want   int
		more   bool
	}{
		{name: "all", limits: projector.TreeLimits{}, want: 5, more: false},
		{name: "as many as there are", limits: projector.TreeLimits{Breadth: 5}, want: 5, more: false},
		{name: "breadth", limits: projector.TreeLimits{Breadth: 4}, want: 4, more: true},
		{name: "tasks", limits: projector.TreeLimits{Tasks: 3}, want: 2, more: true},
		{name: "no room", limits: projector.TreeLimits{Tasks: 1}, want: 0, more: true},
	} {
		tree, err := projector.ReadTree(t.Context(), pool, part, test.limits)
		if err != nil {
			t.Fatal(err)
		}
		want, got := []string(nil), []string(nil)
		for i := range test.want {
			want = append(want, fmt.Sprintf("whole/%d scheduled", i))
		}
		for _, n := range tree.Task.Before {
			got = append(got, fmt.Sprintf("%s %s", n.Key, n.State))
		}
		if diff := difference.Of(want, got); diff != "" || tree.Task.MoreBefore != test.more {
			t.Errorf("%s: more %t (-want +have):\n%s", test.name, tree.Task.MoreBefore, diff)
		}
	}
}

// The search for tasks that wait ends after a number of them, and the tree reports that there may be more.
func TestTreeAmongManyWaitingTasks(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	k := ledger.Key{Kind: "part", BizID: "a"}
	ledgertest.Enqueue(t, pool, k, `{}`)
	ledgertest.Enqueue(t, pool, ledger.Key{Kind: "part", BizID: "b"}, `{}`)
	wait := func(first, last int) {
		t.Helper()
		var entries []ledger.Entry
		for i := first; i < last; i++ {
			entries = append(entries, ledger.Entry{Key: ledger.Key{Kind: "whole", BizID: ledger.BizID(fmt.Sprint(i))},
				Options: &ledger.EnqueueOptions{After: []ledger.Key{{Kind: "part", BizID: "b"}}}})
		}
		if _, err := ledger.EnqueueMany(t.Context(), pool, entries); err != nil {
			t.Fatal(err)
		}
	}
	search := func() (blocks int, isCut bool) {
		t.Helper()
		tree, err := projector.ReadTree(t.Context(), pool, k, projector.TreeLimits{})
		if err != nil || len(tree.Task.Before) > 0 {
			t.Fatalf("%+v, %v", tree.Task.Before, err)
		}
		return blocksOf(t, pool, "tree_successors", "part", "a", 5001, 51), tree.Task.MoreBefore
	}
	wait(0, 5000)
	few, isCut := search()
	if isCut {
		t.Error("of 5,000 waiting tasks some were not searched")
	}
	wait(5000, 20_000)
	many, isCut := search()
	t.Logf("%d blocks among 5,000 waiting tasks, %d among 20,000", few, many)
	if !isCut || many > few+few/2 {
		t.Errorf("%d blocks among 20,000 waiting tasks, %d among 5,000; more: %t", many, few, isCut)
	}
}

// A tree of a hundred tasks that wait for a hundred each, 10,000 in all, has as many tasks as it may
// have, and counts the others.
func TestTreeOfTenThousandPredecessors(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	const wide, each = ledger.MaxAfter, 100
	ledgertest.ExecAsOwner(t, pool, fmt.Sprintf(`
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id, meta)
		select 1, 0, 0, 'scheduled', 'mid', m::text, json_build_object('after', json_build_object('otherwise', 'wait',
		         'keys', (select json_agg(json_build_object('kind', 'part', 'biz_id', m || '-' || i))
		                    from generate_series(1, %d) i)))
		  from generate_series(1, %d) m`, each, wide))
	var after []ledger.Key
	for i := range wide {
		after = append(after, ledger.Key{Kind: "mid", BizID: ledger.BizID(fmt.Sprint(i + 1))})
	}
	root := ledger.Key{Kind: "whole", BizID: "1"}
	if _, err := ledger.Enqueue(t.Context(), pool, root, nil, &ledger.EnqueueOptions{After: after}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		limits     projector.TreeLimits
		wide, want int // tasks of the first generation, and unknown ones of the second
	}{
		{limits: projector.TreeLimits{}, wide: 50, want: 1000 - 1 - 50},
		{limits: projector.TreeLimits{Breadth: 1000}, wide: wide, want: 1000 - 1 - wide},
		{limits: projector.TreeLimits{Breadth: 1000, Tasks: 10_000}, wide: wide, want: 10_000 - 1 - wide},
		{limits: projector.TreeLimits{Breadth: 1000, Depth: 1}, wide: wide, want: 0},
	} {
		tree, err := projector.ReadTree(t.Context(), pool, root, test.limits)
		if err != nil {
			t.Fatal(err)
		}
		shown, others := 0, 0
		for _, mid := range tree.Task.After {
			shown += len(mid.After)
			others += mid.MoreAfter
			for _, p := range mid.After {
				if p.State != "" {
					t.Errorf("%s is %s, want unknown", p.Key, p.State)
				}
			}
		}
		if len(tree.Task.After) != test.wide || shown != test.want || shown+others != test.wide*each {
			t.Errorf("%+v: %d, then %d predecessors and %d more, want %d, then %d", test.limits, len(tree.Task.After),
				shown, others, test.wide, test.want)
		}
	}
}
