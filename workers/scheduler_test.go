package workers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// schedule runs a scheduler until the test ends.
func (b *bundle) schedule(fired func(workers.Firing)) {
	b.T.Helper()
	s := try(workers.NewScheduler(workers.SchedulerConfig{DB: b.DB, Fired: fired}))(b.T)
	b.Start(s.Run)
}

func (b *bundle) append(r ledger.AppendRequest) ledger.Event {
	b.T.Helper()
	return try(ledger.Append(b.Context(), b.DB, r))(b.T)
}

func (b *bundle) noTimers() {
	b.T.Helper()
	b.Await("the timers to go", func() bool { return one[int](b, "select count(*)::integer from taskledger.timer") == 0 })
}

const soon = 30 * time.Millisecond

// What is scheduled, snoozed, moved or waits for a retry is released, for that reason, when it
// is due and not before; a task without a time is left alone.
func TestSchedulerReleases(t *testing.T) {
	t.Parallel()
	b := setupDatabase(t)
	b.schedule(nil)
	b.Later("now", ledger.EnqueueOptions{})
	b.Later("far", ledger.EnqueueOptions{RunIn: time.Hour})
	reasons := map[ledger.Key]string{b.Later("scheduled", ledger.EnqueueOptions{RunIn: soon}): "due"}
	for id, r := range map[string]ledger.AppendRequest{
		`snoozed "\,{}`: {Type: ledger.EventSnoozed},
		"moved/'🎟":      {Type: ledger.EventScheduled},
		"failed":        {Type: ledger.EventFailed},
	} {
		r.Key, r.Expected, r.After = b.Later(id, ledger.EnqueueOptions{}), 1, soon
		b.append(r)
		reasons[r.Key] = map[bool]string{true: "retry", false: "due"}[r.Type == ledger.EventFailed]
	}
	for k, reason := range reasons {
		b.AwaitState(k, ledger.StateAvailable)
		history := try(ledger.History(b.Context(), b.DB, k))(t)
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
	rows := try(b.DB.Query(b.Context(), "select biz_id from taskledger.timer"))(t)
	if diff := cmp.Diff(want, try(pgx.CollectRows(rows, pgx.RowTo[string]))(t)); diff != "" {
		t.Errorf("timers (-want +got):\n%s", diff)
	}
	ledgertest.Check(t, b.DB)
}

// A timer whose task has moved on does nothing, and goes.
func TestTimersOfTasksThatMovedOn(t *testing.T) {
	t.Parallel()
	b := setupDatabase(t)
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
	b.Exec("insert into taskledger.timer values (clock_timestamp(), 'test.later', 'archived', 1, 'due'), (clock_timestamp(), 'test.later', 'archived', 1, 'finish_by')")
	b.schedule(nil)
	b.Await("all but one timer to go", func() bool { return one[int](b, "select count(*)::integer from taskledger.timer") == 1 })
	for k, want := range histories {
		if diff := cmp.Diff(want, b.EventTypes(k)); diff != "" {
			t.Errorf("%s (-before +after):\n%s", k, diff)
		}
	}
}

// start_by is about the first attempt, finish_by about the whole task.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	b := setupDatabase(t)
	passed := time.Now().Add(-time.Hour)
	start, finish := ledger.EnqueueOptions{StartBy: passed}, ledger.EnqueueOptions{FinishBy: passed}
	retried := []ledger.EventType{ledger.EventFailed}
	both := ledger.EnqueueOptions{RunIn: time.Microsecond, StartBy: passed, FinishBy: passed}
	for _, test := range []struct {
		name    string
		options ledger.EnqueueOptions
		before  []ledger.EventType
		want    ledger.State
		reason  string // of the expiry
	}{
		{"start: available", start, nil, ledger.StateExpired, "start_by"},
		{"start: scheduled", ledger.EnqueueOptions{RunIn: time.Hour, StartBy: passed}, nil, ledger.StateExpired, "start_by"},
		{"start: moved", start, []ledger.EventType{ledger.EventScheduled}, ledger.StateExpired, "start_by"},
		{"start: running", start, []ledger.EventType{ledger.EventStarted}, ledger.StateRunning, ""},
		{"start: given back", start, []ledger.EventType{ledger.EventInterrupted}, ledger.StateAvailable, ""},
		{"start: retrying", start, retried, ledger.StateRetrying, ""},
		{"start: done", start, []ledger.EventType{ledger.EventSucceeded}, ledger.StateSucceeded, ""},
		{"finish: available", finish, nil, ledger.StateExpired, "finish_by"},
		{"finish: retrying", finish, retried, ledger.StateExpired, "finish_by"},
		{"finish: given back", finish, []ledger.EventType{ledger.EventInterrupted}, ledger.StateExpired, "finish_by"},
		{"finish: snoozed", finish, []ledger.EventType{ledger.EventSnoozed}, ledger.StateExpired, "finish_by"},
		{"finish: dead", finish, []ledger.EventType{ledger.EventBuried}, ledger.StateDead, ""},
		{"finish: done", finish, []ledger.EventType{ledger.EventSucceeded}, ledger.StateSucceeded, ""},
		{"everything at once", both, nil, ledger.StateExpired, "finish_by"},
	} {
		k := b.Later(test.name, test.options)
		before := ledgertest.Append(t, b.DB, k, test.before...)
		t.Cleanup(func() {
			after := try(ledger.Load(context.Background(), b.DB, k))(t)
			history := try(ledger.History(context.Background(), b.DB, k))(t)
			var data struct{ Reason string }
			if last := history[len(history)-1]; after.State == ledger.StateExpired {
				_ = json.Unmarshal(last.Data, &data)
			}
			if after.State != test.want || data.Reason != test.reason || after.Version > before.Version+1 {
				t.Errorf("%s: %s for %q after %d events, want %s for %q", test.name, after.State, data.Reason, after.Version, test.want, test.reason)
			}
		})
	}
	b.schedule(nil)
	b.Await("what is due", func() bool {
		return one[int](b, "select count(*)::integer from taskledger.timer where due_at <= clock_timestamp()") == 0
	})
}

