package scheduler_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/nextrun"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// follow enqueues a task that may have begun.
func (b *fixture) follow(k ledger.Key, args string, o ledger.EnqueueOptions) ledger.Enqueued {
	b.T.Helper()
	o.IfExists = ledger.IfExistsFollow
	return servicetest.Try(ledger.Enqueue(b.Context(), b.As("producer"), k, json.RawMessage(args), &o))(b.T)
}

// begun enqueues a task with the login of follow, and records its start.
func (b *fixture) begun(k ledger.Key) {
	b.T.Helper()
	ledgertest.Enqueue(b.T, b.As("producer"), k, `{"n":1}`)
	ledgertest.Append(b.T, b.DB, k, ledger.EventStarted)
}

// oddID is a biz_id that is hard to find in JSON.
const oddID = `a/"b",\"of":null},"due":[1],`

// A task that has begun gets one more run, with the args and options of the last enqueue.
func TestOneRunFollows(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]string{"short": "17", "odd": oddID, "long": strings.Repeat("é", 127)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			s := b.scheduler()
			k := partKey(id)
			b.begun(k)
			by := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
			first := b.follow(k, `{"n":2}`, ledger.EnqueueOptions{StartBy: by})
			o := ledger.EnqueueOptions{
				Actor: "shop", DataVersion: 3, Priority: ledger.PriorityHigh, FinishBy: by, Meta: ledger.Meta{
					Tags: []string{`,"of":`}, Extra: map[string]json.RawMessage{"odd": json.RawMessage(`"\\,\"of\":"`)},
				},
			}
			last := b.follow(k, `{"n":3}`, o)
			for _, e := range []ledger.Enqueued{first, last} {
				if !e.New || e.State != ledger.StateRunning || e.Version != 2 || e.Position == 0 {
					t.Errorf("%+v", e)
				}
			}
			if task := b.pass(s, k); task.Version != 2 || task.Run != 1 {
				t.Fatalf("before the end: %+v", task)
			}
			waiting := servicetest.Try(ledger.Load(t.Context(), b.DB, nextrun.Of(k)))(t)
			if waiting.State != ledger.StateScheduled || string(waiting.Args) != `{"n":3}` || waiting.Version != 2 {
				t.Errorf("the run that waits: %+v", waiting)
			}
			ledgertest.Append(t, b.DB, k, ledger.EventFailed)
			if task := b.pass(s, k); task.Run != 1 {
				t.Fatalf("before the last attempt: %+v", task)
			}
			ledgertest.Append(t, b.DB, k, ledger.EventReleased, ledger.EventSucceeded)
			task := b.pass(s, k)
			if task.Run != 2 || task.State != ledger.StateAvailable || string(task.Args) != `{"n":3}` ||
				task.Priority != ledger.PriorityHigh || !task.FinishBy.Equal(by) || !task.StartBy.IsZero() {
				t.Errorf("%+v", task)
			}
			e := servicetest.Try(ledger.ArgsEvent(t.Context(), b.DB, k))(t)
			if e.Actor != "shop" || e.DataVersion != 3 || e.Login != b.As("producer").Config().ConnConfig.User {
				t.Errorf("%+v", e)
			}
			meta := servicetest.Try(ledger.ParseMeta(e.Meta))(t)
			diff := difference.Of(o.Meta.Tags, meta.Tags)
			if diff != "" || string(meta.Extra["odd"]) != `"\\,\"of\":"` {
				t.Errorf("meta %s: %s", e.Meta, diff)
			}
			if task := b.pass(s, k); task.Run != 2 {
				t.Errorf("a run too many: %+v", task)
			}

			// The next one waits behind the second run, as another run of the same task.
			ledgertest.Append(t, b.DB, k, ledger.EventStarted)
			b.follow(k, `{"n":4}`, ledger.EnqueueOptions{RunIn: time.Hour})
			ledgertest.Append(t, b.DB, k, ledger.EventSucceeded)
			if task := b.pass(s, k); task.Run != 3 || task.State != ledger.StateScheduled || task.DueAt.IsZero() {
				t.Errorf("the third run: %+v", task)
			}
			ledgertest.Append(t, b.DB, k, ledger.EventReleased, ledger.EventStarted)
			b.follow(k, `{"n":5}`, ledger.EnqueueOptions{ThrottleFor: time.Hour})
			ended := ledgertest.Append(t, b.DB, k, ledger.EventSucceeded).UpdatedAt
			if task := b.pass(s, k); task.Run != 4 || !task.DueAt.Equal(ended.Add(time.Hour)) {
				t.Errorf("the throttled run: %+v", task)
			}
			ledgertest.Check(t, b.DB)
		})
	}
}

