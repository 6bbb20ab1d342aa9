package workers

import (
	"sync/atomic"

	"github.com/taskledger/taskledger/ledger"
)

// shardCounts says which shards a kind's messages are received for; counted, since shards that were
// lost may be taken again before the loops of the first time have ended. It is safe for concurrent
// use.
type shardCounts [ledger.Shards]atomic.Int32

func (c *shardCounts) add(shards ledger.ShardSet, n int32) {
	for shard := range shards.Shards() {
		c[shard].Add(n)
	}
}

func (c *shardCounts) has(shard ledger.Shard) bool { return c[shard].Load() > 0 }

func (c *shardCounts) set() (shards ledger.ShardSet) {
	for i := range c {
		if c.has(ledger.Shard(i)) {
			shards |= 1 << i
		}
	}
	return shards
}
