package workers

import (
	"time"
)

// releaseTimeout bounds how long a worker that has nothing in flight any more tries to end its leases. If it
// cannot, they expire.
const releaseTimeout = 5 * time.Second

// giveBack waits until nothing is in hand any more: first for handlers to finish by themselves,
// then, told to, for them to return and for the database to take their outcomes, and at last not even
// for that. An outcome has as long as ever, AckWait; but not one after the other.
func (p *Pool) giveBack(kinds []*kind) {
	empty := make(chan struct{})
	go func() {
		for _, k := range kinds {
			k.Tasks.Wait()
		}
		close(empty)
	}()
	select {
	case <-empty:
		return
	case <-time.After(p.config.StopTimeout):
	}
	p.config.Logger.Warn("handlers are told to stop", "waited", p.config.StopTimeout)
	p.runner.CancelHandlers(ErrStopping)
	select {
	case <-empty:
		return
	case <-time.After(p.runner.Grace() + p.config.AckWait): // abandoned, and outcomes recorded
	}
	p.config.Logger.Error("outcomes are not recorded: the database does not answer")
	p.runner.CancelOperations()
	select {
	case <-empty: // answered, to be delivered again
	case <-time.After(p.runner.Grace()): // hooks may take as long
		p.config.Logger.Error("stopped with tasks in hand: others will take them over")
	}
}
