package projector_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// partitionOf returns the partition of the n-th task: p1, p2 or none.
func partitionOf(n int) string {
	if n%3 == 0 {
		return ""
	}
	return fmt.Sprintf("p%d", n%3)
}

func TestList(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	// The n-th task is of kind n mod 2, in partition n mod 3 and in state n mod 4.
	ends := []ledger.EventType{"", ledger.EventStarted, ledger.EventSucceeded, ledger.EventBuried}
	for n := range 40 {
		key := ledger.Key{Kind: ledger.Kind(fmt.Sprintf("k%d", n%2)),
			BizID: ledger.BizID(fmt.Sprintf("%02d", (n*7)%40))}
		o := &ledger.EnqueueOptions{Partition: partitionOf(n), Meta: ledger.Meta{Tags: []string{"t"}}}
		if _, err := ledger.Enqueue(t.Context(), pool, key, nil, o); err != nil {
			t.Fatal(err)
		}
		if end := ends[n%4]; end != "" {
			if _, err := ledger.Append(t.Context(), pool, ledger.AppendRequest{Key: key, Expected: 1,
				Type: end}); err != nil {
				t.Fatal(err)
			}
		}
	}
	project(t, pool)

	for _, f := range []projector.TaskFilter{
		{},
		{Kind: "k1"},
		{State: ledger.StateAvailable},
		{State: ledger.StateDead},
		{Kind: "k1", State: ledger.StateDead},
		{Kind: "k0", State: ledger.StateDead},
		{Kind: "absent"},
		{Partition: "p1"},
		{Partition: "p1", Tag: "t"},
		{Partition: "p2", State: ledger.StateAvailable},
		{Partition: "p2", State: ledger.StateDead},
		{Partition: "p"},
	} {
		var want []ledger.BizID
		for n := 39; n >= 0; n-- {
			state := []ledger.State{ledger.StateAvailable, ledger.StateRunning, ledger.StateSucceeded,
				ledger.StateDead}[n%4]
			if (f.Kind == "" || f.Kind == ledger.Kind(fmt.Sprintf("k%d", n%2))) &&
				(f.State == "" || f.State == state) &&
				(f.Partition == "" || f.Partition == partitionOf(n)) {
				want = append(want, ledger.BizID(fmt.Sprintf("%02d", (n*7)%40)))
			}
		}
		for _, limit := range []int{0, 1, 3} {
			var have []ledger.BizID
			for f := (projector.TaskFilter{Kind: f.Kind, State: f.State, Partition: f.Partition, Tag: f.Tag,
				Limit: limit}); ; {
				tasks, next, err := projector.ReadTasks(t.Context(), pool, f)
				if err != nil {
					t.Fatal(err)
				}
				for _, task := range tasks {
					have = append(have, task.BizID)
				}
				if next == 0 {
					break
				}
				f.StartAfter = next
			}
			if diff := difference.Of(want, have); diff != "" {
				t.Errorf("%+v, %d at a time (-want +have):\n%s", f, limit, diff)
			}
		}
	}
}

// A call that reads its part of the ledger without a match returns the position to continue at.
func TestListGoesOnWhereItFoundNothing(t *testing.T) {
	defer projector.SetMaxWalk(10)()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	if _, err := ledger.Enqueue(t.Context(), pool, ledger.Key{Kind: "rare", BizID: "1"}, nil, nil); err != nil {
		t.Fatal(err)
	}
	enqueueAndSucceed(t, pool, 0, 12)
	project(t, pool)
	var found []ledger.ListedTask
	calls := 0
	for f := (projector.TaskFilter{Kind: "rare"}); ; calls++ {
		tasks, next, err := projector.ReadTasks(t.Context(), pool, f)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, tasks...)
		if f.StartAfter = next; next == 0 {
			break
		}
	}
	if len(found) != 1 || calls != 2 {
		t.Errorf("found %d tasks after %d further calls, want 1 after 2", len(found), calls)
	}
}

func TestListRefusesBadFilters(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	for field, f := range map[string]projector.TaskFilter{
		"kind":  {Kind: "a\x00b"},
		"state": {State: "lost"},
		"limit": {Limit: projector.MaxList + 1},
		"after": {StartAfter: -1},
	} {
		_, _, err := projector.ReadTasks(t.Context(), pool, f)
		var invalid *ledger.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%+v: got %v, want an InvalidError about %s", f, err, field)
		}
	}
	for _, row := range ledger.Transitions() {
		tasks, _, err := projector.ReadTasks(t.Context(), pool, projector.TaskFilter{State: row.To})
		if err != nil || !slices.Equal(tasks, []ledger.ListedTask{}) {
			t.Errorf("%s: got %v, %v", row.To, tasks, err)
		}
	}
}

// whenQueried is a database that runs a function before each statement.
type whenQueried struct {
	*pgxpool.Pool
	run func()
}

func (w whenQueried) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	w.run()
	return w.Pool.Query(ctx, sql, args...)
}

// Pages list each task once, although others are enqueued between the statements of a call.
func TestListBesideNewEvents(t *testing.T) {
	defer projector.SetMaxWalk(10)()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	var want []ledger.BizID
	for n := range 20 {
		id := ledger.BizID(fmt.Sprint(n))
		kind := ledger.Kind([]string{"rare", "usual", "usual", "rare"}[n%4])
		if kind == "rare" {
			want = append(want, id)
		}
		if _, err := ledger.Enqueue(t.Context(), pool, ledger.Key{Kind: kind, BizID: id}, nil,
			&ledger.EnqueueOptions{Meta: ledger.Meta{Tags: []string{"t"}}}); err != nil {
			t.Fatal(err)
		}
	}
	slices.Reverse(want)
	project(t, pool)
	later := 0
	db := whenQueried{pool, func() {
		for range 3 {
			later++
			key := ledger.Key{Kind: "later", BizID: ledger.BizID(fmt.Sprint(later))}
			if _, err := ledger.Enqueue(t.Context(), pool, key, nil,
				&ledger.EnqueueOptions{Meta: ledger.Meta{Tags: []string{"t"}}}); err != nil {
				t.Error(err)
			}
			project(t, pool)
		}
	}}
	for _, f := range []projector.TaskFilter{{Kind: "rare"}, {Kind: "rare", Tag: "t", Walk: 1}} {
		var got []ledger.BizID
		for isMore := true; isMore; {
			tasks, next, err := projector.ReadTasks(t.Context(), db, f)
			if err != nil {
				t.Fatal(err)
			}
			for _, task := range tasks {
				got = append(got, task.BizID)
			}
			isMore, f.StartAfter = next != 0, next
		}
		if diff := difference.Of(want, got); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", f, diff)
		}
	}
}
