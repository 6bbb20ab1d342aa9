package scheduler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/scheduler"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

const soon = 30 * time.Millisecond

// A task that is scheduled, snoozed, rescheduled or waits for a retry is released when it is due, with that
// reason, and not before. A task without a timer is left alone.
func TestSchedulerReleases(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Schedule()
	b.Later("now", ledger.EnqueueOptions{})
	b.Later("far", ledger.EnqueueOptions{RunIn: time.Hour})
	reasons := map[ledger.Key]string{b.Later("scheduled", ledger.EnqueueOptions{RunIn: soon}): "due"}
	for id, r := range map[string]ledger.AppendRequest{
		`snoozed "\,{}`: {Type: ledger.EventSnoozed},
		"moved/'🎟":      {Type: ledger.EventScheduled},
		"failed":        {Type: ledger.EventFailed},
	} {
		r.Key, r.Expected, r.In = b.Later(id, ledger.EnqueueOptions{}), 1, soon
		b.append(r)
		reasons[r.Key] = map[bool]string{true: "retry", false: "due"}[r.Type == ledger.EventFailed]
	}
	for k, reason := range reasons {
		b.AwaitState(k, ledger.StateAvailable)
		history := servicetest.Try(ledger.History(b.Context(), b.DB, k))(t)
		due, last := history[len(history)-2].DueAt(), history[len(history)-1]
		var data struct {
			Reason string    `json:"reason"`
			DueAt  time.Time `json:"due_at"`
		}
		if err := json.Unmarshal(last.Data, &data); err != nil || data.Reason != reason || data.DueAt.Before(due) {
			t.Errorf("%s: %s, %v, want reason %s", k, last.Data, err, reason)
		}
		if last.Type != ledger.EventReleased || last.Actor != "scheduler" || last.RecordedAt.Before(due) {
			t.Errorf("%s was due at %s: %+v", k, due, last)
		}
	}
	want := []string{"far"}
	rows := servicetest.Try(b.DB.Query(b.Context(), "select biz_id from taskledger.timer"))(t)
	if diff := difference.Of(want, servicetest.Try(pgx.CollectRows(rows, pgx.RowTo[string]))(t)); diff != "" {
		t.Errorf("timers (-want +got):\n%s", diff)
	}
	ledgertest.Check(t, b.DB)
}

// A timer whose task has moved on is removed without an event.
func TestTimersOfTasksThatMovedOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	histories := map[ledger.Key][]ledger.EventType{}
	for id, types := range map[string][]ledger.EventType{
		"cancelled":            {ledger.EventCancelled},
		"buried":               {ledger.EventBuried},
		"released":             {ledger.EventReleased},
		"released and at work": {ledger.EventReleased, ledger.EventStarted},
		"done":                 {ledger.EventReleased, ledger.EventSucceeded},
		"moved":                {ledger.EventScheduled}, // in an hour
	} {
		k := b.Later(id, ledger.EnqueueOptions{RunIn: soon})
		ledgertest.Append(t, b.DB, k, types...)
		histories[k] = b.EventTypes(k)
	}
	b.Forge(`insert into taskledger.timer values
		(clock_timestamp(), 'test.later', 'archived', 1, 'due'),
		(clock_timestamp(), 'test.later', 'archived', 1, 'finish_by')`)
	b.Schedule()
	b.Await("all but one timer to go", func() bool {
		return servicetest.One[int](b, "select count(*)::integer from taskledger.timer") == 1
	})
	for k, want := range histories {
		if diff := difference.Of(want, b.EventTypes(k)); diff != "" {
			t.Errorf("%s (-before +after):\n%s", k, diff)
		}
	}
}

