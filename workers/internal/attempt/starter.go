package attempt

import (
	"sync/atomic"

	"github.com/taskledger/taskledger/internal/unexported"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/queue"
)

// starter records the starts of attempts that must be recorded before their handlers run. While one group is recorded
// the next one gathers. So a worker that takes over many tasks records their starts in a few transactions; a single
// start is recorded at once. It is safe for concurrent use.
type starter struct {
	runner *Runner
	queue  *queue.Queue[start]
	isBusy atomic.Bool // a goroutine records groups
}

// start is the start of an attempt, to be recorded. result gets one value.
type start struct {
	request ledger.AppendRequest
	last    unexported.LastEvent
	result  chan<- ledger.AppendResult
}

func newStarter(r *Runner) *starter { return &starter{runner: r, queue: queue.New[start]()} }

// record records a start and returns its event.
func (s *starter) record(r ledger.AppendRequest, last unexported.LastEvent) (ledger.Event, error) {
	result := make(chan ledger.AppendResult, 1)
	s.queue.Add(start{r, last, result})
	if s.isBusy.CompareAndSwap(false, true) {
		go s.run()
	}
	recorded := <-result
	return recorded.Event, recorded.Err
}

// run records groups until no start waits.
func (s *starter) run() {
	for {
		group := s.queue.TryTake(MaxBatch)
		if len(group) > 0 {
			s.recordGroup(group)
			continue
		}
		s.isBusy.Store(false)
		if s.queue.IsEmpty() || !s.isBusy.CompareAndSwap(false, true) {
			return
		}
	}
}

func (s *starter) recordGroup(group []start) {
	ctx, cancel := s.runner.Operation()
	defer cancel()
	requests := make([]ledger.AppendRequest, len(group))
	for i := range group {
		requests[i] = group[i].request
		unexported.SetLastEvent(&requests[i], group[i].last)
	}
	for i, r := range ledger.AppendEach(ctx, s.runner.db, requests) {
		group[i].result <- r
	}
}
