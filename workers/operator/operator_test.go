package workers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// by is who operates in the tests.
var by = workers.By{Actor: "alice", Reason: "tried <b>it</b>"}

func (b *bundle) operator(nc *nats.Conn) *workers.Operator {
	b.T.Helper()
	return try(workers.NewOperator(workers.OperatorConfig{DB: b.DB, NATS: nc}))(b.T)
}

// in makes a task that is in a state.
func (b *bundle) in(s ledger.State, id string) ledger.Key {
	b.T.Helper()
	ways := map[ledger.State][]ledger.EventType{
		ledger.StateAvailable: nil, ledger.StateScheduled: {ledger.EventSnoozed}, ledger.StateRunning: {ledger.EventStarted},
		ledger.StateRetrying: {ledger.EventFailed}, ledger.StateSucceeded: {ledger.EventSucceeded}, ledger.StateDead: {ledger.EventBuried},
		ledger.StateCancelled: {ledger.EventCancelled}, ledger.StateExpired: {ledger.EventExpired}, ledger.StateDiscarded: {ledger.EventDiscarded},
	}
	k := ledger.Key{Kind: order.Name(), BizID: ledger.BizID(id)}
	ledgertest.Enqueue(b.T, b.DB, k, `{}`)
	ledgertest.Append(b.T, b.DB, k, ways[s]...)
	return k
}

var allStates = []ledger.State{
	ledger.StateAvailable, ledger.StateScheduled, ledger.StateRunning, ledger.StateRetrying, ledger.StateSucceeded,
	ledger.StateDead, ledger.StateCancelled, ledger.StateExpired, ledger.StateDiscarded,
}

// verbs are what an operator can do, to one task and to many, and to tasks in which states.
var verbs = []struct {
	name   string
	one    func(*workers.Operator, context.Context, ledger.Key) (ledger.Event, error)
	all    func(*workers.Operator, context.Context, workers.Filter, *workers.BulkOptions) (workers.Tally, error)
	event  ledger.EventType
	states string
}{
	{
		"release",
		func(o *workers.Operator, ctx context.Context, k ledger.Key) (ledger.Event, error) {
			return o.Release(ctx, k, by)
		},
		func(o *workers.Operator, ctx context.Context, f workers.Filter, b *workers.BulkOptions) (workers.Tally, error) {
			return o.ReleaseAll(ctx, f, by, b)
		},
		ledger.EventReleased, "scheduled retrying dead cancelled expired discarded",
	}, {
		"bury",
		func(o *workers.Operator, ctx context.Context, k ledger.Key) (ledger.Event, error) {
			return o.Bury(ctx, k, by)
		},
		func(o *workers.Operator, ctx context.Context, f workers.Filter, b *workers.BulkOptions) (workers.Tally, error) {
			return o.BuryAll(ctx, f, by, b)
		},
		ledger.EventBuried, "available scheduled running retrying",
	}, {
		"cancel",
		func(o *workers.Operator, ctx context.Context, k ledger.Key) (ledger.Event, error) {
			return o.Cancel(ctx, k, by)
		},
		func(o *workers.Operator, ctx context.Context, f workers.Filter, b *workers.BulkOptions) (workers.Tally, error) {
			return o.CancelAll(ctx, f, by, b)
		},
		ledger.EventCancelled, "available scheduled running retrying",
	}, {
		"reschedule",
		func(o *workers.Operator, ctx context.Context, k ledger.Key) (ledger.Event, error) {
			return o.Reschedule(ctx, k, workers.When{In: 2 * time.Hour}, by)
		},
		func(o *workers.Operator, ctx context.Context, f workers.Filter, b *workers.BulkOptions) (workers.Tally, error) {
			return o.RescheduleAll(ctx, f, workers.When{In: 2 * time.Hour}, by, b)
		},
		ledger.EventScheduled, "available scheduled retrying",
	},
}

