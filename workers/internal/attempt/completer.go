package attempt

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/unexported"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/queue"
)

// maxCompletions is how many successes may wait before handlers wait for them: one group that is being recorded, one
// that gathers, and room.
const maxCompletions = 4 * MaxBatch

var errNotRecorded = errors.New("stopped retrying to record the outcome")

// completion is the success of an attempt, to be recorded.
type completion struct {
	attempt *Attempt
	data    json.RawMessage // of succeeded
	resent  bool            // the answer of an append may have been lost; the data identifies the attempt
}

// request returns the append of the succeeded event.
func (c *completion) request() ledger.AppendRequest {
	r := c.attempt.request(ledger.EventSucceeded, c.data)
	if c.resent {
		unexported.SetResent(&r)
	}
	return r
}

// completer records successes in groups: while one group is recorded the next one gathers, so groups grow with the
// load. A success that comes soon after a group waits for others, unless a process waits for outcomes; a single
// success is recorded at once. The runner's express records successes for which others wait. A success that cannot be
// recorded at the moment (a lock, a lost connection) is retried apart from the others. It is safe for concurrent use;
// the fields are constant.
type completer struct {
	runner  *Runner
	queue   *queue.Queue[completion] // taken by run
	retries *queue.Queue[completion] // taken by retry
	tokens  chan struct{}            // holds a token for each completion that is not recorded

	hurry     chan struct{} // holds a token if the gathering group may be due
	isAwaited atomic.Bool   // a process waited for outcomes at the last read
	latency   atomic.Int64  // of the dispatcher, at the last read: a [time.Duration]; 0: unknown
}

func newCompleter(r *Runner) *completer {
	return &completer{
		runner: r, queue: queue.New[completion](), retries: queue.New[completion](),
		tokens: make(chan struct{}, maxCompletions), hurry: make(chan struct{}, 1),
	}
}

// add queues a completion to be recorded. It blocks while too many wait.
func (c *completer) add(one completion) {
	c.tokens <- struct{}{}
	if one.attempt.kind.isGated.Load() || one.attempt.kind.RecordsAtOnce {
		c.runner.express.add(urgent{success: one})
		return
	}
	c.queue.Add(one)
	if c.queue.Len() >= manyCompletions {
		c.wake()
	}
}

// setAwaited records whether a process waits for outcomes. If one does, the group that gathers is recorded at once.
func (c *completer) setAwaited(is bool) {
	if c.isAwaited.Store(is); is {
		c.wake()
	}
}

func (c *completer) wake() {
	select {
	case c.hurry <- struct{}{}:
	default:
	}
}

const (
	// A transaction costs as much as forty of its rows. So a success within soonAfter latencies of a group waits
	// gatherFor latencies for others, unless there are manyCompletions. It keeps no slot busy.
	soonAfter       = 10
	gatherFor       = 5
	manyCompletions = 100
)

// run records completions until quit is done.
func (c *completer) run(quit context.Context) {
	var last time.Time // when the last group began
	var space []ledger.AppendRequest
	for c.queue.Await(quit) {
		if latency := time.Duration(c.latency.Load()); time.Since(last) < soonAfter*latency {
			c.gather(gatherFor * latency)
		}
		last = time.Now()
		c.retries.Add(c.record(c.queue.TryTake(MaxBatch), &space)...)
	}
}

// gather waits for further completions: for d, until there are many or a process waits for one, or until the worker is
// stopping.
func (c *completer) gather(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for c.queue.Len() < manyCompletions && !c.isAwaited.Load() {
		select {
		case <-timer.C:
			return
		case <-c.runner.stopping.Done():
			return
		case <-c.hurry: // the token may be older than the group
		}
	}
}

// retry records completions that could not be recorded at first. It drops a completion after a few times LeaseTTL, or
// when the worker is stopping: the head decides. While the worker runs, it keeps the completion of an attempt that
// must not be repeated, because its outcome would be lost.
func (c *completer) retry(quit context.Context) {
	delay := loop.Backoff{Max: maxRetryDelay, Exact: true}
	var space []ledger.AppendRequest
	for {
		group := c.retries.Take(quit, MaxBatch)
		if len(group) == 0 {
			return
		}
		_ = loop.Sleep(c.runner.work, delay.Next())
		failed := c.record(group, &space)
		if len(failed) == 0 {
			delay.Reset()
		}
		for _, one := range failed {
			a := one.attempt
			if c.runner.work.Err() != nil || a.Elapsed() > 4*c.runner.leaseTTL && !a.kind.Once {
				c.endAttempt(a, ledger.Event{}, errNotRecorded)
			} else {
				c.retries.Add(one)
			}
		}
	}
}

const maxRetryDelay = 2 * time.Second

// record records a group and returns the completions that may be retried. The requests use the memory of space.
func (c *completer) record(group []completion, space *[]ledger.AppendRequest) (failed []completion) {
	ctx, cancel := c.runner.Operation()
	defer cancel()
	requests := (*space)[:0]
	for i := range group {
		requests = append(requests, group[i].request())
		unexported.SetLastEvent(&requests[i], group[i].attempt.last())
	}
	*space = requests
	defer clear(requests)
	return c.end(group, ledger.AppendEach(ctx, c.runner.db, requests))
}

// end ends the attempts of completions that are recorded or refused, and returns the others, which may be retried.
func (c *completer) end(group []completion, results []ledger.AppendResult) (failed []completion) {
	for i, r := range results {
		one := group[i]
		switch {
		case r.Err == nil || ledger.IsConflict(r.Err):
			c.endAttempt(one.attempt, r.Event, r.Err)
		case isRefused(r.Err):
			go c.endOne(one.attempt, r.Event, r.Err) // takes some round trips, which must not delay the others
		default:
			one.resent = true
			failed = append(failed, one)
		}
	}
	if len(failed) > 0 {
		c.runner.Warn(
			c.runner.logger, "cannot record outcomes; retrying", "tasks", len(failed), "error", firstError(results),
		)
	}
	return failed
}

// endAttempt ends an attempt whose success is recorded as e, or not recorded because of err. Hooks must not delay other
// attempts.
func (c *completer) endAttempt(a *Attempt, e ledger.Event, err error) {
	if a.kind.NotifiesHooks {
		go c.endOne(a, e, err)
		return
	}
	c.endOne(a, e, err)
}

func (c *completer) endOne(a *Attempt, e ledger.Event, err error) {
	defer func() { <-c.tokens }()
	a.committed(e, err)
}

func firstError(results []ledger.AppendResult) error {
	for _, r := range results {
		if r.Err != nil && !ledger.IsConflict(r.Err) {
			return r.Err
		}
	}
	return nil
}
