package attempt

import (
	"sync"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
)

// reconnectEvery is the least time between two reconnections of the pool.
const reconnectEvery = time.Second

// reconnection is when the pool last connected again because a connection reached a standby or lacked a right.
type reconnection struct {
	mu   sync.Mutex
	last time.Time // guarded by mu
}

// LeaveStandby reports whether err shows that a connection of the pool reaches a standby, which a URL with several
// hosts permits. It then reconnects the pool: otherwise one task after another would get that connection.
func (r *Runner) LeaveStandby(err error) bool {
	if !pgerr.Is(err, pgerr.ReadOnlySQLTransaction) {
		return false
	}
	return r.reconnect("a connection reaches a standby; connecting again", err)
}

// LeavePolicies reconnects the pool if err shows that the login lacks a right. PostgreSQL keeps the row-level
// security of a prepared statement when a role is granted, so an open connection would never get the right.
func (r *Runner) LeavePolicies(err error) {
	if pgerr.Is(err, pgerr.InsufficientPrivilege) {
		r.reconnect("the login lacks a right; connecting again", err)
	}
}

// reconnect reconnects the pool, unless it has just done so. It reports false if the runner has no pool.
func (r *Runner) reconnect(why string, err error) bool {
	if r.db == nil {
		return false
	}
	r.reconnection.mu.Lock()
	defer r.reconnection.mu.Unlock()
	if now := time.Now(); now.Sub(r.reconnection.last) > reconnectEvery {
		r.reconnection.last = now
		r.Warn(r.logger, why, "error", err)
		r.db.Reset()
	}
	return true
}
