package operator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Dead tasks of a group end without another attempt. Of two operators at once, one ends each. A task that has moved on
// is skipped.
func TestCancelDead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.Operator()
	b.bury("a", 20, "no customer")
	b.bury("b", 1, "no order")
	b.Project()
	other := servicetest.Try(operator.ReadDead(b.Context(), b.DB, ""))(t)[1].Example
	f := operator.Filter{Kind: "test.order", Fingerprint: ledger.Fingerprint("T", "no customer 1")}
	released := ledgertest.Key(t, "test.order/a-00003")
	servicetest.Try(o.Release(b.Context(), released, audit))(t)
	limited := f
	limited.Limit = 2
	got := servicetest.Try(o.CancelDead(b.Context(), limited, audit))(t)
	if want := (operator.BulkResult{Found: 2, Done: 2}); got != want {
		t.Errorf("of two tasks: %+v, want %+v", got, want)
	}
	var both [2]operator.BulkResult
	var all sync.WaitGroup
	for i := range both {
		all.Go(func() {
			var err error
			if both[i], err = o.CancelDead(b.Context(), f, audit); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if both[0].Done+both[1].Done != 17 || both[0].Skipped+both[1].Skipped != 23 {
		t.Errorf("two operators at once: %+v, want 17 done and 23 skipped, twice the three", both)
	}
	if n := len(b.TasksIn(ledger.StateCancelled)); n != 19 {
		t.Errorf("%d tasks are cancelled, want 19", n)
	}
	events := b.History(ledgertest.Key(t, "test.order/a-00007"))
	last := events[len(events)-1]
	if last.Version != 4 || last.Actor != audit.Actor || reason(t, last) != audit.Reason {
		t.Errorf("the last event is %+v", last)
	}
	if b.Task(other).State != ledger.StateDead || b.Task(released).State != ledger.StateAvailable {
		t.Error("other tasks are changed")
	}
}

// A dead task that an open transaction locks is skipped, and does not keep those behind it from their end.
func TestCancelDeadBesideALock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.bury("a", 3, "no customer")
	b.Project()
	tx := servicetest.Try(b.DB.Begin(b.Context()))(t)
	first := ledgertest.Key(t, "test.order/a-00000")
	servicetest.Try(ledger.Release(b.Context(), tx, first, &ledger.ChangeOptions{Actor: "shop"}))(t)
	got := servicetest.Try(b.Operator().CancelDead(b.Context(), operator.Filter{Kind: first.Kind}, audit))(t)
	if want := (operator.BulkResult{Found: 3, Done: 2, Skipped: 1}); got != want {
		t.Errorf("beside a locked task: %+v, want %+v", got, want)
	}
	if err := tx.Rollback(b.Context()); err != nil {
		t.Fatal(err)
	}
	if got := b.Task(first).State; got != ledger.StateDead {
		t.Errorf("the locked task is %s", got)
	}
}

// Dead tasks are grouped by the fingerprint of their errors, and released by it. A dry run only counts, a limit
// holds, and a release that was stopped is completed by the next call.
func TestReleaseByFingerprint(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.Operator()
	b.bury("a", 6500, "no customer")
	b.bury("b", 20, "no order")
	b.Project()
	groups := servicetest.Try(operator.ReadDead(b.Context(), b.DB, ""))(t)
	for _, g := range groups {
		newest := b.Task(g.Example)
		if !g.Newest.Equal(newest.UpdatedAt) || g.Error != newest.Error || g.Oldest.After(g.Newest) ||
			g.Oldest.IsZero() {
			t.Errorf("group %+v, its newest is %+v", g, newest)
		}
	}
	counts := slices.Clone(groups)
	for i := range counts {
		counts[i].Oldest, counts[i].Newest = time.Time{}, time.Time{}
		counts[i].Error, counts[i].Example = "", ledger.Key{}
	}
	want := []operator.DeadGroup{
		{Kind: "test.order", Fingerprint: ledger.Fingerprint("T", "no customer 1"), Tasks: 6500},
		{Kind: "test.order", Fingerprint: ledger.Fingerprint("T", "no order 1"), Tasks: 20},
	}
	if diff := difference.Of(want, counts); diff != "" {
		t.Fatalf("groups (-want +got):\n%s", diff)
	}
	if others := servicetest.Try(operator.ReadDead(b.Context(), b.DB, "other"))(t); len(others) != 0 {
		t.Errorf("dead tasks of another kind: %v", others)
	}

	customers := operator.Filter{Fingerprint: groups[0].Fingerprint}
	check := func(what string, want, have operator.BulkResult, released int) {
		t.Helper()
		if diff := difference.Of(want, have); diff != "" || b.released() != released {
			t.Errorf("%s: %d are released, want %d; result (-want +got):\n%s", what, b.released(), released, diff)
		}
	}
	release := func(f operator.Filter, options *operator.BulkOptions) operator.BulkResult {
		t.Helper()
		return servicetest.Try(o.ReleaseAll(b.Context(), f, audit, options))(t)
	}
	check("dry run", operator.BulkResult{Found: 6500}, release(customers, &operator.BulkOptions{DryRun: true}), 0)
	limited := customers
	limited.Limit = 1500
	check("limit", operator.BulkResult{Found: 1500, Done: 1500}, release(limited, nil), 1500)
	// The projection does not show that yet: the released tasks are skipped.
	ctx, stop := context.WithCancel(b.Context())
	var steps []operator.BulkResult
	result, err := o.ReleaseAll(ctx, customers, audit, &operator.BulkOptions{Progress: func(t operator.BulkResult) {
		if steps = append(steps, t); t.Done >= 1500 {
			stop()
		}
	}})
	if !errors.Is(err, context.Canceled) || result.Skipped != 1500 || result.Done >= 5000 || len(steps) < 3 {
		t.Errorf("stopped: %v, %+v after %v", err, result, steps)
	}
	done := b.released()
	b.Project()
	check("the rest", operator.BulkResult{Found: 6500 - done, Done: 6500 - done}, release(customers, nil), 6500)
	orders := operator.Filter{Kind: "test.order", State: ledger.StateDead, Fingerprint: groups[1].Fingerprint}
	check("the others", operator.BulkResult{Found: 20, Done: 20}, release(orders, nil), 6520)
}

// Two operators at the same time change each task once.
func TestOperatorsRace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.bury("a", 3000, "no customer")
	b.Project()
	var results [2]operator.BulkResult
	var group sync.WaitGroup
	for i := range results {
		group.Go(func() {
			var err error
			results[i], err = b.Operator().ReleaseAll(
				b.Context(), operator.Filter{State: ledger.StateDead}, audit, nil,
			)
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if done := results[0].Done + results[1].Done; done != 3000 || b.released() != 3000 {
		t.Errorf("%d done, %d released, want 3000; %v", done, b.released(), results)
	}
}

// A task that an open transaction has appended to is skipped, and the others are released.
func TestOperatorSkipsOpenTransactions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.bury("a", 100, "no customer")
	b.Project()
	tx := servicetest.Try(b.DB.Begin(b.Context()))(t)
	defer func() { _ = tx.Rollback(context.Background()) }()
	k := ledger.Key{Kind: "test.order", BizID: "a-00042"}
	released := ledger.AppendRequest{Key: k, Expected: 2, Type: ledger.EventReleased}
	servicetest.Try(ledger.Append(b.Context(), tx, released))(t)
	result, err := b.Operator().ReleaseAll(b.Context(), operator.Filter{State: ledger.StateDead}, audit, nil)
	if diff := difference.Of(operator.BulkResult{Found: 100, Done: 99, Skipped: 1}, result); diff != "" || err != nil {
		t.Errorf("%v; result (-want +got):\n%s", err, diff)
	}
}

// A filter selects the tasks that match all of it, on whichever page of the search they are.
func TestOperatorFilters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.Operator()
	b.bury("dead", 6000, "no customer") // more than a page, and none of them matches
	for i := range 3 {
		b.EnqueueIn(ledger.StateRetrying, fmt.Sprintf("z-%d", i))
		b.EnqueueIn(ledger.StateAvailable, fmt.Sprintf("y-%d", i))
	}
	k := ledger.Key{Kind: "test.other", BizID: "1"}
	ledgertest.Enqueue(t, b.DB, k, `{}`)
	b.Project()
	for name, test := range map[string]struct {
		filter operator.Filter
		found  int
	}{
		"all unfinished": {filter: operator.Filter{}, found: 7},
		"kind":           {filter: operator.Filter{Kind: "test.other"}, found: 1},
		"another kind":   {filter: operator.Filter{Kind: "test.order"}, found: 6},
		"no such kind":   {filter: operator.Filter{Kind: "test.none"}, found: 0},
		"exceptional":    {filter: operator.Filter{State: ledger.StateRetrying}, found: 3},
		"unexceptional":  {filter: operator.Filter{State: ledger.StateAvailable, Kind: "test.order"}, found: 3},
		"limit":          {filter: operator.Filter{State: ledger.StateAvailable, Limit: 2}, found: 2},
		"old":            {filter: operator.Filter{OlderThan: time.Hour}, found: 0},
	} {
		result, err := o.CancelAll(b.Context(), test.filter, audit, &operator.BulkOptions{DryRun: true})
		if err != nil || result.Found != test.found {
			t.Errorf("%s: %+v, %v, want %d", name, result, err, test.found)
		}
	}
}

// A task that has moved on since the projection saw it is cancelled if its new state matches the filter.
func TestOperatorCatchesTasksThatMoveOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	again, finished, young := b.EnqueueIn(ledger.StateAvailable, "again"),
		b.EnqueueIn(ledger.StateAvailable, "finished"), b.EnqueueIn(ledger.StateAvailable, "young")
	b.Project()
	ledgertest.Append(t, b.DB, again, ledger.EventStarted, ledger.EventSnoozed, ledger.EventReleased)
	ledgertest.Append(t, b.DB, finished, ledger.EventSucceeded)
	o := b.Operator()
	result, err := o.CancelAll(b.Context(), operator.Filter{Kind: again.Kind}, audit, nil)
	if diff := difference.Of(operator.BulkResult{Found: 3, Done: 2, Skipped: 1}, result); diff != "" || err != nil {
		t.Errorf("%v; result (-want +got):\n%s", err, diff)
	}
	if s := b.Task(again).State; s != ledger.StateCancelled {
		t.Errorf("the task that moved on is %s", s)
	}
	if s := b.Task(young).State; s != ledger.StateCancelled {
		t.Errorf("the other task is %s", s)
	}
}
