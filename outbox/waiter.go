package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// WaiterConfig configures a waiter.
type WaiterConfig struct {
	// DB is the primary database, with the role subscriber, or another role that reads events. Required. The waiter
	// uses one connection at a time.
	DB *pgxpool.Pool
	// NATS is a connection of the user waiter, worker, operator, relay or admin, which receives the outcomes of tasks.
	// Default: the waiter polls, and each wait takes up to PollEvery longer.
	NATS *nats.Conn
	// PollEvery is the time between two reads of all tasks that are waited for, which find outcomes without a message.
	// Default: 5 s; at least 10 ms.
	PollEvery time.Duration
	// Logger logs outages and missing rights. Default: [slog.Default].
	Logger *slog.Logger
}

// Defaults and limits of [WaiterConfig].
const (
	defaultPollEvery = 5 * time.Second

	// waiterBatch is the number of tasks that one statement reads.
	waiterBatch = 1000
	// waiterTimeout bounds one read, so that a broken connection does not stop all waits.
	waiterTimeout = 10 * time.Second
	// awaitedFor is how long outcomes wake the relay, and renewEvery is when the waiter asks for that again.
	awaitedFor, renewEvery = 30 * time.Second, 10 * time.Second
	// flushTimeout bounds the time until the server has received the subscriptions.
	flushTimeout = 2 * time.Second
)

// ErrWaiterClosed is returned by a wait whose waiter was closed.
var ErrWaiterClosed = errors.New("the waiter is closed")

// Validate reports every fault at once.
func (c WaiterConfig) Validate() error {
	var faults []error
	if c.DB == nil {
		faults = append(faults, errors.New("DB is required"))
	}
	if c.PollEvery != 0 && c.PollEvery < minInterval {
		faults = append(faults, fmt.Errorf("PollEvery must be at least %s, got %s", minInterval, c.PollEvery))
	}
	if len(faults) > 0 {
		return fmt.Errorf("outbox: invalid WaiterConfig: %w", errors.Join(faults...))
	}
	return nil
}

// Waiter is a [ledger.Waiter]: it waits until tasks have finished, in whatever process they run. One waiter serves all
// goroutines of a process, and is safe for concurrent use.
//
// While a wait is open, one goroutine works, and the connection to NATS holds one subscription for each of the five
// types of events that finish a task. The messages wake waits of their tasks; the database decides. A task is read when
// its wait begins, when a message names it, after a reconnect, and every PollEvery. One statement reads up to 1,000
// tasks, so the cost of many waits depends on the number of their tasks. Subscriptions and goroutine end a PollEvery
// after the last wait.
//
// Waits last through restarts of NATS and PostgreSQL. Tasks of reserved kinds (taskledger.*) are found by polls alone.
type Waiter struct {
	config WaiterConfig

	mu       sync.Mutex
	awaited  map[ledger.Key]*awaited
	queue    []ledger.Key  // to read
	reads    uint64        // number of batches taken out of queue
	stop     func()        // ends the goroutine, if it runs
	done     chan struct{} // closed when the goroutine that was started last has ended
	isClosed bool
	signal   chan struct{} // queue may not be empty; has room for one
}

var _ ledger.Waiter = (*Waiter)(nil)

