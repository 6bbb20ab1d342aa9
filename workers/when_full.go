package workers

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/taskledger/taskledger/internal/stream"
)

// WhenFull is what a worker does when all slots of a kind are busy and its local buffer is full.
type WhenFull string

const (
	// StopPulling stops pulling until there is room, so that messages in the broker go to other workers. A task that
	// has waited here for 5 s is given back.
	StopPulling WhenFull = "stop_pulling"
	// FetcherRuns stops pulling as well, and each puller meanwhile runs one task beyond the kind's slots. A worker
	// has one puller for each consumer of the kind (two for each set of shards). The buffer holds one task more for
	// that. The slots over all kinds apply.
	FetcherRuns WhenFull = "fetcher_runs"
	// GiveBack stops pulling, and gives back sooner: a task that has waited here for a second is delivered again
	// after another second, to any worker with room.
	GiveBack WhenFull = "give_back"
)

var whenFullPolicies = []WhenFull{StopPulling, FetcherRuns, GiveBack}

const (
	// giveBackAfter is how long a task of a GiveBack kind waits, and then how long its redelivery is delayed.
	giveBackAfter = time.Second
	// maxWait is how long a task of another kind waits.
	maxWait = 5 * time.Second
)

func (w WhenFull) validate() error {
	if !slices.Contains(whenFullPolicies, w) {
		return fmt.Errorf("WhenFull must be stop_pulling, fetcher_runs or give_back, got %q", string(w))
	}
	return nil
}

// capacity returns how many tasks the local buffer holds for so many slots.
func (w WhenFull) capacity(slots int) int {
	if w == FetcherRuns {
		return slots + 1
	}
	return slots
}

// maxWait returns how long a task may wait for a slot before it is given back.
func (k *kind) maxWait() time.Duration {
	if k.config.WhenFull == GiveBack {
		return min(giveBackAfter, k.pool.config.AckWait)
	}
	return min(maxWait, k.pool.config.AckWait)
}

// giveBackLate gives back, until quit is done, tasks that wait too long for a slot because the kind's handlers have
// become slow.
func (p *Pool) giveBackLate(quit context.Context, kinds []*kind) {
	shortest := kinds[0].maxWait()
	for _, k := range kinds {
		shortest = min(shortest, k.maxWait())
	}
	t := time.NewTicker(shortest / 5)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			for _, k := range kinds {
				k.giveBackLate(time.Now())
			}
		case <-quit.Done():
			return
		}
	}
}

func (k *kind) giveBackLate(now time.Time) {
	answer := stream.NakAnswer
	if k.config.WhenFull == GiveBack {
		answer = stream.NakAfter(giveBackAfter)
	}
	for _, r := range k.pool.slots.TakeOlder(k.line, now.Add(-k.maxWait())) {
		k.Tasks.SetPace(k.maxWait())
		k.noticed(NoticeGivenBack)
		r.GiveBack(answer)
	}
}

// fetcher runs tasks of a FetcherRuns kind beyond its slots, one at a time for each consumer. Only the goroutine of
// that consumer's receive uses it.
type fetcher struct {
	kind    *kind
	running <-chan struct{} // closed when its task has ended; nil if it runs no task
}

// poll runs a task if the local buffer is full.
func (f *fetcher) poll() {
	k := f.kind
	if k.config.WhenFull != FetcherRuns || f.running != nil || !k.Tasks.IsFull() {
		return
	}
	if f.running = k.pool.slots.RunBeyond(k.line); f.running != nil {
		k.noticed(NoticeFetcherRuns)
	}
}

// ready returns a channel that receives a token when an attempt may have become ready.
func (f *fetcher) ready() <-chan struct{} {
	if f.running != nil {
		return nil
	}
	return f.kind.readied
}
