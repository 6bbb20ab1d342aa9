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
	// StopPulling pulls no more until there is room: what waits in the broker goes to other workers. What
	// has waited here for 5 s is given back.
	StopPulling WhenFull = "stop_pulling"
	// FetcherRuns stops pulling as well, and the puller runs one task meanwhile, beyond the kind's slots: one
	// for each consumer that the worker has of the kind (two for each set of shards). The buffer holds one
	// task more for that. The slots over all kinds apply.
	FetcherRuns WhenFull = "fetcher_runs"
	// GiveBack stops pulling, and gives back sooner: what has waited here for a second is delivered again
	// after another second, to any worker with room.
	GiveBack WhenFull = "give_back"
)

var whenFulls = []WhenFull{StopPulling, FetcherRuns, GiveBack}

const (
	// giveBackAfter is how long the tasks of a GiveBack kind wait, and then stay away.
	giveBackAfter = time.Second
	// maxWait is how long those of other kinds wait.
	maxWait = 5 * time.Second
)

func (w WhenFull) validate() error {
	if !slices.Contains(whenFulls, w) {
		return fmt.Errorf("WhenFull must be stop_pulling, fetcher_runs or give_back, got %q", string(w))
	}
	return nil
}

// fits returns how many tasks are held for so many slots.
func (w WhenFull) fits(slots int) int {
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

// giveBackLate gives back, until quit is done, tasks that wait for a slot for too long: the kind's handlers
// have become slow.
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

// fetcher runs tasks of a FetcherRuns kind beyond its slots, one at a time for each consumer.
type fetcher struct {
	kind    *kind
	running <-chan struct{} // closed when it has ended; nil: none runs
}

// poll runs a task if there is no room.
func (f *fetcher) poll() {
	k := f.kind
	if k.config.WhenFull != FetcherRuns || f.running != nil || !k.Tasks.IsFull() {
		return
	}
	if f.running = k.pool.slots.RunBeyond(k.line); f.running != nil {
		k.noticed(NoticeFetcherRuns)
	}
}

// ready receives a token when something may have begun to wait for a slot.
func (f *fetcher) ready() <-chan struct{} {
	if f.running != nil {
		return nil
	}
	return f.kind.readied
}