// A run follows each end of the one before, except a cancel, which cancels it, too.
func TestWhichEndsARunFollows(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler()
	for end, want := range map[ledger.EventType]struct {
		state, waiting ledger.State
	}{
		ledger.EventSucceeded: {state: ledger.StateAvailable, waiting: ledger.StateSucceeded},
		ledger.EventBuried:    {state: ledger.StateAvailable, waiting: ledger.StateSucceeded},
		ledger.EventDiscarded: {state: ledger.StateAvailable, waiting: ledger.StateSucceeded},
		ledger.EventCancelled: {state: ledger.StateCancelled, waiting: ledger.StateCancelled},
	} {
		k := partKey(string(end))
		b.begun(k)
		b.follow(k, `{"n":2}`, ledger.EnqueueOptions{})
		ledgertest.Append(t, b.DB, k, end)
		task := b.pass(s, k)
		waiting := servicetest.Try(ledger.Load(t.Context(), b.DB, nextrun.Of(k)))(t)
		if task.State != want.state || waiting.State != want.waiting {
			t.Errorf("after %s the task is %s, and the run that waited %s", end, task.State, waiting.State)
		}
	}
	b.awaitNoAfter()
	ledgertest.Check(t, b.DB)
}

// awaitNoAfter waits until no task waits for others. Decisions have removed the timers.
func (b *fixture) awaitNoAfter() {
	b.T.Helper()
	if n := servicetest.One[int](b, "select count(*)::integer from taskledger.timer where reason = 'after'"); n != 0 {
		b.T.Errorf("%d timers are left", n)
	}
}

// A task that has not begun is replaced, and a finished one runs again at once: nothing waits behind them.
func TestFollowWithoutARunThatHasBegun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := partKey("17")
	for i, want := range []ledger.State{ledger.StateScheduled, ledger.StateScheduled, ledger.StateAvailable} {
		o := ledger.EnqueueOptions{RunIn: time.Hour}
		if i == 2 {
			o = ledger.EnqueueOptions{}
		}
		if e := b.follow(k, fmt.Sprint(i), o); !e.New || e.State != want {
			t.Errorf("%d: %+v", i, e)
		}
	}
	ledgertest.Append(t, b.DB, k, ledger.EventSucceeded)
	if e := b.follow(k, "5", ledger.EnqueueOptions{}); !e.New || e.State != ledger.StateAvailable {
		t.Errorf("%+v", e)
	}
	if _, err := ledger.Load(t.Context(), b.DB, nextrun.Of(k)); !errors.Is(err, ledger.ErrUnknownTask) {
		t.Errorf("a run waits: %v", err)
	}
}

// Callers that let a run follow, while the worker finishes the task and two schedulers decide: no request is lost, and
// none begins two runs.
func TestFollowRacesTheFinishingWorker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	schedulers := []*fixtureScheduler{{b, b.scheduler()}, {b, b.scheduler()}}
	const callers = 4
	for i := range 10 {
		k := partKey(fmt.Sprint("race-", i))
		b.begun(k)
		var group sync.WaitGroup
		for n := range callers {
			group.Go(func() {
				o := &ledger.EnqueueOptions{IfExists: ledger.IfExistsFollow}
				e, err := ledger.Enqueue(context.Background(), b.DB, k, json.RawMessage(fmt.Sprint(n)), o)
				for errors.Is(err, ledger.ErrRetryTransaction) { // the transaction is this enqueue
					e, err = ledger.Enqueue(context.Background(), b.DB, k, json.RawMessage(fmt.Sprint(n)), o)
				}
				if err != nil || !e.New {
					t.Errorf("%+v, %v", e, err)
				}
			})
		}
		group.Go(func() {
			r := ledger.AppendRequest{Key: k, Expected: 2, Type: ledger.EventSucceeded}
			if _, err := ledger.Append(context.Background(), b.DB, r); err != nil {
				t.Error(err)
			}
		})
		for _, s := range schedulers {
			group.Go(s.decide)
		}
		group.Wait()
		runs := 1
		for {
			schedulers[0].decide()
			task := servicetest.Try(ledger.Load(t.Context(), b.DB, k))(t)
			if task.Run == runs {
				break
			}
			if runs++; task.Run != runs {
				t.Fatalf("two runs began at once: %+v", task)
			}
			ledgertest.Append(t, b.DB, k, ledger.EventSucceeded)
		}
		if runs < 2 || runs > 3 { // one that began at once, because the task had finished, and one behind it
			t.Errorf("%d runs", runs)
		}
	}
	b.awaitNoAfter()
	ledgertest.Check(t, b.DB)
}

type fixtureScheduler struct {
	b *fixture
	s interface {
		ReleaseAwaiting(context.Context) (int, error)
	}
}

