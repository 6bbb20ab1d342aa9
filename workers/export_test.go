package workers

import (
	"context"
	"time"
)

// SetTogetherTime replaces togetherTime. It must be called before Run.
func (p *Pool) SetTogetherTime(d time.Duration) { p.togetherTime = d }

// SetAheadTime replaces aheadTime, for kinds that are registered later.
func (p *Pool) SetAheadTime(d time.Duration) { p.aheadTime = d }

// Ready is how many tasks wait for a slot.
func (p *Pool) Ready() (n int) {
	p.turns.mu.Lock()
	defer p.turns.mu.Unlock()
	for _, k := range p.kinds {
		n += len(k.line.ready)
	}
	return n
}

// Statements are those of this package, by file name.
var Statements = map[string]string{
	"heads.sql":         headsSQL,
	"lease_lock.sql":    leaseLockSQL,
	"lease_renew.sql":   leaseRenewSQL,
	"installation.sql":  installationSQL,
	"lease_end.sql":     leaseEndSQL,
	"lease_sweep.sql":   leaseSweepSQL,
	"worker_list.sql":   workerListSQL,
	"shard_members.sql": shardMembersSQL,
	"shard_owners.sql":  shardOwnersSQL,
	"shard_take.sql":    shardTakeSQL,
	"shard_leave.sql":   shardLeaveSQL,
	"kind_paused.sql":   kindPausedSQL,
	"kind_shed.sql":     kindShedSQL,
}

// Errors of who runs a handler in a transaction that the handler has broken.
var (
	ErrRowsOpen       = errRowsOpen
	ErrConnectionLost = errConnectionLost
)

// AheadBytes bounds what is held beyond the slots.
const AheadBytes = aheadBytes

// Timeouts returns what gives contexts to the attempts of one kind, each to be left.
func Timeouts() func(work context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	t := &timeouts{}
	return func(work context.Context, d time.Duration) (context.Context, context.CancelFunc) {
		c := t.enter(work, time.Now(), d)
		return c, func() { t.leave(c) }
	}
}

// Waiting is how many tasks of its i-th kind wait for a slot and nothing else.
func (p *Pool) Waiting(i int) int {
	p.turns.mu.Lock()
	defer p.turns.mu.Unlock()
	return len(p.registered()[i].line.ready)
}
