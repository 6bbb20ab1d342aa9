package ledger_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/unexported"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// priorities returns the priorities of a task's events.
func priorities(t *testing.T, db ledger.DB, key ledger.Key) (all []ledger.Priority) {
	t.Helper()
	history, err := ledger.History(t.Context(), db, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range history {
		all = append(all, e.Priority)
	}
	return all
}

// Of the priorities of a task and of its kind, the task's counts.
func TestPriorityOfAKind(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, "producer", "reader")
	plain := ledger.MustKind[int]("a")
	low := plain.WithPriority(ledger.PriorityLow)
	for id, test := range map[ledger.BizID]struct {
		kind    ledger.TypedKind[int]
		options *ledger.EnqueueOptions
		want    ledger.Priority
	}{
		"neither": {kind: plain},
		"kind":    {kind: low, want: ledger.PriorityLow},
		"task":    {kind: plain, options: &ledger.EnqueueOptions{Priority: ledger.PriorityHigh}, want: 2},
		"both":    {kind: low, options: &ledger.EnqueueOptions{Priority: ledger.PriorityUrgent}, want: 1},
		"later":   {kind: low, options: &ledger.EnqueueOptions{RunIn: time.Hour}, want: ledger.PriorityLow},
	} {
		if _, err := test.kind.Enqueue(t.Context(), db, id, 1, test.options); err != nil {
			t.Fatal(err)
		}
		tx, err := ledger.Begin(t.Context(), db, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := test.kind.EnqueueAndCommit(t.Context(), tx, id+"-commit", 1, test.options); err != nil {
			t.Fatal(err)
		}
		for _, id := range []ledger.BizID{id, id + "-commit"} {
			task, err := ledger.Load(t.Context(), db, plain.Key(id))
			if err != nil || task.Priority != test.want {
				t.Errorf("%s: priority %d, %v, want %d", id, task.Priority, err, test.want)
			}
		}
	}
	for _, p := range []ledger.Priority{-1, 5, 1 << 40} {
		_, err := plain.WithPriority(p).Enqueue(t.Context(), db, "invalid", 1, nil)
		if invalid := wantErrorAs[*ledger.InvalidError](t, err); invalid.Field != "priority" {
			t.Error(invalid)
		}
	}
}

// Each event of a task stores the task's priority, whether Go or SQL appends it.
func TestEventsCarryThePriority(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	db := ledgertest.As(t, owner, "producer", "worker", "operator")
	key := ledger.Key{Kind: "a", BizID: "1"}
	options := &ledger.EnqueueOptions{Priority: ledger.PriorityUrgent, RunIn: time.Microsecond}
	if _, err := ledger.Enqueue(t.Context(), db, key, nil, options); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{ // version 2 to 5
		`select from taskledger_internal.fire_timers('-infinity', 9, '{scheduled}', '{}', '{}', '{}', '{}', '{}')`,
		`select taskledger.heartbeat('w', '{a}')`,
		`select from taskledger.claim('a', '1', 'w')`,
		`select from taskledger.fail('a', '1', 3, 'boom', retry_in => '0')`,
	} {
		if _, err := owner.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	request := ledgertest.Request(key, 5, ledger.EventStarted)
	first := ledger.AppendEach(t.Context(), db, []ledger.AppendRequest{request})[0]
	if first.Err != nil || first.Event.Priority != ledger.PriorityUrgent {
		t.Fatalf("started: %+v", first)
	}
	var incarnation string
	const read = "select coalesce(taskledger_internal.session_incarnation(), '')"
	const begin = "select taskledger_internal.begin_incarnation()"
	if _, err := owner.Exec(t.Context(), begin); err != nil {
		t.Fatal(err)
	}
	if err := db.QueryRow(t.Context(), read).Scan(&incarnation); err != nil || incarnation == "" {
		t.Fatal(incarnation, err)
	}
	request = ledgertest.Request(key, 6, ledger.EventProgressed)
	unexported.SetLastEvent(&request, unexported.LastEvent{
		Incarnation: incarnation, State: "running", Version: 6, Attempt: int32(first.Event.Attempt),
		Shard:    int16(first.Event.Shard),
		Priority: 1, Position: 1,
	})
	second := ledger.AppendEach(t.Context(), db, []ledger.AppendRequest{request})[0]
	if second.Err != nil || second.Event.Priority != ledger.PriorityUrgent {
		t.Fatalf("progressed: %+v", second)
	}
	tx, err := ledger.Begin(t.Context(), db, &ledger.TxOptions{Guard: true})
	if err != nil {
		t.Fatal(err)
	}
	events, err := tx.AppendAndCommit(t.Context(), ledgertest.Request(key, 7, ledger.EventInterrupted))
	if err != nil || events[0].Priority != ledger.PriorityUrgent {
		t.Fatalf("interrupted: %+v, %v", events, err)
	}
	got := priorities(t, owner, key)
	if want := slices.Repeat([]ledger.Priority{ledger.PriorityUrgent}, 8); !slices.Equal(got, want) {
		t.Errorf("priorities %v, want %v", got, want)
	}
	ledgertest.Check(t, owner)
}

// An event of type scheduled may change the priority, and no other one.
func TestPriorityChanges(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, "producer", "operator")
	a, b := ledger.Key{Kind: "a", BizID: "1"}, ledger.Key{Kind: "a", BizID: "2"}
	ledgertest.Enqueue(t, db, a, `{}`)
	ledgertest.Enqueue(t, db, b, `{}`)
	change := func(k ledger.Key, v ledger.Version, p ledger.Priority) ledger.AppendRequest {
		return ledger.AppendRequest{Key: k, Expected: v, Type: ledger.EventScheduled, In: time.Hour, Priority: p}
	}
	if e, err := ledger.Append(t.Context(), db, change(a, 1, ledger.PriorityLow)); err != nil || e.Priority != 4 {
		t.Errorf("append: %+v, %v", e, err)
	}
	if e, err := ledger.Append(t.Context(), db, change(a, 2, 0)); err != nil || e.Priority != 4 {
		t.Errorf("append without a priority: %+v, %v", e, err)
	}
	if _, err := ledger.Append(t.Context(), db, change(b, 1, ledger.PriorityLow)); err != nil {
		t.Fatal(err)
	}
	c := ledger.Key{Kind: "a", BizID: "3"}
	ledgertest.Enqueue(t, db, c, `{}`)
	requests := []ledger.AppendRequest{change(a, 3, ledger.PriorityHigh), change(b, 2, 0), change(c, 1, 1)}
	results := ledger.AppendEach(t.Context(), db, requests)
	first, second := results[0], results[1]
	if first.Err != nil || first.Event.Priority != 2 || second.Err != nil || second.Event.Priority != 4 ||
		results[2].Event.Priority != 1 {
		t.Errorf("append each: %+v", results)
	}
	for _, r := range []ledger.AppendRequest{
		change(a, 4, 5), {Key: a, Expected: 4, Type: ledger.EventReleased, Priority: ledger.PriorityUrgent},
	} {
		_, err := ledger.Append(t.Context(), db, r)
		if invalid := wantErrorAs[*ledger.InvalidError](t, err); invalid.Field != "priority" {
			t.Error(invalid)
		}
	}
	ledgertest.Check(t, db)
}

// Neither a worker nor a limited worker changes a task's priority, and no login gives a task one that does not exist.
func TestRightsToAPriority(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	limited, _ := poolOf(t, owner, "grant "+limitedWorker(t, owner, "a")+" to $1")
	worker := ledgertest.As(t, owner, "worker")
	producer := ledgertest.As(t, owner, "producer")
	operator := ledgertest.As(t, owner, "operator")
	options := &ledger.EnqueueOptions{Priority: ledger.PriorityLow}
	if _, err := ledger.Enqueue(t.Context(), producer, ledger.Key{Kind: "a", BizID: "1"}, nil, options); err != nil {
		t.Fatal(err)
	}
	const next = `
		insert into taskledger.event (version, attempt, shard, type, login_id, priority, kind, biz_id, actor, data)
		select 2, $2::integer, e.shard, $1::text::taskledger.event_type, taskledger_internal.login_id(),
		       $3::text::integer, e.kind, e.biz_id, 'x', '{"reason":"x","run_at":"2030-01-01T00:00:00Z"}'
		  from taskledger.event e where e.kind = 'a' and e.biz_id = '1' and e.version = 1`
	for _, test := range []struct {
		name      string
		db        ledgertestDB
		eventType string
		attempt   int
		priority  string
		isValid   bool
	}{
		{name: "worker starts it as urgent", db: worker, eventType: "started", attempt: 1, priority: "1"},
		{name: "worker starts it without one", db: worker, eventType: "started", attempt: 1, priority: "0"},
		{name: "worker interrupts it as urgent", db: worker, eventType: "interrupted", attempt: 1, priority: "1"},
		{name: "worker interrupts it", db: worker, eventType: "interrupted", attempt: 1, priority: "4", isValid: true},
		{name: "limited worker raises it", db: limited, eventType: "interrupted", attempt: 1, priority: "1"},
		{name: "limited worker", db: limited, eventType: "interrupted", attempt: 1, priority: "4", isValid: true},
		{name: "operator releases it as urgent", db: operator, eventType: "buried", priority: "1"},
		{name: "operator reschedules it", db: operator, eventType: "scheduled", priority: "1", isValid: true},
	} {
		tx, err := test.db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = tx.Exec(t.Context(), next, test.eventType, test.attempt, test.priority)
		isRefused := pgerr.Is(err, pgerr.InsufficientPrivilege)
		if isRefused == test.isValid || test.isValid && err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	const first = `
		insert into taskledger.event (version, attempt, shard, type, priority, kind, biz_id, actor)
		values (1, 0, 1, 'enqueued', $1::text::integer, 'a', '2', 'x')`
	for _, priority := range []string{"-1", "5"} {
		if _, err := producer.Exec(t.Context(), first, priority); sqlState(err) != "23514" {
			t.Errorf("a first event of priority %s: %v", priority, err)
		}
	}
}

// ledgertestDB begins transactions.
type ledgertestDB interface {
	Begin(context.Context) (pgx.Tx, error)
}
