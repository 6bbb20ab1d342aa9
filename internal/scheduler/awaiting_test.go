package scheduler_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/scheduler"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

func partKey(id string) ledger.Key { return ledger.Key{Kind: "test.part", BizID: ledger.BizID(id)} }

// join enqueues a task after others.
func (b *fixture) join(id string, otherwise ledger.Otherwise, after ...ledger.Key) ledger.Key {
	b.T.Helper()
	k := ledger.Key{Kind: "test.join", BizID: ledger.BizID(id)}
	o := &ledger.EnqueueOptions{After: after, Otherwise: otherwise}
	e := servicetest.Try(ledger.Enqueue(b.Context(), b.DB, k, nil, o))(b.T)
	if !e.New || e.State != ledger.StateScheduled {
		b.T.Errorf("%s: %+v, want a new scheduled task", k, e)
	}
	return k
}

// end appends the event with which a task ends, after its first version.
func (b *fixture) end(k ledger.Key, t ledger.EventType) {
	b.T.Helper()
	b.append(ledger.AppendRequest{Key: k, Expected: 1, Type: t})
}

// pass makes a scheduler decide about the waiting tasks, and returns the task.
func (b *fixture) pass(s *scheduler.Scheduler, k ledger.Key) ledger.Task {
	b.T.Helper()
	servicetest.Try(s.ReleaseAwaiting(b.Context()))(b.T)
	return servicetest.Try(ledger.Load(b.Context(), b.DB, k))(b.T)
}

// A task waits until all of its predecessors have succeeded. Its producer chooses the consequence of a failure.
func TestTasksAfterOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler()
	for i, test := range []struct {
		name      string
		otherwise ledger.Otherwise
		ends      []ledger.EventType // of the predecessors, one after the other
		states    []ledger.State     // of the task after each
	}{
		{
			name: "success", ends: []ledger.EventType{ledger.EventSucceeded, ledger.EventSucceeded},
			states: []ledger.State{ledger.StateScheduled, ledger.StateAvailable},
		},
		{
			name: "cancel", ends: []ledger.EventType{ledger.EventBuried, ledger.EventSucceeded},
			states: []ledger.State{ledger.StateCancelled, ledger.StateCancelled},
		},
		{
			name: "run", otherwise: ledger.OtherwiseRun,
			ends:   []ledger.EventType{ledger.EventCancelled, ledger.EventExpired},
			states: []ledger.State{ledger.StateScheduled, ledger.StateAvailable},
		},
		{
			name: "wait", otherwise: ledger.OtherwiseWait,
			ends:   []ledger.EventType{ledger.EventBuried, ledger.EventSucceeded},
			states: []ledger.State{ledger.StateScheduled, ledger.StateScheduled},
		},
	} {
		parts := []ledger.Key{partKey(fmt.Sprint(i, "a")), partKey(fmt.Sprint(i, "b"))}
		for _, k := range parts {
			ledgertest.Enqueue(t, b.DB, k, "{}")
		}
		k := b.join(test.name, test.otherwise, parts[0], parts[1], parts[0])
		if task := b.pass(s, k); task.State != ledger.StateScheduled || !task.DueAt.IsZero() || len(task.After) != 2 {
			t.Errorf("%s: %+v before its predecessors", test.name, task)
		}
		for j, end := range test.ends {
			b.end(parts[j], end)
			if task := b.pass(s, k); task.State != test.states[j] {
				t.Errorf("%s: %s after %s, want %s", test.name, task.State, end, test.states[j])
			}
		}
	}
	// The operator releases the dead predecessor, and it succeeds.
	waiting, dead := ledger.Key{Kind: "test.join", BizID: "wait"}, partKey("3a")
	b.append(ledger.AppendRequest{Key: dead, Expected: 2, Type: ledger.EventReleased})
	b.append(ledger.AppendRequest{Key: dead, Expected: 3, Type: ledger.EventSucceeded})
	if task := b.pass(s, waiting); task.State != ledger.StateAvailable {
		t.Errorf("wait: %s after the release of its predecessor", task.State)
	}
	// A task whose predecessors have succeeded before it was enqueued, and a task that an operator releases.
	k := b.join("late", "", partKey("0a"))
	if task := b.pass(s, k); task.State != ledger.StateAvailable {
		t.Errorf("%s after a predecessor that had succeeded", task.State)
	}
	ledgertest.Enqueue(t, b.DB, partKey("open"), "{}")
	k = b.join("released", "", partKey("open"))
	b.end(k, ledger.EventReleased)
	if task := b.pass(s, k); task.Version != 2 {
		t.Errorf("version %d after a release by hand", task.Version)
	}
	if n := servicetest.Try(s.ReleaseAwaiting(t.Context()))(t); n != 0 {
		t.Errorf("%d tasks wait at the end", n)
	}
	b.awaitNoTimers()
	history := servicetest.Try(ledger.History(t.Context(), b.DB, ledger.Key{Kind: "test.join", BizID: "cancel"}))(t)
	if reason := history[1].ErrorText(); reason != "its predecessor test.part/1a is dead" {
		t.Errorf("reason %q", reason)
	}
	ledgertest.Check(t, b.DB)
}