// start_by expires a task before its first attempt, finish_by whenever it waits.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	b := setup(t)
	passed := time.Now().Add(-time.Hour)
	start, finish := ledger.EnqueueOptions{StartBy: passed}, ledger.EnqueueOptions{FinishBy: passed}
	after := func(types ...ledger.EventType) []ledger.EventType { return types }
	const expired = ledger.StateExpired
	later := ledger.EnqueueOptions{RunIn: time.Hour, StartBy: passed}
	both := ledger.EnqueueOptions{RunIn: time.Microsecond, StartBy: passed, FinishBy: passed}
	for _, test := range []struct {
		name    string
		options ledger.EnqueueOptions
		before  []ledger.EventType
		want    ledger.State
		reason  string // of the expiry
	}{
		{name: "start: available", options: start, want: expired, reason: "start_by"},
		{name: "start: scheduled", options: later, want: expired, reason: "start_by"},
		{name: "start: moved", options: start, before: after(ledger.EventScheduled), want: expired, reason: "start_by"},
		{name: "start: running", options: start, before: after(ledger.EventStarted), want: ledger.StateRunning},
		{name: "start: returned", options: start, before: after(ledger.EventInterrupted), want: ledger.StateAvailable},
		{name: "start: retrying", options: start, before: after(ledger.EventFailed), want: ledger.StateRetrying},
		{name: "start: done", options: start, before: after(ledger.EventSucceeded), want: ledger.StateSucceeded},
		{name: "finish: available", options: finish, want: expired, reason: "finish_by"},
		{
			name: "finish: retrying", options: finish, before: after(ledger.EventFailed), want: expired,
			reason: "finish_by",
		},
		{
			name: "finish: returned", options: finish, before: after(ledger.EventInterrupted), want: expired,
			reason: "finish_by",
		},
		{
			name: "finish: snoozed", options: finish, before: after(ledger.EventSnoozed), want: expired,
			reason: "finish_by",
		},
		{name: "finish: dead", options: finish, before: after(ledger.EventBuried), want: ledger.StateDead},
		{name: "finish: done", options: finish, before: after(ledger.EventSucceeded), want: ledger.StateSucceeded},
		{name: "everything at once", options: both, want: expired, reason: "finish_by"},
	} {
		k := b.Later(test.name, test.options)
		before := ledgertest.Append(t, b.DB, k, test.before...)
		t.Cleanup(func() {
			task := servicetest.Try(ledger.Load(context.Background(), b.DB, k))(t)
			history := servicetest.Try(ledger.History(context.Background(), b.DB, k))(t)
			var data struct{ Reason string }
			if last := history[len(history)-1]; task.State == expired {
				_ = json.Unmarshal(last.Data, &data)
			}
			if task.State != test.want || data.Reason != test.reason || task.Version > before.Version+1 {
				t.Errorf("%s: %s for %q after %d events, want %s for %q",
					test.name, task.State, data.Reason, task.Version, test.want, test.reason)
			}
		})
	}
	b.Schedule()
	b.Await("what is due", func() bool {
		return servicetest.One[int](
			b, "select count(*)::integer from taskledger.timer where due_at <= clock_timestamp()",
		) == 0
	})
}

// A task that is running at its deadline expires as soon as it waits again.
func TestDeadlineOfARunningTask(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := b.Later("1", ledger.EnqueueOptions{FinishBy: time.Now()})
	done := b.Later("2", ledger.EnqueueOptions{FinishBy: time.Now()})
	ledgertest.Append(t, b.DB, k, ledger.EventStarted)
	ledgertest.Append(t, b.DB, done, ledger.EventStarted)
	b.Schedule()
	b.Await("both deadlines to be moved", func() bool {
		return servicetest.One[int](
			b, "select count(*)::integer from taskledger.timer where due_at > clock_timestamp()",
		) == 2
	})
	b.append(ledger.AppendRequest{Key: k, Expected: 2, Type: ledger.EventFailed, In: time.Hour})
	b.append(ledger.AppendRequest{Key: done, Expected: 2, Type: ledger.EventSucceeded})
	b.AwaitState(k, ledger.StateExpired)
	b.Await("the deadline of the finished task to go", func() bool {
		return servicetest.One[int](b, "select count(*)::integer from taskledger.timer where biz_id = '2'") == 0
	})
	if n := len(b.EventTypes(done)); n != 3 {
		t.Errorf("%v", b.EventTypes(done))
	}
}

// Schedulers share the work, and no timer is fired twice.
func TestSchedulersShare(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const n = 10_000
	var entries []ledger.Entry
	for i := range n {
		entries = append(entries, ledger.Entry{Key: ledger.Key{Kind: "test.later", BizID: ledger.BizID(fmt.Sprint(i))},
			Options: &ledger.EnqueueOptions{RunIn: time.Microsecond}})
	}
	servicetest.Try(ledger.EnqueueMany(b.Context(), b.DB, entries))(t)
	var released [3]atomic.Int64
	for i := range released {
		b.Schedule(scheduler.Hook{AfterBatch: func(_ context.Context, batch scheduler.Batch) {
			released[i].Add(int64(batch.Released))
			if batch.Timers != batch.Released || batch.Late <= 0 {
				t.Errorf("%+v", batch)
			}
		}})
	}
	b.awaitNoTimers()
	b.Await("the counts", func() bool { return released[0].Load()+released[1].Load()+released[2].Load() == n })
	const count = "select count(*)::integer from taskledger.event where type = 'released' and version = 2"
	if got := servicetest.One[int](b, count); got != n {
		t.Errorf("%d of %d are released", got, n)
	}
	ledgertest.Check(t, b.DB)
}

