package workers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// outcomeData is the data of the event of an outcome.
type outcomeData struct {
	Reason  string
	Error   struct{ Message, Type, Fingerprint, Stack string }
	RetryAt time.Time `json:"retry_at"`
	RunAt   time.Time `json:"run_at"`
	Worker  string
}

func (b *bundle) data(e ledger.Event) (d outcomeData) {
	b.T.Helper()
	if err := json.Unmarshal(e.Data, &d); err != nil {
		b.T.Fatalf("%s %s: %v", e.Type, e.Data, err)
	}
	return d
}

// returns is a handler that returns err.
func returns(err error) func(context.Context, *workers.Job, orderArgs) error {
	return func(context.Context, *workers.Job, orderArgs) error { return err }
}

// A handler's error decides the outcome, however deeply it is wrapped.
func TestHandlerErrors(t *testing.T) {
	t.Parallel()
	const ladder = time.Hour
	moment := time.Now().Add(3 * time.Hour).UTC().Truncate(time.Microsecond)
	never := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	enqueued, failed := ledger.EventEnqueued, ledger.EventFailed
	tests := map[string]struct {
		err    error
		events []ledger.EventType
		after  time.Duration // from the record to the release
		at     time.Time
		text   string
		errorT string // type of the error
	}{
		"plain": {
			err:    errBoom,
			events: []ledger.EventType{enqueued, failed},
			after:  ladder,
			at:     time.Time{},
			text:   "boom",
			errorT: "*errors.errorString",
		},
		"retry in": {
			err:    workers.RetryIn(2*time.Hour, errBoom),
			events: []ledger.EventType{enqueued, failed},
			after:  2 * time.Hour,
			at:     time.Time{},
			text:   "boom",
			errorT: "*errors.errorString",
		},
		"retry at": {
			err:    fmt.Errorf("call: %w", workers.RetryAt(moment, errBoom)),
			events: []ledger.EventType{enqueued, failed},
			after:  0,
			at:     moment,
			text:   "call: boom",
			errorT: "*errors.errorString",
		},
		"retry never": {
			err:    workers.RetryAt(never, errBoom),
			events: []ledger.EventType{enqueued, failed},
			after:  ladder,
			at:     time.Time{},
			text:   "boom",
			errorT: "*errors.errorString",
		},
		"retry for no": {
			err:    workers.RetryIn(2*time.Hour, nil),
			events: []ledger.EventType{enqueued, failed},
			after:  2 * time.Hour,
			at:     time.Time{},
			text:   "requested",
			errorT: "*workers.retryError",
		},
		"permanent": {
			err:    fmt.Errorf("call: %w", workers.Permanent(errBoom)),
			events: []ledger.EventType{enqueued, failed, ledger.EventBuried},
			after:  0,
			at:     time.Time{},
			text:   "call: boom",
			errorT: "*errors.errorString",
		},
		"snooze for": {
			err:    workers.SnoozeFor(2 * time.Hour),
			events: []ledger.EventType{enqueued, ledger.EventSnoozed},
			after:  2 * time.Hour,
			at:     time.Time{},
			text:   "",
			errorT: "",
		},
		"snooze until": {
			err:    errors.Join(errBoom, workers.SnoozeUntil(moment)),
			events: []ledger.EventType{enqueued, ledger.EventSnoozed},
			after:  0,
			at:     moment,
			text:   "",
			errorT: "",
		},
		"snooze forever": {
			err:    workers.SnoozeUntil(never),
			events: []ledger.EventType{enqueued, failed},
			after:  ladder,
			at:     time.Time{},
			text:   "9999",
			errorT: "*ledger.InvalidError",
		},
		"discard": {
			err:    workers.Discard("withdrawn"),
			events: []ledger.EventType{enqueued, ledger.EventStarted, ledger.EventDiscarded},
			after:  0,
			at:     time.Time{},
			text:   "withdrawn",
			errorT: "",
		},
	}
	b := setup(t)
	b.Dispatch()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			b.Work(workers.Config{}, b.atLeast(returns(test.err), &workers.KindConfig{
				Retry: ledger.RetryPolicy{Ladder: []time.Duration{ladder}, Attempts: 3, Jitter: -1},
			}))
			k := b.Enqueue("o-1")
			b.Await("the outcome", func() bool { return len(b.History(k)) >= len(test.events) })
			if diff := difference.Of(test.events, b.EventTypes(k)); diff != "" {
				t.Fatalf("events (-want +got):\n%s", diff)
			}
			if task := b.Task(k); task.Attempt != 1 {
				t.Errorf("attempt %d", task.Attempt)
			}
			history := b.History(k)
			last := history[len(history)-1]
			data := b.data(last)
			due := data.RetryAt
			if last.Type == ledger.EventSnoozed {
				due = data.RunAt
			}
			switch took := due.Sub(last.RecordedAt); {
			case test.after != 0 && (took > test.after || took < test.after-time.Second):
				t.Errorf("due %s after it was recorded, want %s", took, test.after)
			case test.after == 0 && !due.Equal(test.at):
				t.Errorf("due at %s, want %s", due, test.at)
			}
			if !strings.Contains(data.Error.Message+data.Reason, test.text) || data.Error.Type != test.errorT {
				t.Errorf("data %s, want %q of type %q", last.Data, test.text, test.errorT)
			}
			if test.errorT != "" && data.Error.Fingerprint != ledger.Fingerprint(test.errorT, data.Error.Message) {
				t.Errorf("fingerprint %q", data.Error.Fingerprint)
			}
		})
	}
}