// Many waiting tasks of one kind delay no task of another kind, and each gets its turn.
func TestWaitingTasksDelayNoOtherKind(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler()
	s.ShortTurns()
	open, done := partKey("open"), partKey("done")
	ledgertest.Enqueue(t, b.DB, open, "{}")
	ledgertest.Enqueue(t, b.DB, done, "{}")
	const backlog = 5 * scheduler.AwaitingPage
	const fill = `
		select count(*) from generate_series(1, $1) i
		 cross join lateral taskledger.enqueue('test.backlog', to_char(i, 'FM00000'), after =>
		   '{"keys":[{"kind":"test.part","biz_id":"open"}]}') e`
	if _, err := b.DB.Exec(t.Context(), fill, backlog); err != nil {
		t.Fatal(err)
	}
	status := servicetest.Try(scheduler.ReadTimers(t.Context(), b.DB))(t)
	if status != (scheduler.TimerStatus{}) {
		t.Errorf("timers of tasks with predecessors: %+v, want none that is due", status)
	}
	first := b.join("first", "", done)
	servicetest.Try(s.ReleaseAwaiting(t.Context()))(t) // some turns before the predecessor ends
	b.end(done, ledger.EventSucceeded)
	if n := servicetest.Try(s.ReleaseAwaiting(t.Context()))(t); n > 3*scheduler.AwaitingPage {
		t.Errorf("a pass has read %d tasks, most of a kind with %d that wait", n, backlog)
	}
	if task := servicetest.Try(ledger.Load(t.Context(), b.DB, first))(t); task.State != ledger.StateAvailable {
		t.Errorf("%s is %s behind a backlog of another kind", first, task.State)
	}
	b.end(open, ledger.EventSucceeded)
	for range backlog / scheduler.AwaitingPage {
		servicetest.Try(s.ReleaseAwaiting(t.Context()))(t)
	}
	if n := servicetest.Try(s.ReleaseAwaiting(t.Context()))(t); n != 0 {
		t.Errorf("%d tasks still wait", n)
	}
}

// Predecessors that finish at the same moment, in transactions that do not see each other, release their successor
// once.
func TestPredecessorsFinishTogether(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Schedule()
	b.Schedule()
	const n = 40
	for i := range n {
		parts := []ledger.Key{partKey(fmt.Sprint(i, "a")), partKey(fmt.Sprint(i, "b"))}
		for _, k := range parts {
			ledgertest.Enqueue(t, b.DB, k, "{}")
		}
		var both, commits sync.WaitGroup
		both.Add(len(parts))
		for _, k := range parts {
			commits.Go(func() {
				err := pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error {
					request := ledger.AppendRequest{Key: k, Expected: 1, Type: ledger.EventSucceeded}
					_, err := ledger.Append(t.Context(), tx, request)
					both.Done()
					both.Wait() // both have appended, and neither has committed
					return err
				})
				if err != nil {
					t.Error(err)
				}
			})
			if k == parts[0] {
				b.join(fmt.Sprint(i), "", parts...)
			}
		}
		commits.Wait()
	}
	b.Await("all successors to be available", func() bool {
		return servicetest.One[int](b, `select count(*)::integer from taskledger.event
			where kind = 'test.join' and type = 'released'`) == n
	})
	b.awaitNoTimers()
	if most := servicetest.One[int](b, "select max(version)::integer from taskledger.event"); most != 2 {
		t.Errorf("a task has version %d", most)
	}
	ledgertest.Check(t, b.DB)
}