// Each verb does its work in the states that allow it, says by whom and why, and is refused in
// the others with the state; one task or many make no difference.
func TestOperatorVerbs(t *testing.T) {
	t.Parallel()
	for _, verb := range verbs {
		for _, many := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/many=%v", verb.name, many), func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				o := b.operator(nil)
				keys := map[ledger.State]ledger.Key{}
				for _, s := range allStates {
					keys[s] = b.in(s, string(s))
				}
				if many {
					b.Project()
				}
				for _, s := range allStates {
					allowed := strings.Contains(verb.states, string(s))
					before := b.Task(keys[s])
					var e ledger.Event
					var err error
					if many {
						var tally workers.Tally
						tally, err = verb.all(o, b.Context(), workers.Filter{State: s}, nil)
						if diff := cmp.Diff(workers.Tally{Found: 1, Done: 1}, tally); allowed && diff != "" {
							t.Errorf("%s (-want +got):\n%s", s, diff)
						}
						history := b.History(keys[s])
						e = history[len(history)-1]
					} else {
						e, err = verb.one(o, b.Context(), keys[s])
					}
					var transition *ledger.TransitionError
					var invalid *ledger.InvalidError
					switch {
					case !allowed && b.Task(keys[s]).Version != before.Version:
						t.Errorf("%s: something was done", s)
					case !allowed && many && (!errors.As(err, &invalid) || invalid.Field != "state"):
						t.Errorf("%s: %v, want an InvalidError for the state", s, err)
					case !allowed && !many && (!errors.As(err, &transition) || transition.State != s):
						t.Errorf("%s: %v, want a TransitionError that names the state", s, err)
					case allowed && err != nil:
						t.Errorf("%s: %v", s, err)
					case allowed && (e.Type != verb.event || e.Actor != "alice" || b.data(e).Reason != by.Reason || b.Task(keys[s]).Version != e.Version):
						t.Errorf("%s: %s by %s: %s", s, e.Type, e.Actor, e.Data)
					}
				}
			})
		}
	}
}

func TestOperatorRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.operator(nil)
	k := b.in(ledger.StateAvailable, "o-1")
	ctx := b.Context()
	absent := ledger.Key{Kind: "test.order", BizID: "absent"}
	if _, err := o.Cancel(ctx, absent, by); !errors.Is(err, ledger.ErrUnknownTask) {
		t.Errorf("unknown task: %v", err)
	}
	bulk := func(f workers.Filter) error { _, err := o.BuryAll(ctx, f, by, nil); return err }
	one := func(w workers.When, by workers.By) error { _, err := o.Reschedule(ctx, k, w, by); return err }
	for name, test := range map[string]struct {
		err   error
		field string
	}{
		"kind":          {bulk(workers.Filter{Kind: "a b"}), "kind"},
		"state":         {bulk(workers.Filter{State: "gone"}), "state"},
		"fingerprint":   {bulk(workers.Filter{Fingerprint: "0123456789abcdef"}), "fingerprint"},
		"older than":    {bulk(workers.Filter{OlderThan: -1}), "older than"},
		"limit":         {bulk(workers.Filter{Limit: -1}), "limit"},
		"no time":       {one(workers.When{}, by), "at"},
		"two times":     {one(workers.When{At: time.Now(), In: time.Second}, by), "at"},
		"negative":      {one(workers.When{In: -time.Second}, by), "in"},
		"the year 9999": {one(workers.When{At: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}, by), "at"},
		"long reason":   {one(workers.When{In: 1}, workers.By{Reason: strings.Repeat("x", workers.MaxReasonBytes+1)}), "reason"},
		"actor":         {one(workers.When{In: 1}, workers.By{Actor: "a\x1b[2J"}), "actor"},
	} {
		var invalid *ledger.InvalidError
		if !errors.As(test.err, &invalid) || invalid.Field != test.field {
			t.Errorf("%s: %v, want an InvalidError for %q", name, test.err, test.field)
		}
	}
	if task := b.Task(k); task.Version != 1 {
		t.Errorf("something was done: %v", b.EventTypes(k))
	}
	if _, err := workers.NewOperator(workers.OperatorConfig{}); err == nil {
		t.Error("an operator without a database")
	}
}

