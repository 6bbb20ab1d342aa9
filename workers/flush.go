package workers

import (
	"context"
	"errors"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/ledger"
)

// maxCompletions is how many may wait before handlers have to: more than one group in flight
// and one gathering.
const maxCompletions = 4 * maxBatch

var errGivenUp = errors.New("recording the outcome was given up")

// completion is the success of an attempt, to be recorded.
type completion struct {
	attempt *attempt
	data    []byte // of the succeeded event
	resent  bool   // it may be on record already
}

func (c completion) request() ledger.AppendRequest {
	r := c.attempt.request(ledger.EventSucceeded, c.data)
	r.Resent = c.resent
	return r
}

// flusher records successes in groups: while one group is being recorded the next one gathers,
// so the busier it is the larger the groups are, and no timer adds latency. What fails for the
// moment (a lock, a lost connection) is tried again apart from the others, which go on.
type flusher struct {
	pool  *Pool
	queue *queue[completion]
	later *queue[completion]
	room  chan struct{} // one token for each completion that is not recorded
}

func newFlusher(p *Pool) *flusher {
	return &flusher{
		pool: p, queue: newQueue[completion](), later: newQueue[completion](),
		room: make(chan struct{}, maxCompletions),
	}
}

// add hands over a completion. It blocks while too many wait.
func (f *flusher) add(c completion) {
	f.room <- struct{}{}
	f.queue.add(c)
}

// run records what is added until quit is done.
func (f *flusher) run(quit context.Context) {
	for {
		group := f.queue.take(quit, maxBatch)
		if len(group) == 0 {
			return
		}
		f.later.add(f.flush(group)...)
	}
}

// retry records what could not be recorded at first. A completion is given up after a few times
// AckWait, or when the pool is stopping: the message's next delivery then finds out. That of an
// AtMostOnce attempt is not given up as long as the pool runs: nobody else will ever know.
func (f *flusher) retry(quit context.Context) {
	delay := loop.Backoff{Max: maxPause, Exact: true}
	for {
		group := f.later.take(quit, maxBatch)
		if len(group) == 0 {
			return
		}
		_ = loop.Sleep(f.pool.work, delay.Next())
		failed := f.flush(group)
		if len(failed) == 0 {
			delay.Reset()
		}
		for _, c := range failed {
			a := c.attempt
			if f.pool.work.Err() != nil || a.took() > 4*f.pool.config.AckWait && a.kind.guarantee != AtMostOnce {
				f.recorded(a, ledger.Event{}, errGivenUp)
			} else {
				f.later.add(c)
			}
		}
	}
}

// flush records a group and returns what may be tried again.
func (f *flusher) flush(group []completion) (failed []completion) {
	ctx, cancel := f.pool.operation()
	defer cancel()
	requests := make([]ledger.AppendRequest, len(group))
	for i, c := range group {
		requests[i] = c.request()
	}
	results := ledger.AppendEach(ctx, f.pool.config.DB, requests)
	for i, r := range results {
		c, a := group[i], group[i].attempt
		switch {
		case r.Err == nil || ledger.IsConflict(r.Err):
			f.recorded(a, r.Event, r.Err)
			continue
		case refused(r.Err):
			go a.kind.conclude(a, nil, r.Err) // takes some round trips: not in the way of the others
		default:
			c.resent = true // the answer may have been lost; the data tells our attempt from any other
			failed = append(failed, c)
			continue
		}
		<-f.room
	}
	if len(failed) > 0 {
		f.pool.repeated.warn(f.pool.config.Logger, "cannot record outcomes, trying again", "tasks", len(failed), "error", firstError(results))
	}
	return failed
}

// recorded ends an attempt whose success is recorded as e, or is not. Hooks are not in the way of
// the other attempts.
func (f *flusher) recorded(a *attempt, e ledger.Event, err error) {
	if a.kind.hooks.hear() {
		go f.record(a, e, err)
		return
	}
	f.record(a, e, err)
}

func (f *flusher) record(a *attempt, e ledger.Event, err error) {
	defer func() { <-f.room }()
	if err == nil {
		a.appended(e)
	}
	a.kind.recorded(a, OutcomeSucceeded, err)
}

func firstError(results []ledger.AppendResult) error {
	for _, r := range results {
		if r.Err != nil && !ledger.IsConflict(r.Err) {
			return r.Err
		}
	}
	return nil
}
