package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

// longPoll is a PollEvery that no test reaches: messages alone wake a wait.
const longPoll = time.Hour

// waiter starts a waiter with the given PollEvery.
func (b *bundle) waiter(nc *nats.Conn, pollEvery time.Duration) *outbox.Waiter {
	b.t.Helper()
	w, err := outbox.NewWaiter(outbox.WaiterConfig{
		DB: b.pool, NATS: nc, PollEvery: pollEvery, Logger: slog.New(slog.NewTextHandler(b.t.Output(), nil)),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(w.Close)
	return w
}

// waited is the result of a wait in another goroutine.
type waited struct {
	tasks []ledger.Task
	err   error
}

// wait waits in another goroutine, which has registered its wait when wait returns.
func (b *bundle) wait(w *outbox.Waiter, until ledger.Until, keys ...ledger.Key) <-chan waited {
	b.t.Helper()
	before := outbox.Waits(w)
	result := make(chan waited, 1)
	go func() {
		tasks, err := ledger.WaitMany(b.ctx(), w, keys, until)
		result <- waited{tasks, err}
	}()
	b.await("the wait is registered", func() bool { return outbox.Waits(w) >= before+len(keys) })
	return result
}

// end returns the result of a wait.
func (b *bundle) end(result <-chan waited) waited {
	b.t.Helper()
	select {
	case r := <-result:
		return r
	case <-time.After(patience):
		b.t.Fatalf("the wait did not end within %s", patience)
		return waited{}
	}
}

// finish appends the event with which a task finishes.
func (b *bundle) finish(key ledger.Key, typ ledger.EventType, data string) {
	b.t.Helper()
	request := ledger.AppendRequest{Key: key, Expected: 1, Type: typ, Actor: "test"}
	if data != "" {
		request.Data = []byte(data)
	}
	if _, err := ledger.Append(b.ctx(), b.pool, request); err != nil {
		b.t.Fatal(err)
	}
}

// finishAnew lets a task succeed although the connections of the pool may be broken.
func (b *bundle) finishAnew(key ledger.Key) {
	b.t.Helper()
	b.await(key.String()+" succeeds", func() bool {
		request := ledger.AppendRequest{Key: key, Expected: 1, Type: ledger.EventSucceeded}
		_, err := ledger.Append(b.ctx(), b.pool, request)
		return err == nil || ledger.IsConflict(err)
	})
}

func waitKey(id string) ledger.Key { return ledger.Key{Kind: "report.make", BizID: ledger.BizID(id)} }

// A wait ends with the outcome, whether the task finishes during the wait or has finished before it.
func TestWait(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay()
	w := b.waiter(b.nc, longPoll)
	outcomes := []struct {
		id    string
		typ   ledger.EventType
		data  string
		state ledger.State
		text  string // of the error
	}{
		{id: "a", typ: ledger.EventSucceeded, data: `{"result":{"pages":7}}`, state: ledger.StateSucceeded},
		{
			id: "ü /%", typ: ledger.EventBuried, data: `{"error":{"message":"no paper"}}`, state: ledger.StateDead,
			text: "report.make/ü /% is dead: no paper",
		},
		{
			id: "c", typ: ledger.EventCancelled, data: `{"reason":"withdrawn"}`, state: ledger.StateCancelled,
			text: "report.make/c is cancelled: withdrawn",
		},
		{id: "d", typ: ledger.EventExpired, state: ledger.StateExpired, text: "report.make/d is expired"},
		{id: "e", typ: ledger.EventDiscarded, state: ledger.StateDiscarded, text: "report.make/e is discarded"},
	}
	for _, o := range outcomes {
		k := waitKey(o.id)
		b.enqueueKey(k)
		result := b.wait(w, ledger.UntilAll, k)
		b.finish(k, o.typ, o.data)
		during := b.end(result)
		later, err := ledger.Wait(t.Context(), w, k)
		for _, r := range []waited{during, {tasks: []ledger.Task{later}, err: err}} {
			if len(r.tasks) != 1 || r.tasks[0].State != o.state || r.tasks[0].Key != k || r.tasks[0].Version != 2 {
				t.Fatalf("%s: %v", o.id, r)
			}
			var failure *ledger.TaskError
			if errors.As(r.err, &failure) != (o.text != "") || failure != nil && failure.Error() != o.text {
				t.Errorf("%s: error %v, want %q", o.id, r.err, o.text)
			}
		}
		report, err := ledger.ResultOf[struct{ Pages int }](later)
		if (err == nil) != (o.text == "") || err == nil && report.Pages != 7 {
			t.Errorf("%s: result %v, %v", o.id, report, err)
		}
		if _, err := ledger.ResultOf[string](later); o.text == "" {
			var corrupt *ledger.CorruptError
			if !errors.As(err, &corrupt) {
				t.Errorf("a result of another type: %v", err)
			}
		}
	}
	if _, err := ledger.Wait(t.Context(), w, waitKey("missing")); !errors.Is(err, ledger.ErrUnknownTask) {
		t.Errorf("a missing task: %v", err)
	}
	var invalid *ledger.InvalidError
	for _, keys := range [][]ledger.Key{nil, make([]ledger.Key, ledger.MaxWaitKeys+1)} {
		if _, err := ledger.WaitMany(t.Context(), w, keys, ledger.UntilAll); !errors.As(err, &invalid) {
			t.Errorf("%d keys: %v", len(keys), err)
		}
	}
	if _, err := ledger.WaitMany(t.Context(), w, []ledger.Key{waitKey("a")}, 7); !errors.As(err, &invalid) {
		t.Errorf("another condition: %v", err)
	}
}

func (b *bundle) enqueueKey(keys ...ledger.Key) {
	b.t.Helper()
	for _, k := range keys {
		if _, err := ledger.Enqueue(b.ctx(), b.pool, k, nil, nil); err != nil {
			b.t.Fatal(err)
		}
	}
}

// deadline is a context whose deadline has passed when over is closed.
type deadline struct {
	context.Context
	over chan struct{}
}

func (d deadline) Done() <-chan struct{} { return d.over }

func (d deadline) Err() error {
	select {
	case <-d.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// A time-out is an error of its own, and the task runs on. Other ends of the context are that of the context.
func TestWaitTimesOut(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay()
	w := b.waiter(b.nc, longPoll)
	k, other := waitKey("a"), waitKey("b")
	b.enqueueKey(k, other)
	ctx, cancel := context.WithCancel(t.Context())
	timed := deadline{ctx, make(chan struct{})}
	var tasks []ledger.Task
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tasks, err = ledger.WaitMany(timed, w, []ledger.Key{k, other}, ledger.UntilAll)
	}()
	b.await("the states are known", func() bool { return outbox.KnownWaits(w) == 2 })
	close(timed.over)
	<-ended
	var timeout *ledger.WaitTimeoutError
	if !errors.As(err, &timeout) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("after the deadline: %v", err)
	}
	if timeout.Key != k || timeout.State != ledger.StateAvailable || timeout.Unfinished != 2 || len(tasks) != 2 {
		t.Errorf("after the deadline: %+v, %v", timeout, tasks)
	}
	cancel()
	_, err = ledger.Wait(ctx, w, k)
	if !errors.Is(err, context.Canceled) || errors.As(err, new(*ledger.WaitTimeoutError)) {
		t.Errorf("after the cancellation: %v", err)
	}
	b.finish(k, ledger.EventSucceeded, "{}")
	if _, err := ledger.Wait(t.Context(), w, k); err != nil {
		t.Error(err)
	}
}

// All, any and the first error end a wait for many tasks, also if a key occurs twice.
func TestWaitMany(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay()
	w := b.waiter(b.nc, longPoll)
	for _, test := range []struct {
		until    ledger.Until
		finishes []ledger.EventType // in this order; the wait ends with the last one, and not before
	}{
		{
			until:    ledger.UntilAll,
			finishes: []ledger.EventType{ledger.EventBuried, ledger.EventSucceeded, ledger.EventCancelled},
		},
		{until: ledger.UntilAny, finishes: []ledger.EventType{ledger.EventSucceeded}},
		{until: ledger.UntilError, finishes: []ledger.EventType{ledger.EventSucceeded, ledger.EventExpired}},
		{
			until:    ledger.UntilError,
			finishes: []ledger.EventType{ledger.EventSucceeded, ledger.EventSucceeded, ledger.EventSucceeded},
		},
	} {
		keys := make([]ledger.Key, 4)
		for i := range 3 {
			keys[i] = waitKey(fmt.Sprintf("%d-%v-%d", test.until, test.finishes, i))
			b.enqueueKey(keys[i])
		}
		keys[3] = keys[0]
		result := b.wait(w, test.until, keys...)
		failed := false
		for i, typ := range test.finishes {
			select {
			case r := <-result:
				t.Fatalf("%v %v: the wait ended before task %d: %v", test.until, test.finishes, i, r)
			default:
			}
			b.finish(keys[i], typ, "{}")
			failed = failed || typ != ledger.EventSucceeded
		}
		r := b.end(result)
		if errors.As(r.err, new(*ledger.TaskError)) != failed || !failed && r.err != nil {
			t.Errorf("%v %v: error %v", test.until, test.finishes, r.err)
		}
		for i, typ := range test.finishes {
			// Messages of several types may arrive in another order than that of the events.
			isUnread := failed && test.until != ledger.UntilAll && !r.tasks[i].State.Finished()
			if isUnread && i < len(test.finishes)-1 {
				continue
			}
			if r.tasks[i].State != typ.State() {
				t.Errorf("%v %v: task %d is %q", test.until, test.finishes, i, r.tasks[i].State)
			}
		}
	}
	if n := outbox.Waits(w); n != 0 {
		t.Errorf("%d waits are left", n)
	}
}

// Outcomes wake the relay while a wait is open.
func TestWaitHasOutcomesWakeTheRelay(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	w := b.waiter(b.nc, longPoll)
	isAwaited := func() (is bool) {
		const sql = "select coalesce(taskledger_internal.is_awaited(), false)"
		if err := b.pool.QueryRow(b.ctx(), sql).Scan(&is); err != nil {
			t.Error(err)
		}
		return is
	}
	b.enqueueKey(waitKey("a"))
	if isAwaited() {
		t.Error("outcomes wake the relay, and no wait is open")
	}
	result := b.wait(w, ledger.UntilAll, waitKey("a"))
	b.await("outcomes wake the relay", isAwaited)
	b.relay()
	b.finish(waitKey("a"), ledger.EventSucceeded, "{}")
	b.end(result)
}

// Ten thousand waits in one process take one goroutine of the waiter, and leave nothing behind.
func TestTenThousandWaits(t *testing.T) {
	b := newBundle(t)
	b.relay()
	const n = 10_000
	b.enqueue("report.make", "", n)
	b.awaitPublished()
	w := b.waiter(b.nc, time.Second)
	goroutines, heap, subscriptions := runtime.NumGoroutine(), heapInUse(), b.nc.NumSubscriptions()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var waits sync.WaitGroup
	var succeeded, cancelled sync.Map
	for i := range n {
		waits.Go(func() {
			task, err := ledger.Wait(ctx, w, waitKey(fmt.Sprint(i)))
			switch {
			case err == nil && task.State == ledger.StateSucceeded:
				succeeded.Store(i, true)
			case errors.Is(err, context.Canceled):
				cancelled.Store(i, true)
			default:
				t.Errorf("%d: %v, %v", i, task, err)
			}
		})
	}
	b.await("all waits are registered", func() bool { return outbox.Waits(w) == n })
	if more := runtime.NumGoroutine() - goroutines - n; more > 10 {
		t.Errorf("%d goroutines more than the waits", more)
	}
	each := (heapInUse() - heap) / n
	if t.Logf("%d waits: %d bytes each", n, each); each > 30_000 {
		t.Errorf("a wait takes %d bytes, want at most 30,000", each)
	}
	var requests []ledger.AppendRequest
	for i := range n / 2 {
		requests = append(requests, ledger.AppendRequest{
			Key: waitKey(fmt.Sprint(i)), Expected: 1, Type: ledger.EventSucceeded,
		})
	}
	for len(requests) > 0 {
		for _, r := range ledger.AppendEach(ctx, b.pool, requests[:ledger.AppendBatch]) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		requests = requests[ledger.AppendBatch:]
	}
	b.await("half of the waits end", func() bool { return outbox.Waits(w) == n/2 })
	cancel()
	waits.Wait()
	for i := range n {
		if _, ok := succeeded.Load(i); ok != (i < n/2) {
			t.Fatalf("the wait for %d returned its success: %v", i, ok)
		}
	}
	if n := outbox.Waits(w); n != 0 {
		t.Errorf("%d waits are left", n)
	}
	b.await("no keys are left", func() bool { return outbox.WaiterEntries(w) == 0 })
	b.await("the goroutines have ended", func() bool { return runtime.NumGoroutine() <= goroutines })
	if left := b.nc.NumSubscriptions(); left > subscriptions {
		t.Errorf("%d subscriptions are left, %d before", left, subscriptions)
	}
}

// heapInUse returns the bytes of the heap that are in use.
func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// Waits last through a restart of NATS without a poll, through one in which the outcome was not published, and
// through broken connections to the database.
func TestWaitsLastThroughRestarts(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	nc, _ := b.connect()
	w := b.waiter(nc, longPoll)
	relay := b.relay()
	keys := []ledger.Key{waitKey("a"), waitKey("b"), waitKey("c")}
	b.enqueueKey(keys...)
	results := []<-chan waited{
		b.wait(w, ledger.UntilAll, keys[0]), b.wait(w, ledger.UntilAll, keys[1]), b.wait(w, ledger.UntilAll, keys[2]),
	}
	check := func(what string, i int) {
		t.Helper()
		if r := b.end(results[i]); r.err != nil {
			t.Errorf("%s: %v", what, r.err)
		}
	}
	b.server.Stop()
	b.finish(keys[0], ledger.EventSucceeded, "{}")
	relay.end() // it does not publish the outcome: the reconnect finds it
	if err := b.server.Restart(); err != nil {
		t.Fatal(err)
	}
	check("a restart of NATS", 0)
	b.relay()
	b.finish(keys[1], ledger.EventSucceeded, "{}")
	check("after a restart of NATS", 1)
	b.killConnections()
	b.finishAnew(keys[2])
	check("broken connections to the database", 2)
}

// killConnections ends all connections of the pool that are open now, but its own.
func (b *bundle) killConnections() {
	b.t.Helper()
	_, err := b.pool.Exec(b.ctx(), `select pg_terminate_backend(pid) from pg_stat_activity
		 where datname = current_database() and usename = session_user and pid <> pg_backend_pid()`)
	if err != nil {
		b.t.Fatal(err)
	}
}

// Without NATS, and for a task whose message was lost, a poll finds the outcome.
func TestWaitsPoll(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	w := b.waiter(nil, 20*time.Millisecond)
	k := waitKey("a")
	b.enqueueKey(k)
	result := b.wait(w, ledger.UntilAll, k)
	b.finish(k, ledger.EventSucceeded, "{}")
	if r := b.end(result); r.err != nil {
		t.Error(r.err)
	}
}

// Close ends the waits.
func TestWaiterCloses(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	w := b.waiter(b.nc, longPoll)
	b.enqueueKey(waitKey("a"))
	result := b.wait(w, ledger.UntilAll, waitKey("a"))
	w.Close()
	if r := b.end(result); !errors.Is(r.err, outbox.ErrWaiterClosed) {
		t.Error(r.err)
	}
	if _, err := ledger.Wait(t.Context(), w, waitKey("a")); !errors.Is(err, outbox.ErrWaiterClosed) {
		t.Error(err)
	}
	_, err := outbox.NewWaiter(outbox.WaiterConfig{PollEvery: time.Millisecond})
	const faults = "outbox: invalid WaiterConfig: DB is required\nPollEvery must be at least 10ms, got 1ms"
	if err == nil || err.Error() != faults {
		t.Errorf("a config without values: %v", err)
	}
}

// Tasks with long histories, and released ones, are waited for like others.
func TestWaitForLongAndReleasedTasks(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay()
	w := b.waiter(b.nc, longPoll)
	k := waitKey("long")
	b.enqueueKey(k)
	version := ledger.Version(1)
	for range 70 {
		version = b.append(k, version, ledger.EventStarted).Version
	}
	result := b.wait(w, ledger.UntilAll, k)
	request := ledger.AppendRequest{
		Key: k, Expected: version, Type: ledger.EventSucceeded, Data: []byte(`{"result":1}`),
	}
	if _, err := ledger.Append(t.Context(), b.pool, request); err != nil {
		t.Fatal(err)
	}
	r := b.end(result)
	want, err := ledger.Load(t.Context(), b.pool, k)
	if err != nil || r.err != nil || r.tasks[0].String() != want.String() || string(r.tasks[0].Result) != "1" {
		t.Errorf("%v, want %v (%v)", r, want, err)
	}

	k = waitKey("released")
	b.enqueueKey(k)
	b.append(k, 1, ledger.EventBuried)
	b.append(k, 2, ledger.EventReleased)
	result = b.wait(w, ledger.UntilAll, k)
	b.append(k, 3, ledger.EventSucceeded)
	if r := b.end(result); r.err != nil || r.tasks[0].Version != 4 {
		t.Errorf("a released task: %v", r)
	}
}
