package attempt

import (
	"runtime"
	"sync/atomic"

	"github.com/taskledger/taskledger/internal/unexported"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/queue"
)

// express records the events for which others wait: the starts of attempts that must be recorded before their handlers
// run, and successes that give back a permit or are awaited. It takes permits too. It does so at once, in groups: while
// one group is recorded the next one gathers. Starts, permits and successes share groups: a permit passes from one task
// to the next by two of them, and the transaction of a group costs as much as forty of its rows. It is safe for
// concurrent use.
type express struct {
	runner *Runner
	queue  *queue.Queue[urgent]
	isBusy atomic.Bool // a goroutine records groups
}

// urgent is an event to be recorded, or an attempt that needs permits.
type urgent struct {
	success completion     // or, if it has no attempt:
	permit  *permitRequest // or, if it is nil:
	start   start
}

// start is the start of an attempt. result gets one value.
type start struct {
	request ledger.AppendRequest
	last    unexported.LastEvent
	result  chan<- ledger.AppendResult
}

func newExpress(r *Runner) *express { return &express{runner: r, queue: queue.New[urgent]()} }

// record records a start and returns its event.
func (x *express) record(r ledger.AppendRequest, last unexported.LastEvent) (ledger.Event, error) {
	result := make(chan ledger.AppendResult, 1)
	x.add(urgent{start: start{r, last, result}})
	recorded := <-result
	return recorded.Event, recorded.Err
}

// add queues an event to be recorded.
func (x *express) add(one urgent) {
	x.queue.Add(one)
	if x.isBusy.CompareAndSwap(false, true) {
		go x.run()
	}
}

// run records groups until no event waits.
func (x *express) run() {
	for {
		x.gather()
		group := x.queue.TryTake(MaxBatch)
		if len(group) > 0 {
			x.recordGroup(group)
			continue
		}
		x.isBusy.Store(false)
		if x.queue.IsEmpty() || !x.isBusy.CompareAndSwap(false, true) {
			return
		}
	}
}

// gather lets other goroutines run until they add no further event. Events come together: an offer brings many tasks,
// and a group lets many handlers begin. Otherwise the first event would be a group of its own, and the others would
// wait for its commit.
func (x *express) gather() {
	for n := -1; n < x.queue.Len() && n < MaxBatch; {
		n = x.queue.Len()
		runtime.Gosched()
	}
}

// recordGroup records the events of a group in one statement. If attempts need permits, the statement that takes them
// is sent with it.
func (x *express) recordGroup(group []urgent) {
	ctx, cancel := x.runner.Operation()
	defer cancel()
	requests := make([]ledger.AppendRequest, 0, len(group))
	events := make([]*urgent, 0, len(group)) // of requests
	db := &permitTaker{runner: x.runner}
	for i := range group {
		switch one := &group[i]; {
		case one.success.attempt != nil:
			requests, events = append(requests, one.success.request()), append(events, one)
			unexported.SetLastEvent(&requests[len(requests)-1], one.success.attempt.last())
		case one.permit != nil:
			db.requests = append(db.requests, one.permit)
		default:
			requests, events = append(requests, one.start.request), append(events, one)
			unexported.SetLastEvent(&requests[len(requests)-1], one.start.last)
		}
	}
	var ended []completion
	var results []ledger.AppendResult
	if len(requests) > 0 {
		for i, r := range ledger.AppendEach(ctx, db, requests) {
			if one := events[i]; one.success.attempt != nil {
				ended, results = append(ended, one.success), append(results, r)
			} else {
				one.start.result <- r
			}
		}
	}
	db.finish(ctx)
	x.runner.completer.retries.Add(x.runner.completer.end(ended, results)...)
}
