package shards

import (
	"sync/atomic"

	"github.com/taskledger/taskledger/ledger"
)

// Counts counts, for each shard, the loops that receive its messages. Lost shards may be taken again before the
// earlier loops have ended. It is safe for concurrent use.
type Counts [ledger.Shards]atomic.Int32

// Add adds n to the counts of a set of shards.
func (c *Counts) Add(set ledger.ShardSet, n int32) {
	for shard := range set.Shards() {
		c[shard].Add(n)
	}
}

// Has reports whether a shard's messages are received.
func (c *Counts) Has(shard ledger.Shard) bool { return c[shard].Load() > 0 }

// Set returns the shards whose messages are received.
func (c *Counts) Set() (set ledger.ShardSet) {
	for i := range c {
		if c.Has(ledger.Shard(i)) {
			set |= 1 << i
		}
	}
	return set
}