// decide decides all tasks. A service passes over a task that others keep locked for longer than its patience, and
// decides it later.
func (f *fixtureScheduler) decide() {
	_, err := f.s.ReleaseAwaiting(context.Background())
	for pgerr.Is(err, pgerr.LockNotAvailable) {
		_, err = f.s.ReleaseAwaiting(context.Background())
	}
	if err != nil {
		f.b.T.Error(err)
	}
}

// A restored ledger, whose timers and events are its own, goes on with the run that waits; no login can forge one.
func TestRightsOfFollowingRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := partKey("17")
	b.begun(k)
	producer := b.As("producer")
	for _, statement := range []string{
		"select taskledger_internal.begin_next('test.part', '17')",
		`select taskledger_internal.enqueue_behind('test.part', '17', '1', null, null, 1, 0, null, null, false, null,
		                                           null, null, null)`,
		`select taskledger_internal.append_run('test.part', '17', 2, 0::smallint, 2, '1', null, '', 1, 0, null, null, 1,
		                                       null, null, null)`,
		`insert into taskledger.event (version, attempt, shard, type, actor, kind, biz_id)
		 values (1, 0, 0, 'scheduled', 'p', 'taskledger.next', 'test.part/17')`,
	} {
		if _, err := producer.Exec(t.Context(), statement); !pgerr.Is(err, pgerr.InsufficientPrivilege) {
			t.Errorf("a producer may %s: %v", statement, err)
		}
	}
	b.follow(k, "2", ledger.EnqueueOptions{})
	ledgertest.Append(t, b.DB, k, ledger.EventSucceeded)
	b.pass(b.scheduler(), k)
	if _, err := ledger.Cancel(t.Context(), producer, k, nil); err != nil {
		t.Errorf("the login that enqueued the run cancels it: %v", err)
	}
}

// A run that follows takes its place in the line of its order key when it begins. While it waits, it stands in no line.
func TestRunThatFollowsLinesUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler()
	k, other := partKey(oddID), partKey("18")
	const line = `a,"of":],"due":[null],"of":null}`
	advance := func(want int) {
		t.Helper()
		var turns int
		err := b.As("relay").QueryRow(t.Context(),
			"select count(*) from taskledger_internal.advance_lines(array[$1::text])", line).Scan(&turns)
		if err != nil || turns != want {
			t.Fatalf("turns %d: %v", turns, err)
		}
	}
	o := ledger.EnqueueOptions{OrderKey: line, Partition: "tenant-7"}
	servicetest.Try(ledger.Enqueue(t.Context(), b.As("producer"), k, nil, &o))(t)
	advance(1)
	ledgertest.Append(t, b.DB, k, ledger.EventStarted)
	servicetest.Try(ledger.Enqueue(t.Context(), b.As("producer"), other, nil, &o))(t)
	b.follow(k, `{"n":2}`, ledger.EnqueueOptions{OrderKey: line, PassIfDead: true})
	if waiting := servicetest.Try(ledger.Load(t.Context(), b.DB, nextrun.Of(k)))(t); waiting.OrderKey != "" {
		t.Errorf("the run that waits: %+v", waiting)
	}
	advance(0)
	ledgertest.Append(t, b.DB, k, ledger.EventSucceeded)
	if task := b.pass(s, k); task.Run != 2 || task.State != ledger.StateInLine || task.OrderKey != line {
		t.Errorf("%+v", task)
	}
	e := servicetest.Try(ledger.ArgsEvent(t.Context(), b.DB, k))(t)
	if string(e.Meta) != `{"pass_if_dead":true}` || string(e.Data) != `{"n":2}` {
		t.Errorf("data %s, meta %s", e.Data, e.Meta)
	}
	advance(1)
	if task := servicetest.Try(ledger.Load(t.Context(), b.DB, other))(t); task.State != ledger.StateAvailable ||
		task.Partition != "tenant-7" {
		t.Errorf("the task before it in line: %+v", task)
	}
	ledgertest.Append(t, b.DB, other, ledger.EventSucceeded)
	advance(1)
	if task := servicetest.Try(ledger.Load(t.Context(), b.DB, k))(t); task.State != ledger.StateAvailable {
		t.Errorf("in its turn: %+v", task)
	}
	ledgertest.Append(t, b.DB, k, ledger.EventStarted)
	b.follow(k, `{"n":3}`, ledger.EnqueueOptions{})
	ledgertest.Append(t, b.DB, k, ledger.EventSucceeded)
	if task := b.pass(s, k); task.Run != 3 || task.State != ledger.StateAvailable || task.OrderKey != "" {
		t.Errorf("a run without an order key: %+v", task)
	}
	ledgertest.Check(t, b.DB)
}