// A task that is at work at its deadline expires as soon as it waits again.
func TestDeadlineOfATaskAtWork(t *testing.T) {
	t.Parallel()
	b := setupDatabase(t)
	k := b.Later("1", ledger.EnqueueOptions{FinishBy: time.Now()})
	done := b.Later("2", ledger.EnqueueOptions{FinishBy: time.Now()})
	ledgertest.Append(t, b.DB, k, ledger.EventStarted)
	ledgertest.Append(t, b.DB, done, ledger.EventStarted)
	b.schedule(nil)
	b.Await("both to be looked at", func() bool {
		return one[int](b, "select count(*)::integer from taskledger.timer where due_at > clock_timestamp()") == 2
	})
	b.append(ledger.AppendRequest{Key: k, Expected: 2, Type: ledger.EventFailed, After: time.Hour})
	b.append(ledger.AppendRequest{Key: done, Expected: 2, Type: ledger.EventSucceeded})
	b.AwaitState(k, ledger.StateExpired)
	b.Await("the deadline of what is done to go", func() bool {
		return one[int](b, "select count(*)::integer from taskledger.timer where biz_id = '2'") == 0
	})
	if n := len(b.EventTypes(done)); n != 3 {
		t.Errorf("%v", b.EventTypes(done))
	}
}

// Schedulers share the work; none of it is done twice.
func TestSchedulersShare(t *testing.T) {
	t.Parallel()
	b := setupDatabase(t)
	const n = 10_000
	var entries []ledger.Entry
	for i := range n {
		entries = append(entries, ledger.Entry{Key: ledger.Key{Kind: "test.later", BizID: ledger.BizID(fmt.Sprint(i))},
			Options: &ledger.EnqueueOptions{RunIn: time.Microsecond}})
	}
	try(ledger.EnqueueMany(b.Context(), b.DB, entries))(t)
	var released [3]atomic.Int64
	for i := range released {
		b.schedule(func(f workers.Firing) {
			released[i].Add(int64(f.Released))
			if f.Timers != f.Released || f.Late <= 0 {
				t.Errorf("%+v", f)
			}
		})
	}
	b.noTimers()
	b.Await("the counts", func() bool { return released[0].Load()+released[1].Load()+released[2].Load() == n })
	if got := one[int](b, "select count(*)::integer from taskledger.event where type = 'released' and version = 2"); got != n {
		t.Errorf("%d of %d are released", got, n)
	}
	ledgertest.Check(t, b.DB)
}