// Snoozes and interruptions use no attempt: a task that may fail only once survives any number of them, and no
// attempt number is assigned twice.
func TestSnoozesAndInterruptionsUseNoAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	var calls atomic.Int32
	attempts := make(chan ledger.Attempt, 100)
	register := b.atLeast(func(ctx context.Context, job *workers.Job, _ orderArgs) error {
		attempts <- job.Attempt
		switch n := calls.Add(1); {
		case n%2 == 0 && n <= 6:
			<-ctx.Done()
			return ctx.Err()
		case n <= 6:
			return workers.SnoozeFor(time.Millisecond)
		}
		return nil
	}, &workers.KindConfig{Retry: ledger.RetryPolicy{Attempts: 1}})
	k := b.Enqueue("o-1")
	for round := range int32(3) {
		w := b.Work(workers.Config{StopTimeout: time.Millisecond}, register)
		b.Await(
			"a snooze", func() bool { return calls.Load() == 2*round+1 && b.Task(k).State == ledger.StateScheduled },
		)
		b.release(k)
		b.Await("a handler that waits", func() bool { return calls.Load() == 2*round+2 })
		w.Stop()
	}
	b.Work(workers.Config{}, register)
	b.AwaitState(k, ledger.StateSucceeded)
	if task := b.Task(k); task.Failures != 0 || task.Attempt != 7 {
		t.Errorf("%d failures in %d attempts, want none in 7; events: %v", task.Failures, task.Attempt, b.EventTypes(k))
	}
	close(attempts)
	want := ledger.Attempt(0)
	for n := range attempts {
		if want++; n != want {
			t.Errorf("attempt %d was given the number %d", want, n)
		}
	}
}

// release makes a task available, as an operator does.
func (b *bundle) release(k ledger.Key) {
	b.T.Helper()
	task := b.Task(k)
	try(
		ledger.Append(b.Context(), b.DB,
			ledger.AppendRequest{Key: k, Expected: task.Version, Type: ledger.EventReleased, Actor: "operator"}),
	)(b.T)
}

