package workers

import (
	"time"
)

// releaseTimeout bounds how long a stopping worker that has nothing in flight tries to release its leases. Otherwise
// they expire.
const releaseTimeout = 5 * time.Second

// giveBack waits until nothing is in flight. It waits for StopTimeout until handlers finish; then, with cancelled
// contexts, until they return and the database records their outcomes; and finally without the database. LeaseTTL
// bounds all outcomes together, as it otherwise bounds each.
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
	p.config.Logger.Warn("cancelling handlers after StopTimeout", "waited", p.config.StopTimeout)
	p.runner.CancelHandlers(ErrStopping)
	select {
	case <-empty:
		return
	case <-time.After(p.runner.Grace() + p.config.LeaseTTL): // handlers are abandoned and outcomes recorded by then
	}
	p.config.Logger.Error("cannot record outcomes: the database does not answer")
	p.runner.CancelOperations()
	select {
	case <-empty: // held no longer: other workers may begin the tasks
	case <-time.After(p.runner.Grace()): // hooks may take as long
		p.config.Logger.Error("stopped with tasks in flight; other workers will take them over")
	}
}
