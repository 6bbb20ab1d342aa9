package ledger_test

import (
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/unexported"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Each event of a task stores the task's partition, whether Go or SQL appends it.
func TestEventsCarryThePartition(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	db := ledgertest.As(t, owner, "producer", "worker", "operator")
	key := ledger.Key{Kind: "a", BizID: "1"}
	const tenant = "tenant/7 ü"
	options := &ledger.EnqueueOptions{Partition: tenant, RunIn: time.Microsecond}
	if _, err := ledger.Enqueue(t.Context(), db, key, nil, options); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{ // version 2 to 5
		`select from taskledger_internal.fire_timers('-infinity', 9, '{scheduled}', '{}', '{}', '{}', '{}', '{}')`,
		`select taskledger.heartbeat('w', '{a}')`,
		`select from taskledger.claim('a', '1', 'w')`,
		`select from taskledger.fail('a', '1', 3, 'boom', retry_in => '0')`,
		`select taskledger_internal.begin_incarnation()`,
	} {
		if _, err := owner.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	appendOne := func(r ledger.AppendRequest) {
		t.Helper()
		e, err := ledger.Append(t.Context(), db, r)
		if err != nil || e.Partition != tenant {
			t.Fatalf("%s: %+v, %v", r.Type, e, err)
		}
	}
	appendEach := func(r ledger.AppendRequest) {
		t.Helper()
		if each := ledger.AppendEach(t.Context(), db, []ledger.AppendRequest{r})[0]; each.Err != nil ||
			each.Event.Partition != tenant {
			t.Fatalf("%s: %+v", r.Type, each)
		}
	}
	appendAndCommit := func(r ledger.AppendRequest) {
		t.Helper()
		tx, err := ledger.Begin(t.Context(), db, &ledger.TxOptions{Guard: true})
		if err != nil {
			t.Fatal(err)
		}
		events, err := tx.AppendAndCommit(t.Context(), r)
		if err != nil || events[0].Partition != tenant {
			t.Fatalf("%s: %+v, %v", r.Type, events, err)
		}
	}
	read := func(version ledger.Version, kind ledger.EventType, state ledger.State) ledger.AppendRequest {
		t.Helper()
		r := ledgertest.Request(key, version, kind)
		task, err := ledger.Load(t.Context(), db, key)
		if err != nil || task.Partition != tenant || task.State != state {
			t.Fatalf("%+v, %v", task, err)
		}
		last := unexported.LastEvent{State: string(state), Version: int32(version), Attempt: int32(task.Attempt),
			Shard: int16(task.Shard), Priority: int16(task.Priority), Partition: task.Partition,
			Position: 1}
		const query = "select taskledger_internal.session_incarnation()"
		if err := db.QueryRow(t.Context(), query).Scan(&last.Incarnation); err != nil {
			t.Fatal(err)
		}
		unexported.SetLastEvent(&r, last)
		return r
	}
	appendOne(ledgertest.Request(key, 5, ledger.EventStarted))
	appendEach(ledgertest.Request(key, 6, ledger.EventProgressed))
	appendEach(read(7, ledger.EventProgressed, ledger.StateRunning))
	appendAndCommit(ledgertest.Request(key, 8, ledger.EventInterrupted))
	appendAndCommit(read(9, ledger.EventStarted, ledger.StateAvailable))
	scheduled := ledgertest.Request(key, 10, ledger.EventInterrupted)
	appendOne(scheduled)
	appendOne(ledger.AppendRequest{
		Key: key, Expected: 11, Type: ledger.EventScheduled, In: time.Hour, Priority: ledger.PriorityLow,
	})
	history, err := ledger.History(t.Context(), owner, key)
	if err != nil || len(history) != 12 {
		t.Fatalf("%d events, %v", len(history), err)
	}
	for _, e := range history {
		if e.Partition != tenant {
			t.Errorf("%s: partition %q", e, e.Partition)
		}
	}
	ledgertest.Check(t, owner)
}

// No worker or operator changes a task's partition, and no login stores an invalid one.
func TestRightsToAPartition(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	limited, _ := poolOf(t, owner, "grant "+limitedWorker(t, owner, "a")+" to $1")
	worker := ledgertest.As(t, owner, "worker")
	producer := ledgertest.As(t, owner, "producer")
	operator := ledgertest.As(t, owner, "operator")
	for id, partition := range map[ledger.BizID]string{"none": "", "some": "p"} {
		options := &ledger.EnqueueOptions{Partition: partition}
		if _, err := ledger.Enqueue(t.Context(), producer, ledger.Key{Kind: "a", BizID: id}, nil, options); err != nil {
			t.Fatal(err)
		}
	}
	const next = `
		insert into taskledger.event (version, attempt, shard, type, login_id, partition, kind, biz_id, actor, data)
		select 2, $2::integer, e.shard, $1::text::taskledger.event_type, taskledger_internal.login_id(),
		       nullif($3::text, ''), e.kind, e.biz_id, 'x', '{"reason":"x","run_at":"2030-01-01T00:00:00Z"}'
		  from taskledger.event e where e.kind = 'a' and e.biz_id = $4::text and e.version = 1`
	for _, test := range []struct {
		name      string
		db        ledgertestDB
		eventType string
		attempt   int
	}{
		{name: "worker starts it", db: worker, eventType: "started", attempt: 1},
		{name: "worker interrupts it", db: worker, eventType: "interrupted", attempt: 1},
		{name: "limited worker interrupts it", db: limited, eventType: "interrupted", attempt: 1},
		{name: "operator buries it", db: operator, eventType: "buried"},
		{name: "operator reschedules it", db: operator, eventType: "scheduled"},
	} {
		for _, change := range []struct {
			id        ledger.BizID
			partition string
			isValid   bool
		}{
			{id: "none", partition: "p"}, {id: "none", partition: "", isValid: true},
			{id: "some", partition: "q"}, {id: "some", partition: ""}, {id: "some", partition: "p", isValid: true},
		} {
			tx, err := test.db.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_, err = tx.Exec(t.Context(), next, test.eventType, test.attempt, change.partition, string(change.id))
			if pgerr.Is(err, pgerr.InsufficientPrivilege) == change.isValid || change.isValid && err != nil {
				t.Errorf("%s, %+v: %v", test.name, change, err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	const first = `
		insert into taskledger.event (version, attempt, shard, type, partition, kind, biz_id, actor)
		values (1, 0, 1, 'enqueued', $1::text, 'a', '2', 'x')`
	for _, partition := range []string{"", strings.Repeat("p", 65), "a\nb", "\u0080"} {
		if _, err := producer.Exec(t.Context(), first, partition); sqlState(err) != "23514" {
			t.Errorf("a first event in partition %q: %v", partition, err)
		}
	}
}

// Invalid partitions are refused before anything is sent.
func TestInvalidPartitions(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, "producer")
	for _, partition := range []string{strings.Repeat("p", 65), "a\x00b", "\x7f", "\xff", "a\u009fb"} {
		_, err := ledger.Enqueue(t.Context(), db, ledger.Key{Kind: "a", BizID: "1"}, nil,
			&ledger.EnqueueOptions{Partition: partition})
		if invalid := wantErrorAs[*ledger.InvalidError](t, err); invalid.Field != "partition" {
			t.Errorf("%q: %v", partition, invalid)
		}
	}
}
