package workers

import (
	"context"
	"time"
)

// farewellTime is how long a worker that has nothing in hand any more tries to say that it is gone. If
// it cannot, others find out when its leases are over.
const farewellTime = 5 * time.Second

// operation returns the context of one operation on the database that must go on while the pool
// is stopping, but not for ever.
func (p *Pool) operation() (context.Context, context.CancelFunc) {
	return context.WithTimeout(p.lasting, p.config.AckWait)
}

// abandonAfter is how long a handler may go on after its context was cancelled.
func (p *Pool) abandonAfter() time.Duration { return min(maxAbandonAfter, p.config.AckWait) }

// giveBack waits until nothing is in hand any more: first for handlers to finish by themselves,
// then, told to, for them to return and for the database to take their outcomes, and at last not even
// for that. An outcome has as long as ever, AckWait; but not one after the other.
func (p *Pool) giveBack(kinds []*kind) {
	empty := make(chan struct{})
	go func() {
		for _, k := range kinds {
			k.hand.open.Wait()
		}
		close(empty)
	}()
	select {
	case <-empty:
		return
	case <-time.After(p.config.StopTimeout):
	}
	p.config.Logger.Warn("handlers are told to stop", "waited", p.config.StopTimeout)
	p.stopWork(ErrStopping)
	select {
	case <-empty:
		return
	case <-time.After(p.abandonAfter() + p.config.AckWait): // abandoned, and outcomes recorded
	}
	p.config.Logger.Error("outcomes are not recorded: the database does not answer")
	p.cut()
	select {
	case <-empty: // answered, to be delivered again
	case <-time.After(p.abandonAfter()): // hooks may take as long
		p.config.Logger.Error("stopped with tasks in hand: others will take them over")
	}
}