// A timer whose transaction commits long after it was due is found, although the scheduler has fired later
// ones; and the horizon does not pass the due times of open transactions. (The transaction's ID is above the
// xmax of every snapshot: a sample made of xmax would be wrong.)
func TestTimerThatCommitsLate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler()
	round := func(prefix string) {
		t.Helper()
		k := b.Later(prefix, ledger.EnqueueOptions{RunIn: time.Microsecond})
		for b.Task(k).State != ledger.StateAvailable {
			b.step(s)
		}
	}
	n := 0
	roundsUntil := func(ok func() bool) {
		t.Helper()
		b.Await("the horizon to move", func() bool { // not before the transactions of other tests have ended
			n++
			round(fmt.Sprint("round ", n))
			return ok()
		})
	}
	roundsUntil(func() bool { return !s.Safe().IsZero() })

	tx := servicetest.Try(b.DB.Begin(b.Context()))(t)
	late := ledger.Key{Kind: "test.later", BizID: "late"}
	servicetest.Try(ledger.Enqueue(b.Context(), tx, late, nil, &ledger.EnqueueOptions{RunIn: time.Microsecond}))(t)
	due := servicetest.Try(ledger.Load(b.Context(), tx, late))(t).DueAt
	for i := range 50 {
		round(fmt.Sprint("meanwhile ", i))
		if s.Safe().After(due) {
			t.Fatalf("the horizon is %s, and a timer due at %s is not committed yet", s.Safe(), due)
		}
	}
	if err := tx.Commit(b.Context()); err != nil {
		t.Fatal(err)
	}
	b.step(s)
	if state := b.Task(late).State; state != ledger.StateAvailable {
		t.Errorf("the late task is %s", state)
	}
	roundsUntil(func() bool { return s.Safe().After(due) })
	ledgertest.Check(t, b.DB)
}

// A task that an open transaction locks is deferred, and the others are fired on time.
func TestLockedTask(t *testing.T) {
	t.Parallel()
	b := setup(t)
	held := b.Later("held", ledger.EnqueueOptions{RunIn: time.Microsecond})
	tx := servicetest.Try(b.DB.Begin(b.Context()))(t)
	cancelled := ledger.AppendRequest{Key: held, Expected: 1, Type: ledger.EventCancelled}
	servicetest.Try(ledger.Append(b.Context(), tx, cancelled))(t)
	var others []ledger.Key
	for i := range 200 {
		others = append(others, b.Later(fmt.Sprint(i), ledger.EnqueueOptions{RunIn: time.Microsecond}))
	}
	b.Schedule()
	for _, k := range others {
		b.AwaitState(k, ledger.StateAvailable)
	}
	if err := tx.Rollback(b.Context()); err != nil {
		t.Fatal(err)
	}
	b.AwaitState(held, ledger.StateAvailable)
	b.awaitNoTimers()
}

// However many tasks an open transaction locks, the others are released meanwhile, those between them and those
// after them. When the transaction ends, the locked ones are released.
func TestManyLockedTasks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const n = 600
	tx := servicetest.Try(b.DB.Begin(b.Context()))(t)
	var held, others []ledger.Key
	for i := range n {
		k := b.Later(fmt.Sprintf("%04d", i), ledger.EnqueueOptions{RunIn: time.Microsecond})
		if i%10 == 9 {
			others = append(others, k)
			continue
		}
		held = append(held, k)
		servicetest.Try(
			ledger.Append(b.Context(), tx, ledger.AppendRequest{Key: k, Expected: 1, Type: ledger.EventCancelled}),
		)(t)
	}
	b.Schedule()
	b.Schedule()
	b.AwaitState(b.Later("after them", ledger.EnqueueOptions{RunIn: time.Microsecond}), ledger.StateAvailable)
	for _, k := range others {
		b.AwaitState(k, ledger.StateAvailable)
		beside := b.Later("beside "+string(k.BizID), ledger.EnqueueOptions{RunIn: time.Microsecond})
		b.AwaitState(beside, ledger.StateAvailable)
	}
	if err := tx.Rollback(b.Context()); err != nil {
		t.Fatal(err)
	}
	for _, k := range held {
		b.AwaitState(k, ledger.StateAvailable)
	}
	b.awaitNoTimers()
	ledgertest.Check(t, b.DB)
}

func TestReadTimers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	read := func() scheduler.TimerStatus { return servicetest.Try(scheduler.ReadTimers(b.Context(), b.DB))(t) }
	if s := read(); s != (scheduler.TimerStatus{}) {
		t.Errorf("without timers: %+v", s)
	}
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	b.Later("1", ledger.EnqueueOptions{RunAt: at})
	if s := read(); s != (scheduler.TimerStatus{NextAt: at}) {
		t.Errorf("with one in an hour: %+v", s)
	}
	b.Forge(`insert into taskledger.timer
		select clock_timestamp() - interval '1 minute', 'test.later', i::text, 1, 'due'
		from generate_series(1, 10001) i`)
	if s := read(); s.Due != 10_000 || !s.DueCapped || s.Late() < time.Minute {
		t.Errorf("with 10,001 due: %+v", s)
	}
}