// A timer whose transaction commits long after it was due is found, although the scheduler has
// gone on beyond it; and it does not look below the times of transactions that are open.
// (The transaction's id is above the xmax of every snapshot: a mark made of xmax would be wrong.)
func TestTimerThatCommitsLate(t *testing.T) {
	t.Parallel()
	b := setupDatabase(t)
	s := try(workers.NewScheduler(workers.SchedulerConfig{DB: b.DB}))(t)
	round := func(prefix string) {
		t.Helper()
		k := b.Later(prefix, ledger.EnqueueOptions{RunIn: time.Microsecond})
		for b.Task(k).State != ledger.StateAvailable {
			s.LookAlways()
			if err := s.Pass(b.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	n := 0
	roundsUntil := func(ok func() bool) {
		t.Helper()
		b.Await("the safe mark to move", func() bool { // not before the transactions of other tests have ended
			n++
			round(fmt.Sprint("round ", n))
			return ok()
		})
	}
	roundsUntil(func() bool { return !s.Safe().IsZero() })

	tx := try(b.DB.Begin(b.Context()))(t)
	late := ledger.Key{Kind: "test.later", BizID: "late"}
	try(ledger.Enqueue(b.Context(), tx, late, nil, &ledger.EnqueueOptions{RunIn: time.Microsecond}))(t)
	due := try(ledger.Load(b.Context(), tx, late))(t).DueAt
	for i := range 50 {
		round(fmt.Sprint("meanwhile ", i))
		if s.Safe().After(due) {
			t.Fatalf("the safe mark is %s, and a timer due at %s is not committed yet", s.Safe(), due)
		}
	}
	if err := tx.Commit(b.Context()); err != nil {
		t.Fatal(err)
	}
	s.LookAlways()
	if err := s.Pass(b.Context()); err != nil {
		t.Fatal(err)
	}
	if state := b.Task(late).State; state != ledger.StateAvailable {
		t.Errorf("the late task is %s", state)
	}
	roundsUntil(func() bool { return s.Safe().After(due) })
	ledgertest.Check(t, b.DB)
}

// What somebody's open transaction holds is stepped over; the others are on time.
func TestSomebodyHoldsATask(t *testing.T) {
	t.Parallel()
	b := setupDatabase(t)
	held := b.Later("held", ledger.EnqueueOptions{RunIn: time.Microsecond})
	tx := try(b.DB.Begin(b.Context()))(t)
	try(ledger.Append(b.Context(), tx, ledger.AppendRequest{Key: held, Expected: 1, Type: ledger.EventCancelled}))(t)
	var others []ledger.Key
	for i := range 200 {
		others = append(others, b.Later(fmt.Sprint(i), ledger.EnqueueOptions{RunIn: time.Microsecond}))
	}
	b.schedule(nil)
	for _, k := range others {
		b.AwaitState(k, ledger.StateAvailable)
	}
	if err := tx.Rollback(b.Context()); err != nil {
		t.Fatal(err)
	}
	b.AwaitState(held, ledger.StateAvailable)
	b.noTimers()
}

// However many tasks somebody's open transaction holds, the others are released meanwhile, those in
// between and those after them; and when it ends, so are they.
func TestSomebodyHoldsManyTasks(t *testing.T) {
	t.Parallel()
	b := setupDatabase(t)
	const n = 600
	tx := try(b.DB.Begin(b.Context()))(t)
	var held, others []ledger.Key
	for i := range n {
		k := b.Later(fmt.Sprintf("%04d", i), ledger.EnqueueOptions{RunIn: time.Microsecond})
		if i%10 == 9 {
			others = append(others, k)
			continue
		}
		held = append(held, k)
		try(ledger.Append(b.Context(), tx, ledger.AppendRequest{Key: k, Expected: 1, Type: ledger.EventCancelled}))(t)
	}
	b.schedule(nil)
	b.schedule(nil)
	b.AwaitState(b.Later("after them", ledger.EnqueueOptions{RunIn: time.Microsecond}), ledger.StateAvailable)
	for _, k := range others {
		b.AwaitState(k, ledger.StateAvailable)
		b.AwaitState(b.Later("beside "+string(k.BizID), ledger.EnqueueOptions{RunIn: time.Microsecond}), ledger.StateAvailable)
	}
	if err := tx.Rollback(b.Context()); err != nil {
		t.Fatal(err)
	}
	for _, k := range held {
		b.AwaitState(k, ledger.StateAvailable)
	}
	b.noTimers()
	ledgertest.Check(t, b.DB)
}

func TestReadTimers(t *testing.T) {
	t.Parallel()
	b := setupDatabase(t)
	read := func() workers.TimerStatus { return try(workers.ReadTimers(b.Context(), b.DB))(t) }
	if s := read(); s != (workers.TimerStatus{}) {
		t.Errorf("without timers: %+v", s)
	}
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	b.Later("1", ledger.EnqueueOptions{RunAt: at})
	if s := read(); s != (workers.TimerStatus{NextAt: at}) {
		t.Errorf("with one in an hour: %+v", s)
	}
	b.Exec("insert into taskledger.timer select clock_timestamp() - interval '1 minute', 'test.later', i::text, 1, 'due' from generate_series(1, 10001) i")
	if s := read(); s.Due != 10_000 || !s.DueCapped || s.Late() < time.Minute {
		t.Errorf("with 10,001 due: %+v", s)
	}
}

// This machine's clock is of no account: here it says the year 2000.
func TestSchedulerGoesByTheDatabasesClock(t *testing.T) {
	url := ledgertest.URL(t)
	synctest.Test(t, func(t *testing.T) {
		if year := time.Now().Year(); year != 2000 {
			t.Fatalf("the year is %d", year)
		}
		ctx := context.Background()
		db := try(pgxpool.New(ctx, url))(t)
		defer db.Close()
		s := try(workers.NewScheduler(workers.SchedulerConfig{DB: db}))(t)
		k := ledger.Key{Kind: "test.later", BizID: "1"}
		try(ledger.Enqueue(ctx, db, k, nil, &ledger.EnqueueOptions{RunIn: 100 * time.Millisecond}))(t)
		for try(ledger.Load(ctx, db, k))(t).State != ledger.StateAvailable {
			s.LookAlways()
			if err := s.Pass(ctx); err != nil {
				t.Fatal(err)
			}
		}
		history := try(ledger.History(ctx, db, k))(t)
		if late := history[1].RecordedAt.Sub(history[0].DueAt()); late < 0 || late > time.Minute {
			t.Errorf("released %s after it was due", late)
		}
	})
}

// A scheduler process that is killed before or after a batch, or whose connection is cut in the
// middle of one, has done all of it or nothing.
func TestSchedulerKilled(t *testing.T) {
	t.Parallel()
	const n = 5000
	enqueue := func(b *bundle) {
		var entries []ledger.Entry
		for i := range n {
			entries = append(entries, ledger.Entry{Key: ledger.Key{Kind: "test.later", BizID: ledger.BizID(fmt.Sprint(i))},
				Options: &ledger.EnqueueOptions{RunIn: time.Microsecond}})
		}
		try(ledger.EnqueueMany(b.Context(), b.DB, entries))(t)
	}
	// done checks that each task has either its timer or its event, and returns how many events.
	done := func(b *bundle) int {
		t.Helper()
		neitherOrBoth := one[int](b, `select count(*)::integer from taskledger.event f
			where f.version = 1 and exists (select from taskledger.timer t where t.biz_id = f.biz_id)
			                      = exists (select from taskledger.event r where r.biz_id = f.biz_id and r.version = 2)`)
		if neitherOrBoth != 0 {
			t.Errorf("%d tasks have a timer and an event, or neither", neitherOrBoth)
		}
		return one[int](b, "select count(*)::integer from taskledger.event where version = 2")
	}
	for point, want := range map[string]int{"scheduler.firing:3": 2000, "scheduler.fired:3": 3000} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b := setupDatabase(t)
			enqueue(b)
			b.Spawn("scheduler", point).AwaitKilled(t)
			if got := done(b); got != want {
				t.Errorf("%d events, want %d", got, want)
			}
			b.schedule(nil)
			b.noTimers()
			if got := done(b); got != n {
				t.Errorf("%d events, want %d", got, n)
			}
			ledgertest.Check(t, b.DB)
		})
	}
	t.Run("connection cut", func(t *testing.T) {
		t.Parallel()
		b := setupDatabase(t)
		enqueue(b)
		tx := try(b.DB.Begin(b.Context()))(t) // holds a task of the first batch, so that this one waits in its midst
		defer func() { _ = tx.Rollback(b.Context()) }()
		first := one[string](b, "select biz_id from taskledger.timer order by due_at, biz_id limit 1")
		try(ledger.Append(b.Context(), tx, ledger.AppendRequest{
			Key: ledger.Key{Kind: "test.later", BizID: ledger.BizID(first)}, Expected: 1, Type: ledger.EventCancelled}))(t)
		s := try(workers.NewScheduler(workers.SchedulerConfig{DB: b.DB}))(t)
		ended := make(chan error)
		go func() { ended <- s.Pass(b.Context()) }()
		b.Await("the batch to wait, and to be cut off", func() bool {
			return one[bool](b, `select coalesce(bool_or(pg_terminate_backend(pid)), false) from pg_stat_activity
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