// A task that was released from dead starts with all its attempts, and its next attempt has a new number.
func TestReleasedFromDeadStartsAnew(t *testing.T) {
	t.Parallel()
	for name, buried := range map[string]error{"used up": errBoom, "permanent": workers.Permanent(errBoom)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.Dispatch()
			var repaired atomic.Bool
			var failures atomic.Int32
			b.Work(workers.Config{}, b.atLeast(func(context.Context, *workers.Job, orderArgs) error {
				if !repaired.Load() {
					return buried
				}
				if failures.Add(1) <= 2 { // the limit is three
					return errBoom
				}
				return nil
			}, &workers.KindConfig{Retry: ledger.RetryPolicy{Attempts: 3}}))
			k := b.Enqueue("o-1")
			b.AwaitState(k, ledger.StateDead)
			before := b.Task(k)
			if before.Fingerprint == "" || before.Attempt != ledger.Attempt(before.Failures) {
				t.Errorf("dead with fingerprint %q, %d failures in %d attempts",
					before.Fingerprint, before.Failures, before.Attempt)
			}
			repaired.Store(true)
			b.release(k)
			b.AwaitState(k, ledger.StateSucceeded)
			if after := b.Task(k); after.Failures != 2 || after.Attempt != before.Attempt+3 {
				t.Errorf("%d failures, attempt %d after %d; events: %v",
					after.Failures, after.Attempt, before.Attempt, b.EventTypes(k))
			}
		})
	}
}

// A task's own policy replaces its kind's; an invalid policy is ignored.
func TestTasksOwnRetryPolicy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	b.Work(workers.Config{}, b.atLeast(returns(errBoom), &workers.KindConfig{
		Retry: ledger.RetryPolicy{Ladder: []time.Duration{time.Hour}, Jitter: -1},
	}))
	own := ledger.Key{Kind: order.Name(), BizID: "own"}
	policy := ledger.RetryPolicy{Ladder: []time.Duration{0}}
	try(ledger.Enqueue(b.Context(), b.DB, own, json.RawMessage(`{}`), &ledger.EnqueueOptions{Retry: &policy}))(t)
	foreign := ledger.Key{Kind: order.Name(), BizID: "foreign"}
	b.Forge(`insert into taskledger.event (version, attempt, shard, type, kind, biz_id, data, meta)
		values (1, 0, 0, 'enqueued', $1, $2, '{}', '{"retry":"now and then"}')`,
		string(foreign.Kind), string(foreign.BizID))
	b.AwaitState(own, ledger.StateDead)
	if task := b.Task(own); task.Failures != 2 {
		t.Errorf("dead after %d failures, want 2", task.Failures)
	}
	b.AwaitState(foreign, ledger.StateRetrying)
	history := b.History(foreign)
	failed := history[len(history)-1] // after a start, if that took long
	if delay := b.data(failed).RetryAt.Sub(failed.RecordedAt).Round(time.Minute); delay != time.Hour {
		t.Errorf("retried after %s, want the delay of the kind", delay)
	}
}

// Many tasks that fail together are not released together.
func TestRetryStormSpreads(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	b.Work(workers.Config{}, b.atLeast(returns(errBoom), &workers.KindConfig{
		Slots: 16, Retry: ledger.RetryPolicy{Unit: time.Hour, Jitter: 0.5},
	}))
	const tasks, slices = 1000, 10
	b.EnqueueMany(tasks)
	b.Await("all to fail", func() bool {
		return one[int](b, "select count(*)::integer from taskledger.event where type = 'failed'") == tasks
	})
	// The jittered part of the delay, in tenths: from half an hour to an hour.
	var counts [slices]int
	rows := try(b.DB.Query(b.Context(), `
		select width_bucket(extract(epoch from (data->>'retry_at')::timestamptz - recorded_at)::float8,
			1800, 3600.0001, 10)
			as tenth, count(*)::integer
		  from taskledger.event where type = 'failed' group by tenth`))(t)
	for rows.Next() {
		var tenth, n int
		if err := rows.Scan(&tenth, &n); err != nil {
			t.Fatal(err)
		}
		if tenth < 1 || tenth > slices {
			// the clock is read a moment before the event is recorded
			tenth = min(max(tenth, 1), slices)
		}
		counts[tenth-1] += n
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for tenth, n := range counts { // 100 ± 9.5; ten times that is chance once in 10^21
		if n < 50 || n > 150 {
			t.Errorf("tenth %d of the spread has %d of %d tasks: %v", tenth, n, tasks, counts)
		}
	}
}