// bury makes dead tasks <prefix>-0000 and so on with an error of one kind, at one go.
func (b *bundle) bury(prefix string, n int, message string) {
	b.T.Helper()
	b.Exec(`insert into taskledger.event (version, attempt, shard, type, kind, biz_id)
		select 1, 0, 0, 'enqueued', 'test.order', $1 || '-' || to_char(i, 'FM00000') from generate_series(0, $2::integer - 1) i`, prefix, n)
	b.Exec(`insert into taskledger.event (version, attempt, shard, type, kind, biz_id, data)
		select 2, 0, 0, 'buried', 'test.order', $1 || '-' || to_char(i, 'FM00000'),
		       json_build_object('error', json_build_object('type', 'T', 'message', $3::text || ' ' || i))
		  from generate_series(0, $2::integer - 1) i`, prefix, n, message)
}

func (b *bundle) released() int {
	b.T.Helper()
	return one[int](b, "select count(*)::integer from taskledger.event where type = 'released'")
}

// Dead tasks are grouped by what they are dead of, and released by it: a dry run counts and does
// nothing, a limit is kept, and one that was stopped goes on where it was.
func TestReleaseByFingerprint(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.operator(nil)
	b.bury("a", 6500, "no customer")
	b.bury("b", 20, "no order")
	b.Project()
	groups := try(o.Dead(b.Context(), ""))(t)
	want := []workers.DeadGroup{
		{Kind: "test.order", Fingerprint: ledger.Fingerprint("T", "no customer 1"), Tasks: 6500},
		{Kind: "test.order", Fingerprint: ledger.Fingerprint("T", "no order 1"), Tasks: 20},
	}
	if diff := cmp.Diff(want, groups, cmpopts.IgnoreFields(workers.DeadGroup{}, "Oldest", "Newest", "Error", "Example")); diff != "" {
		t.Fatalf("groups (-want +got):\n%s", diff)
	}
	for _, g := range groups {
		newest := b.Task(g.Example)
		if !g.Newest.Equal(newest.UpdatedAt) || g.Error != newest.Error || g.Oldest.After(g.Newest) || g.Oldest.IsZero() {
			t.Errorf("group %+v, its newest is %+v", g, newest)
		}
	}
	if others := try(o.Dead(b.Context(), "other"))(t); len(others) != 0 {
		t.Errorf("dead tasks of another kind: %v", others)
	}

	customers := workers.Filter{Fingerprint: groups[0].Fingerprint}
	check := func(what string, want workers.Tally, have workers.Tally, released int) {
		t.Helper()
		if diff := cmp.Diff(want, have); diff != "" || b.released() != released {
			t.Errorf("%s: %d are released, want %d; tally (-want +got):\n%s", what, b.released(), released, diff)
		}
	}
	check("dry run", workers.Tally{Found: 6500}, try(o.ReleaseAll(b.Context(), customers, by, &workers.BulkOptions{DryRun: true}))(t), 0)
	limited := customers
	limited.Limit = 1500
	check("limit", workers.Tally{Found: 1500, Done: 1500}, try(o.ReleaseAll(b.Context(), limited, by, nil))(t), 1500)
	// The projection knows nothing of that yet: what is done is not done again.
	ctx, stop := context.WithCancel(b.Context())
	var steps []workers.Tally
	tally, err := o.ReleaseAll(ctx, customers, by, &workers.BulkOptions{Progress: func(t workers.Tally) {
		if steps = append(steps, t); t.Done >= 1500 {
			stop()
		}
	}})
	if !errors.Is(err, context.Canceled) || tally.Skipped != 1500 || tally.Done >= 5000 || len(steps) < 3 {
		t.Errorf("stopped: %v, %+v after %v", err, tally, steps)
	}
	done := b.released()
	b.Project()
	check("the rest", workers.Tally{Found: 6500 - done, Done: 6500 - done}, try(o.ReleaseAll(b.Context(), customers, by, nil))(t), 6500)
	check("the others", workers.Tally{Found: 20, Done: 20}, try(o.ReleaseAll(b.Context(), workers.Filter{Kind: "test.order", State: ledger.StateDead, Fingerprint: groups[1].Fingerprint}, by, nil))(t), 6520)
}