// The clock of the scheduler's machine does not matter: here it is the year 2000.
func TestSchedulerUsesTheDatabasesClock(t *testing.T) {
	url := ledgertest.URL(t, "relay", "producer")
	synctest.Test(t, func(t *testing.T) {
		if year := time.Now().Year(); year != 2000 {
			t.Fatalf("the year is %d", year)
		}
		ctx := context.Background()
		db := servicetest.Try(pgxpool.New(ctx, url))(t)
		defer db.Close()
		s := servicetest.Try(scheduler.New(scheduler.Config{DB: db}))(t)
		k := ledger.Key{Kind: "test.later", BizID: "1"}
		servicetest.Try(ledger.Enqueue(ctx, db, k, nil, &ledger.EnqueueOptions{RunIn: 100 * time.Millisecond}))(t)
		for servicetest.Try(ledger.Load(ctx, db, k))(t).State != ledger.StateAvailable {
			s.PollAlways()
			if err := s.Step(ctx); err != nil {
				t.Fatal(err)
			}
		}
		history := servicetest.Try(ledger.History(ctx, db, k))(t)
		if late := history[1].RecordedAt.Sub(history[0].DueAt()); late < 0 || late > time.Minute {
			t.Errorf("released %s after it was due", late)
		}
	})
}

// A scheduler process that is killed before or after a batch, or whose connection is cut during one, has done
// all of the batch or nothing.
func TestSchedulerKilled(t *testing.T) {
	t.Parallel()
	const n = 5000
	enqueue := func(b *fixture) {
		var entries []ledger.Entry
		for i := range n {
			entries = append(
				entries,
				ledger.Entry{Key: ledger.Key{Kind: "test.later", BizID: ledger.BizID(fmt.Sprint(i))},
					Options: &ledger.EnqueueOptions{RunIn: time.Microsecond}},
			)
		}
		servicetest.Try(ledger.EnqueueMany(b.Context(), b.DB, entries))(t)
	}
	// done checks that each task has either its timer or its event, and returns how many events.
	done := func(b *fixture) int {
		t.Helper()
		neitherOrBoth := servicetest.One[int](b, `select count(*)::integer from taskledger.event f
			where f.version = 1 and exists (select from taskledger.timer t where t.biz_id = f.biz_id)
			                      = exists (
			select from taskledger.event r where r.biz_id = f.biz_id and r.version = 2)`)
		if neitherOrBoth != 0 {
			t.Errorf("%d tasks have a timer and an event, or neither", neitherOrBoth)
		}
		return servicetest.One[int](b, "select count(*)::integer from taskledger.event where version = 2")
	}
	for point, want := range map[string]int{"scheduler.firing:3": 2000, "scheduler.fired:3": 3000} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			enqueue(b)
			b.SpawnAs("relay", "scheduler", point).AwaitKilled(t)
			if got := done(b); got != want {
				t.Errorf("%d events, want %d", got, want)
			}
			b.Schedule()
			b.awaitNoTimers()
			if got := done(b); got != n {
				t.Errorf("%d events, want %d", got, n)
			}
			ledgertest.Check(t, b.DB)
		})
	}
	t.Run("connection cut", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		enqueue(b)
		tx := servicetest.Try(b.DB.Begin(b.Context()))(t) // locks a task of the first batch, which waits for it
		defer func() { _ = tx.Rollback(b.Context()) }()
		first := servicetest.One[string](b, "select biz_id from taskledger.timer order by due_at, biz_id limit 1")
		servicetest.Try(ledger.Append(b.Context(), tx, ledger.AppendRequest{
			Key:      ledger.Key{Kind: "test.later", BizID: ledger.BizID(first)},
			Expected: 1,
			Type:     ledger.EventCancelled,
		}))(t)
		s := b.scheduler()
		ended := make(chan error)
		go func() { ended <- s.Step(b.Context()) }()
		b.Await("the batch to wait, and to be cut off", func() bool {
			return servicetest.One[bool](b, `
				select coalesce(bool_or(pg_terminate_backend(pid)), false) from pg_stat_activity
				 where datname = current_database() and wait_event_type = 'Lock'`)
		})
		if err := <-ended; err == nil {
			t.Error("the pass went through")
		}
		if got := done(b); got != 0 {
			t.Errorf("%d events", got)
		}
	})
}