// A scheduler that is killed after the release of a task leaves its timer, which the next one removes.
func TestSchedulerKilledAfterRelease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ledgertest.Enqueue(t, b.DB, partKey("a"), "{}")
	k := b.join("a", "", partKey("a"))
	b.end(partKey("a"), ledger.EventSucceeded)
	b.SpawnAs("relay", "scheduler", scheduler.PointAwaited).AwaitKilled(t)
	if n := servicetest.One[int](b, "select count(*)::integer from taskledger.timer"); n != 1 {
		t.Errorf("%d timers after the kill", n)
	}
	b.Schedule()
	b.awaitNoTimers()
	if task := servicetest.Try(ledger.Load(t.Context(), b.DB, k))(t); task.Version != 2 {
		t.Errorf("version %d, want 2", task.Version)
	}
}

// A task that another transaction has locked, and predecessors that no program can read, hold up no other task.
func TestLockedSuccessorHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler()
	ledgertest.Enqueue(t, b.DB, partKey("a"), "{}")
	locked, free := b.join("a", "", partKey("a")), b.join("b", "", partKey("a"))
	ledgertest.ExecAsOwner(t, b.DB, `
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id, actor, meta)
		select 1, 0, 0, 'scheduled', 'test.join', 'odd' || i, 'x', m::json
		  from unnest(array['{"after":7}', '{"after":{"keys":[{"kind":"\\u0000"}],"otherwise":"run"}}', '{}', '[]'])
		       with ordinality as u(m, i)`)
	ledgertest.ExecAsOwner(t, b.DB, `
		insert into taskledger.timer (due_at, kind, biz_id, version, reason)
		select taskledger_internal.end_of_time(), 'test.join', 'odd' || i, 1, 'after' from generate_series(1, 5) i`)
	b.end(partKey("a"), ledger.EventSucceeded)
	tx := servicetest.Try(b.DB.Begin(t.Context()))(t)
	defer func() { _ = tx.Rollback(t.Context()) }()
	servicetest.Try(ledger.Append(t.Context(), tx,
		ledger.AppendRequest{Key: locked, Expected: 1, Type: ledger.EventCancelled}))(t)
	_, err := s.ReleaseAwaiting(t.Context())
	if err == nil || !strings.Contains(err.Error(), "test.join/a") {
		t.Errorf("the error of a locked task is %v", err)
	}
	if task := servicetest.Try(ledger.Load(t.Context(), b.DB, free))(t); task.State != ledger.StateAvailable {
		t.Errorf("the other task is %s", task.State)
	}
}

// counted starts a scheduler whose statements are counted.
func (b *fixture) counted() *statementCounter {
	b.T.Helper()
	counter := &statementCounter{n: make(map[string]int)}
	config := b.As("relay").Config()
	config.ConnConfig.Tracer = counter
	db := servicetest.Try(pgxpool.NewWithConfig(b.Context(), config))(b.T)
	s := servicetest.Try(scheduler.New(scheduler.Config{DB: db}))(b.T)
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	b.T.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			b.T.Error(err)
		}
		db.Close()
	})
	return counter
}

// The cancellation of the first task of a chain reaches the last one in one pass, however long the chain is and in
// whatever order its tasks are read.
func TestChainIsCancelledAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ledgertest.Enqueue(t, b.DB, partKey("first"), "{}")
	const n = 2*scheduler.AwaitingPage + 100
	last := partKey("first")
	for i := range n {
		last = b.join(fmt.Sprintf("%x", (i*7919)%n), "", last)
	}
	s := b.scheduler()
	if task := b.pass(s, last); task.State != ledger.StateScheduled {
		t.Fatalf("%s is %s before its predecessors", last, task.State)
	}
	b.end(partKey("first"), ledger.EventCancelled)
	if task := b.pass(s, last); task.State != ledger.StateCancelled {
		t.Errorf("after one pass %s is %s", last, task.State)
	}
	b.awaitNoTimers()
	ledgertest.Check(t, b.DB)
}

// Each end of a task releases the next one of a chain by its event: the tasks that wait are not read again for it.
func TestChainOfSuccesses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const n = 40
	ledgertest.Enqueue(t, b.DB, partKey("first"), "{}")
	chain := []ledger.Key{partKey("first")}
	for i := range n {
		chain = append(chain, b.join(fmt.Sprint(i), "", chain[i]))
	}
	counter := b.counted()
	b.Await("the first walk", func() bool { return counter.count("awaiting.sql") >= 2 })
	b.end(chain[0], ledger.EventSucceeded)
	for _, k := range chain[1:] {
		b.AwaitState(k, ledger.StateAvailable)
		b.append(ledger.AppendRequest{Key: k, Expected: 2, Type: ledger.EventSucceeded})
	}
	if walks := counter.count("awaiting.sql"); walks > n/2 {
		t.Errorf("the tasks that wait were read %d times for %d ends", walks, n)
	}
	b.awaitNoTimers()
}