// Two operators at once do each task once.
func TestOperatorsRace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.bury("a", 3000, "no customer")
	b.Project()
	var tallies [2]workers.Tally
	var group sync.WaitGroup
	for i := range tallies {
		group.Go(func() {
			var err error
			if tallies[i], err = b.operator(nil).ReleaseAll(b.Context(), workers.Filter{State: ledger.StateDead}, by, nil); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if done := tallies[0].Done + tallies[1].Done; done != 3000 || b.released() != 3000 {
		t.Errorf("%d done, %d released, want 3000; %v", done, b.released(), tallies)
	}
}

// A task in somebody's open transaction does not hold up the others.
func TestOperatorPassesOpenTransactions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.bury("a", 100, "no customer")
	b.Project()
	tx := try(b.DB.Begin(b.Context()))(t)
	defer func() { _ = tx.Rollback(context.Background()) }()
	try(ledger.Append(b.Context(), tx, ledger.AppendRequest{Key: ledger.Key{Kind: "test.order", BizID: "a-00042"}, Expected: 2, Type: ledger.EventReleased}))(t)
	tally, err := b.operator(nil).ReleaseAll(b.Context(), workers.Filter{State: ledger.StateDead}, by, nil)
	if diff := cmp.Diff(workers.Tally{Found: 100, Done: 99, Skipped: 1}, tally); diff != "" || err != nil {
		t.Errorf("%v; tally (-want +got):\n%s", err, diff)
	}
}

// A filter means those that fit all of it, in whatever stretch they are found.
func TestOperatorFilters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.operator(nil)
	b.bury("dead", 6000, "no customer") // more than a stretch, and none of them meant
	for i := range 3 {
		b.in(ledger.StateRetrying, fmt.Sprintf("z-%d", i))
		b.in(ledger.StateAvailable, fmt.Sprintf("y-%d", i))
	}
	k := ledger.Key{Kind: "test.other", BizID: "1"}
	ledgertest.Enqueue(t, b.DB, k, `{}`)
	b.Project()
	for name, test := range map[string]struct {
		filter workers.Filter
		found  int
	}{
		"all unfinished": {workers.Filter{}, 7},
		"kind":           {workers.Filter{Kind: "test.other"}, 1},
		"another kind":   {workers.Filter{Kind: "test.order"}, 6},
		"no such kind":   {workers.Filter{Kind: "test.none"}, 0},
		"aside":          {workers.Filter{State: ledger.StateRetrying}, 3},
		"not aside":      {workers.Filter{State: ledger.StateAvailable, Kind: "test.order"}, 3},
		"limit":          {workers.Filter{State: ledger.StateAvailable, Limit: 2}, 2},
		"old":            {workers.Filter{OlderThan: time.Hour}, 0},
	} {
		tally, err := o.CancelAll(b.Context(), test.filter, by, &workers.BulkOptions{DryRun: true})
		if err != nil || tally.Found != test.found {
			t.Errorf("%s: %+v, %v, want %d", name, tally, err, test.found)
		}
	}
}

// Looking for dead tasks costs what they are, and not what waits beside them.
func TestDeadCostsWhatIsDead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.bury("a", 50, "no customer")
	b.Project()
	b.Exec(`insert into taskledger.task (kind, biz_id, shard, state, aside, version, attempt, failures, enqueued_at, updated_at)
		select 'test.order', 's-' || i, 0, 'scheduled', true, 1, 0, 0, now(), now() from generate_series(1, 50000) i`)
	b.Exec("analyze taskledger.task")
	for name, call := range map[string]string{
		"dead.sql":      "('')",
		"find_dead.sql": `('', '', '{dead}', 0, '', '', '', 5000)`,
	} {
		conn := try(b.DB.Acquire(b.Context()))(t)
		defer conn.Release()
		try(conn.Exec(b.Context(), "set plan_cache_mode = force_generic_plan"))(t)
		try(conn.Exec(b.Context(), "prepare dead as "+workers.Statements[name]))(t)
		rows := try(conn.Query(b.Context(), "explain (analyze, buffers) execute dead "+call))(t)
		var plan []string
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err != nil {
				t.Fatal(err)
			}
			plan = append(plan, line)
		}
		try(conn.Exec(b.Context(), "deallocate dead"))(t)
		text := strings.Join(plan, "\n")
		if !strings.Contains(text, "task_dead") || strings.Contains(text, "Seq Scan") {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}
