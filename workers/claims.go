package workers

import (
	"sync"
	"sync/atomic"
	"time"
)

// claims protects tasks of a kind that this worker takes from the dispatcher and other workers claim in SQL. Both
// could begin a task without a recorded start. So while such other workers live, this worker records each start before
// the handler runs, and lists the kind in its lease. The others claim nothing until then: see may_claim.
type claims struct {
	isOn atomic.Bool // starts are recorded first

	mu       sync.Mutex // guards the fields below
	isSeen   bool       // the last view contained other workers that claim
	since    time.Time  // isOn
	isListed bool       // the lease may list the kind
	unlisted time.Time  // when a lease without the kind was written
}

// noteClaims applies a view of the database.
func (k *kind) noteClaims(v view) {
	c := &k.claims
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isSeen = k.pool.asker != nil && v.claimed[k.Name]
	switch {
	case c.isSeen && !c.isOn.Load():
		c.since = time.Now()
		c.isOn.Store(true)
	case !c.isSeen && !c.isListed && c.unlisted.Before(v.asked): // the look found all that the lease has admitted
		c.isOn.Store(false)
	}
}

// canList reports whether the lease may list the kind as one whose starts are recorded. An attempt that was about to
// begin when isOn was set has begun by now.
func (c *claims) canList() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isSeen && c.isOn.Load() && time.Since(c.since) >= watchEvery
}

// list records that a lease is about to be written.
func (c *claims) list(isListed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isListed = c.isListed || isListed
}

// unlist records that a lease was written.
func (c *claims) unlist(isListed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isListed && !isListed {
		c.isListed, c.unlisted = false, time.Now()
	}
}

// recordsStarts returns, sorted, the kinds that record each start before the handler and whose running attempts are
// all recorded.
func (p *Pool) recordsStarts() []string {
	var kinds []*kind
next:
	for _, k := range p.registered() {
		if k.isClaimed { // nothing begins here
			kinds = append(kinds, k)
			continue
		}
		if !k.claims.canList() {
			continue
		}
		for _, a := range k.Tasks.Begun() {
			if !a.HasStart() {
				continue next
			}
		}
		kinds = append(kinds, k)
	}
	return kindNames(kinds)
}