// Waiting tasks of many kinds delay no task of another kind, even if only a part of them fits into memory.
func TestManyKindsOfWaitingTasksDelayNoOther(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ledgertest.Enqueue(t, b.DB, partKey("open"), "{}")
	const kinds, each, probes = 300, 20, 10
	if _, err := b.DB.Exec(t.Context(), `
		select count(*) from generate_series(1, $1) k cross join generate_series(1, $2) i
		 cross join lateral taskledger.enqueue('test.backlog-' || k, i::text, after =>
		   '{"keys":[{"kind":"test.part","biz_id":"open"}]}') e`, kinds, each); err != nil {
		t.Fatal(err)
	}
	counter := b.counted()
	b.Await("the first walk", func() bool {
		return counter.count("awaiting.sql") > kinds*each/scheduler.AwaitingPage
	})
	read := 0
	for i := range probes {
		p := partKey(fmt.Sprint(i))
		ledgertest.Enqueue(t, b.DB, p, "{}")
		k := b.join(fmt.Sprint(i), "", p)
		before := counter.count("awaiting.sql")
		b.end(p, ledger.EventSucceeded)
		b.AwaitState(k, ledger.StateAvailable)
		read += counter.count("awaiting.sql") - before
	}
	if walk := kinds * each / scheduler.AwaitingPage; read > 3*walk {
		t.Errorf("%d pages of waiting tasks were read for %d ends; a walk has %d", read, probes, walk)
	}
}

// Tasks that do not fit into memory are released by walks.
func TestMoreWaitingTasksThanAreKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const n = 50
	var tasks []ledger.Key
	for i := range n {
		p := partKey(fmt.Sprint(i))
		ledgertest.Enqueue(t, b.DB, p, "{}")
		tasks = append(tasks, b.join(fmt.Sprint(i), "", p))
	}
	s := b.scheduler()
	s.KeepSuccessors(7)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	for i, k := range tasks {
		b.end(partKey(fmt.Sprint(i)), ledger.EventSucceeded)
		b.AwaitState(k, ledger.StateAvailable)
	}
	b.awaitNoTimers()
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A task that does not fit into memory, and that another transaction has locked during several walks, is decided once
// when the lock ends.
func TestLockedSuccessorIsQueuedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler()
	s.KeepSuccessors(0)
	ledgertest.Enqueue(t, b.DB, partKey("a"), "{}")
	locked := b.join("a", "", partKey("a"))
	b.end(partKey("a"), ledger.EventSucceeded)
	tx := servicetest.Try(b.DB.Begin(t.Context()))(t)
	defer func() { _ = tx.Rollback(t.Context()) }()
	servicetest.Try(ledger.Append(t.Context(), tx,
		ledger.AppendRequest{Key: locked, Expected: 1, Type: ledger.EventCancelled}))(t)
	for range 3 {
		if _, err := s.ReleaseAwaiting(t.Context()); err == nil {
			t.Fatal("a locked task is decided without an error")
		}
	}
	if n := s.Retries(); n != 1 {
		t.Errorf("%d retries of one task", n)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Await("the task is released, and nothing is to be retried", func() bool {
		if _, err := s.ReleaseAwaiting(t.Context()); err != nil {
			t.Error(err)
		}
		return s.Retries() == 0
	})
	if task := servicetest.Try(ledger.Load(t.Context(), b.DB, locked))(t); task.State != ledger.StateAvailable {
		t.Errorf("the task is %s", task.State)
	}
}

// When a new task displaces others from memory, the walk that finds these again does not wait for as long as one after
// which all are known.
func TestDisplacedSuccessorsAreFoundSoon(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler()
	s.KeepSuccessors(1)
	for _, id := range []string{"a", "b"} {
		ledgertest.Enqueue(t, b.DB, partKey(id), "{}")
	}
	b.join("a", "", partKey("a"))
	servicetest.Try(s.ReleaseAwaiting(t.Context()))(t)
	known := s.NextWalk()
	later := b.join("b", "", partKey("b"))
	s.Note(servicetest.Try(ledger.History(t.Context(), b.DB, later))(t))
	if next := s.NextWalk(); !next.Before(known) {
		t.Errorf("the next walk is at %v, want it before %v, as all tasks were known", next, known)
	}
}
