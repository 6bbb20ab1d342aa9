package attempt

import (
	"context"
	"errors"
	"time"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/queue"
)

// maxCompletions is how many successes may wait before handlers wait for them: one group in flight, one
// that gathers, and room.
const maxCompletions = 4 * MaxBatch

var errGivenUp = errors.New("recording the outcome was given up")

// completion is the success of an attempt, to be recorded.
type completion struct {
	attempt *Attempt
	request ledger.AppendRequest
}

// completer records successes in groups: while one group is recorded the next one gathers. So groups are
// the larger the busier the worker is, and no timer adds latency. A success that cannot be recorded for
// the moment (a lock, a lost connection) is tried again apart from the others.
type completer struct {
	runner *Runner
	queue  *queue.Queue[completion]
	later  *queue.Queue[completion]
	room   chan struct{} // a token for each completion that is not recorded
}

func newCompleter(r *Runner) *completer {
	return &completer{
		runner: r, queue: queue.New[completion](), later: queue.New[completion](), room: make(chan struct{}, maxCompletions),
	}
}

// add records a completion later. It blocks while too many wait.
func (c *completer) add(one completion) {
	c.room <- struct{}{}
	c.queue.Add(one)
}

// run records what is added until quit is done.
func (c *completer) run(quit context.Context) {
	for {
		group := c.queue.Take(quit, MaxBatch)
		if len(group) == 0 {
			return
		}
		c.later.Add(c.record(group)...)
	}
}

// retry records what could not be recorded at first. A completion is given up after a few times AckWait,
// or when the worker is stopping: the next delivery of the message finds out. That of an attempt that
// must not be repeated is not given up while the worker runs: its outcome would be lost.
func (c *completer) retry(quit context.Context) {
	delay := loop.Backoff{Max: maxRetryDelay, Exact: true}
	for {
		group := c.later.Take(quit, MaxBatch)
		if len(group) == 0 {
			return
		}
		_ = loop.Sleep(c.runner.work, delay.Next())
		failed := c.record(group)
		if len(failed) == 0 {
			delay.Reset()
		}
		for _, one := range failed {
			a := one.attempt
			if c.runner.work.Err() != nil || a.Took() > 4*c.runner.ackWait && !a.kind.Once {
				c.end(a, ledger.Event{}, errGivenUp)
			} else {
				c.later.Add(one)
			}
		}
	}
}

const maxRetryDelay = 2 * time.Second

// record records a group and returns what may be tried again.
func (c *completer) record(group []completion) (failed []completion) {
	ctx, cancel := c.runner.Operation()
	defer cancel()
	requests := make([]ledger.AppendRequest, len(group))
	for i, one := range group {
		requests[i] = one.request
	}
	results := ledger.AppendEach(ctx, c.runner.db, requests)
	for i, r := range results {
		one := group[i]
		switch {
		case r.Err == nil || ledger.IsConflict(r.Err):
			c.end(one.attempt, r.Event, r.Err)
		case isRefused(r.Err):
			go c.endOne(one.attempt, r.Event, r.Err) // takes some round trips: not in the way of the others
		default:
			one.request.Resent = true // the answer may have been lost; the data tells the attempt from any other
			failed = append(failed, one)
		}
	}
	if len(failed) > 0 {
		c.runner.Warn(c.runner.logger, "cannot record outcomes, trying again", "tasks", len(failed), "error", firstError(results))
	}
	return failed
}

// end ends an attempt whose success is recorded as e, or is not. Hooks are not in the way of other attempts.
func (c *completer) end(a *Attempt, e ledger.Event, err error) {
	if a.kind.NotifiesHooks {
		go c.endOne(a, e, err)
		return
	}
	c.endOne(a, e, err)
}

func (c *completer) endOne(a *Attempt, e ledger.Event, err error) {
	defer func() { <-c.room }()
	ctx, cancel := c.runner.Operation()
	defer cancel()
	a.committed(ctx, e, err)
}

func firstError(results []ledger.AppendResult) error {
	for _, r := range results {
		if r.Err != nil && !ledger.IsConflict(r.Err) {
			return r.Err
		}
	}
	return nil
}