// NewWaiter returns a waiter. It does not use the database or NATS yet. It returns the error of
// [WaiterConfig.Validate]. Call Close when it is no longer needed.
func NewWaiter(c WaiterConfig) (*Waiter, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.PollEvery == 0 {
		c.PollEvery = defaultPollEvery
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	w := &Waiter{config: c, awaited: make(map[ledger.Key]*awaited), signal: make(chan struct{}, 1)}
	return w, nil
}

// Close ends all waits with [ErrWaiterClosed], and the goroutine and the subscriptions of the waiter. It closes neither
// the pool nor the connection to NATS.
func (w *Waiter) Close() {
	w.mu.Lock()
	w.isClosed = true
	for _, a := range w.awaited {
		w.fail(a, ErrWaiterClosed, w.reads+1)
	}
	stop, done := w.stop, w.done
	w.mu.Unlock()
	if stop != nil {
		stop()
		<-done
	}
}

// WaitFor implements [ledger.Waiter]. Call [ledger.Wait], [ledger.WaitMany] or the method Wait of a kind, which check
// the keys and return typed errors.
func (w *Waiter) WaitFor(ctx context.Context, keys []ledger.Key, until ledger.Until) ([]ledger.Task, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	wait, err := w.begin(keys, until)
	if err != nil {
		return nil, err
	}
	select {
	case <-wait.done:
		return wait.tasks, wait.err
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if wait.isDone { // at the same moment
		return wait.tasks, wait.err
	}
	w.end(wait, ctx.Err())
	return wait.tasks, wait.err
}

// begin registers a wait, and starts the goroutine unless it runs.
func (w *Waiter) begin(keys []ledger.Key, until ledger.Until) (*wait, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isClosed {
		return nil, ErrWaiterClosed
	}
	wait := newWait(keys, until, w.reads)
	for i := range wait.places {
		p := &wait.places[i]
		a := w.awaited[p.key]
		if a == nil {
			a = &awaited{}
			w.awaited[p.key] = a
		}
		p.at = len(a.places)
		a.places = append(a.places, p)
		w.enqueue(p.key, a)
	}
	if w.stop == nil {
		var ctx context.Context
		ctx, w.stop = context.WithCancel(context.Background())
		w.done = make(chan struct{})
		go w.run(ctx, w.done)
	}
	return wait, nil
}

// enqueue queues a task to be read. The caller holds mu.
func (w *Waiter) enqueue(k ledger.Key, a *awaited) {
	if a.isQueued {
		return
	}
	a.isQueued = true
	w.queue = append(w.queue, k)
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// enqueueAll queues all tasks to be read.
func (w *Waiter) enqueueAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, a := range w.awaited {
		w.enqueue(k, a)
	}
}

// receive queues the task of a message to be read, if there is a wait for it.
func (w *Waiter) receive(m *nats.Msg) {
	k, ok := stream.KeyOf(m.Header)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if a := w.awaited[k]; a != nil {
		w.enqueue(k, a)
	}
}

// take returns the keys of the next tasks to read, and the number of this batch.
func (w *Waiter) take() (keys []ledger.Key, batch uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	for len(w.queue) > 0 && len(keys) < waiterBatch {
		k := w.queue[0]
		w.queue = w.queue[1:]
		if a := w.awaited[k]; a != nil {
			a.isQueued = false
			keys = append(keys, k)
		}
	}
	if len(w.queue) == 0 {
		w.queue = nil // with its memory
	}
	return keys, w.reads
}

// deliver passes on the tasks of a batch to the waits that had begun before it was read. A wait that ends includes all
// its tasks of the batch.
func (w *Waiter) deliver(batch uint64, tasks []ledger.Task, errs []error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var over []*wait
	for i, t := range tasks {
		a := w.awaited[t.Key]
		switch {
		case a == nil:
		case errs[i] != nil:
			w.fail(a, errs[i], batch)
		default:
			over = a.update(t, batch, over)
		}
	}
	for _, wait := range over {
		if !wait.isDone {
			w.end(wait, nil)
		}
	}
}

// fail ends the waits for a task that had begun before a batch. The caller holds mu.
func (w *Waiter) fail(a *awaited, err error, batch uint64) {
	for _, p := range slices.Clone(a.places) {
		if p.wait.since < batch && !p.wait.isDone {
			w.end(p.wait, err)
		}
	}
}

// end removes a wait. The caller holds mu.
func (w *Waiter) end(wait *wait, err error) {
	for i := range wait.places {
		p := &wait.places[i]
		a := w.awaited[p.key]
		last := len(a.places) - 1
		a.places[p.at] = a.places[last]
		a.places[p.at].at = p.at
		a.places[last] = nil
		if a.places = a.places[:last]; last == 0 {
			delete(w.awaited, p.key)
		}
	}
	wait.err, wait.isDone = err, true
	close(wait.done)
}

// awaited is a task that is waited for.
type awaited struct {
	places   []*place
	isQueued bool
}

// update sets the task in the waits for it, and appends the finished waits. The caller holds the mutex of the waiter.
func (a *awaited) update(t ledger.Task, batch uint64, over []*wait) []*wait {
	for _, p := range a.places {
		if p.wait.since < batch && p.wait.set(p.number, t) {
			over = append(over, p.wait)
		}
	}
	return over
}

// place connects a wait with one of its tasks.
type place struct {
	wait   *wait
	key    ledger.Key
	number int // in the tasks of the wait
	at     int // in the places of the task
}

// wait is one call of WaitFor.
type wait struct {
	until    ledger.Until
	since    uint64 // number of the last batch before it
	tasks    []ledger.Task
	places   []place
	finished int
	err      error
	isDone   bool
	done     chan struct{}
}

func newWait(keys []ledger.Key, until ledger.Until, since uint64) *wait {
	wait := &wait{
		until: until, since: since, tasks: make([]ledger.Task, len(keys)), places: make([]place, len(keys)),
		done: make(chan struct{}),
	}
	for i, k := range keys {
		wait.tasks[i].Key = k
		wait.places[i] = place{wait: wait, key: k, number: i}
	}
	return wait
}

// set sets a task, and reports whether the wait is over. A task that has finished stays so.
func (w *wait) set(number int, t ledger.Task) bool {
	if w.isDone || w.tasks[number].State.Finished() {
		return false
	}
	w.tasks[number] = t
	if !t.State.Finished() {
		return false
	}
	w.finished++
	switch {
	case w.finished == len(w.tasks), w.until == ledger.UntilAny:
		return true
	}
	return w.until == ledger.UntilError && t.State != ledger.StateSucceeded
}
