package attempt

import (
	"sync"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
)

// reconnectEvery is the least time between two times that all connections are made again.
const reconnectEvery = time.Second

// standby is when the pool of connections was last made again because one of them reached a standby.
type standby struct {
	mu   sync.Mutex
	last time.Time // guarded by mu
}

// LeaveStandby reports whether err shows that a connection of the pool reaches a standby, which a URL with several
// hosts permits. It then has the pool connect again: otherwise one task after another would get that connection.
func (r *Runner) LeaveStandby(err error) bool {
	if r.db == nil || !pgerr.Is(err, pgerr.ReadOnlySQLTransaction) {
		return false
	}
	r.standby.mu.Lock()
	defer r.standby.mu.Unlock()
	if now := time.Now(); now.Sub(r.standby.last) > reconnectEvery {
		r.standby.last = now
		r.Warn(r.logger, "a connection reaches a standby; connecting again", "error", err)
		r.db.Reset()
	}
	return true
}
