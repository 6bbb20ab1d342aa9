package workers

import (
	"fmt"
	"slices"
	"time"
)

// WhenFull is what a worker does about a kind whose slots are taken while as many tasks wait for one
// as are to wait here.
type WhenFull string

const (
	// StopPulling asks for no more until there is room: what waits in the broker goes to others. What
	// has waited here for 5 s is given back, too.
	StopPulling WhenFull = "stop_pulling"
	// FetcherRuns stops pulling as well, and who pulls runs one task meanwhile, beyond the kind's slots:
	// one for each consumer that the worker has of the kind, which are two for each set of shards. For
	// that it holds one more than it would. The slots over all kinds hold.
	FetcherRuns WhenFull = "fetcher_runs"
	// GiveBack stops pulling, and gives back sooner: what has waited here for a second, to be delivered
	// again after another second, elsewhere if anybody has room.
	GiveBack WhenFull = "give_back"
)

var whenFulls = []WhenFull{StopPulling, FetcherRuns, GiveBack}

// giveBackAfter is how long a GiveBack kind's tasks wait, and how long they stay away then.
const giveBackAfter = time.Second

func (w WhenFull) validate() error {
	if !slices.Contains(whenFulls, w) {
		return fmt.Errorf("WhenFull must be stop_pulling, fetcher_runs or give_back, is %q", string(w))
	}
	return nil
}

// fits is how many tasks are held to be run by so many slots.
func (w WhenFull) fits(slots int) int {
	if w == FetcherRuns {
		return slots + 1
	}
	return slots
}

// patience is how long a task may wait for a slot before it is given back.
func (k *kind) patience() time.Duration {
	if k.config.WhenFull == GiveBack {
		return min(giveBackAfter, k.pool.config.AckWait)
	}
	return min(maxWaitAhead, k.pool.config.AckWait)
}

// fetcher is what one consumer of a FetcherRuns kind runs beyond the slots.
type fetcher struct {
	kind *kind
	over <-chan struct{} // closed when it is over; nil: nothing runs
}

// look runs one if there is no room.
func (f *fetcher) look() {
	k := f.kind
	if k.config.WhenFull != FetcherRuns || f.over != nil || !k.hand.full() {
		return
	}
	if f.over = k.pool.turns.runBeyond(&k.line); f.over != nil {
		k.noticed(NoticeFetcherRuns)
	}
}

// ready gets a token when something may have begun to wait for a slot.
func (f *fetcher) ready() <-chan struct{} {
	if f.over != nil {
		return nil
	}
	return f.kind.readied
}
