package workertest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/taskledger/taskledger/internal/fault"
)

// Point is a point at which a worker may crash.
type Point string

// The critical points.
const (
	// HandlerDone: the handler has returned, and nothing is committed.
	HandlerDone Point = "worker.handler"
	// OutcomeCommitted: the outcome is committed, and the dispatcher does not know it.
	OutcomeCommitted Point = "worker.committed"
)

var errCrashed = errors.New("this worker has crashed")

// CrashAt makes the worker crash when it next passes a point. From then on it sends nothing to the database or NATS,
// which close its connections, as if the process were killed. A new worker with the same kinds begins at once; it
// takes over after about a second.
//
// Points apply to the whole process: a test that crashes must not run in parallel with others that run workers.
func (k *Kit) CrashAt(point Point) {
	k.t.Helper()
	var once sync.Once
	over := make(chan struct{})
	k.t.Cleanup(func() { close(over) })
	var remove func()
	remove = fault.Set(string(point), func() {
		crashing := false
		once.Do(func() {
			crashing = true
			remove()
			if err := k.crash(); err != nil {
				k.fail(err)
			}
		})
		if crashing {
			<-over // this goroutine must not continue
		}
	})
	k.t.Cleanup(remove)
}

// crash cuts off the worker and starts a new one.
func (k *Kit) crash() error {
	k.mu.Lock()
	p := k.process
	k.mu.Unlock()
	close(p.crashed)
	p.nc.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := k.db.Exec(ctx, `select pg_terminate_backend(a.pid)
		from pg_stat_activity a
		where a.datname = current_database() and a.application_name = $1`, p.name)
	if err != nil {
		return fmt.Errorf("crash: %w", err)
	}
	next, err := k.begin()
	if err != nil {
		return fmt.Errorf("begin after a crash: %w", err)
	}
	k.mu.Lock()
	k.process = next
	k.mu.Unlock()
	go p.stop() // its remaining goroutines end in time
	return nil
}
