package attempt

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/loglimit"
	"github.com/taskledger/taskledger/ledger"
)

// MaxBatch is the maximum number of tasks that one statement decides or records.
const MaxBatch = ledger.AppendBatch

// maxGrace is the longest time that a handler may continue after its context was cancelled.
const maxGrace = 5 * time.Second

// Crash points, for package fault.
const (
	pointReady     = "worker.ready"     // the attempt has a slot, nothing is recorded
	pointClaimed   = "worker.claimed"   // the start is recorded or permits are taken, the handler has not begun
	pointHandler   = "worker.handler"   // the handler has returned, nothing is committed
	pointCommitted = "worker.committed" // the outcome is committed, the task is still in flight
)

// Runner is the state that the attempts of one process share. It is safe for concurrent use.
type Runner struct {
	// Constant after NewRunner, except sharedTime, which tests set before the first attempt.
	db          *pgxpool.Pool
	id          string // of the worker: the actor of its events
	quotedID    []byte // as JSON
	leaseTTL    time.Duration
	logger      *slog.Logger
	limited     *loglimit.Logger // for lines that repeat
	sharedTime  time.Duration
	connections chan struct{} // holds a token for each connection in use by a handler

	// Set by Start before the first attempt runs, constant afterwards.
	stopping context.Context // done when no attempt may begin any more
	work     context.Context // parent of the handlers' contexts
	stopWork context.CancelCauseFunc

	// Constant. lasting is the parent of database operations that outlive work; cancelLasting ends it.
	lasting       context.Context
	cancelLasting context.CancelFunc

	// Each is safe for concurrent use.
	completer    *completer
	express      *express
	quarantine   quarantine
	reconnection reconnection
}

// Config of a [Runner].
type Config struct {
	DB          *pgxpool.Pool // nil if only attempts of callers run
	ID          string
	LeaseTTL    time.Duration
	Logger      *slog.Logger
	Connections int // that handlers may use at a time
	// SharedTime is how long a shared transaction takes in further tasks. Default: 20 ms.
	SharedTime time.Duration
}

// NewRunner returns a runner. Attempts of callers can run at once, others after Start.
func NewRunner(c Config) (*Runner, error) {
	quoted, err := json.Marshal(c.ID)
	if err != nil {
		return nil, fmt.Errorf("worker name: %w", err)
	}
	if c.SharedTime == 0 {
		c.SharedTime = sharedTime
	}
	r := &Runner{
		db: c.DB, id: c.ID, quotedID: quoted, leaseTTL: c.LeaseTTL, logger: c.Logger, limited: loglimit.New(),
		sharedTime: c.SharedTime, connections: make(chan struct{}, c.Connections),
		stopping: context.Background(), work: context.Background(), stopWork: func(error) {},
	}
	r.lasting, r.cancelLasting = context.WithCancel(context.Background())
	r.completer = newCompleter(r)
	r.express = newExpress(r)
	return r, nil
}

// Start lets attempts run until stopping is done. It must be called before the first one runs.
func (r *Runner) Start(stopping context.Context) {
	r.stopping = stopping
	r.work, r.stopWork = context.WithCancelCause(context.WithoutCancel(stopping))
}

// SetSharedTime replaces Config.SharedTime. It must be called before the first attempt runs.
func (r *Runner) SetSharedTime(d time.Duration) { r.sharedTime = d }

// Complete records successes in groups until quit is done.
func (r *Runner) Complete(quit context.Context) { r.completer.run(quit) }

// CompleteAgain retries, until quit is done, to record successes that could not be recorded at first.
func (r *Runner) CompleteAgain(quit context.Context) { r.completer.retry(quit) }

// CancelHandlers cancels the contexts of all handlers with a cause.
func (r *Runner) CancelHandlers(cause error) { r.stopWork(cause) }

// CancelOperations cancels all database operations.
func (r *Runner) CancelOperations() { r.cancelLasting() }

// Close logs the pending summaries of repeated log lines.
func (r *Runner) Close() { r.limited.Close() }

// Lasting returns the context that CancelOperations cancels.
func (r *Runner) Lasting() context.Context { return r.lasting }

// HandlerContext returns the parent of the handlers' contexts.
func (r *Runner) HandlerContext() context.Context { return r.work }

// IsStopping reports whether no attempt may begin any more.
func (r *Runner) IsStopping() bool { return r.stopping.Err() != nil }

// SetAwaited records whether a process waits for outcomes. It may be called at any time.
func (r *Runner) SetAwaited(is bool) { r.completer.setAwaited(is) }

// SetLatency sets the latency of the dispatcher. Outcomes gather for a multiple of it, and not at all before the first
// call. It may be called at any time.
func (r *Runner) SetLatency(d time.Duration) { r.completer.latency.Store(int64(d)) }

// Warn logs a line that may repeat for many tasks.
func (r *Runner) Warn(to *slog.Logger, text string, attributes ...any) {
	r.limited.Warn(to, text, attributes...)
}

// Operation returns the context of one operation on the database, which continues while the worker is stopping.
func (r *Runner) Operation() (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.lasting, r.leaseTTL)
}

// Grace returns how long a handler or hook may continue after its context was cancelled.
func (r *Runner) Grace() time.Duration { return min(maxGrace, r.leaseTTL) }

// Connections returns how many connections handlers may use at a time.
func (r *Runner) Connections() int { return cap(r.connections) }

// Conn is a connection for the transaction of a handler.
type Conn interface {
	Conn() *pgx.Conn
	// Abandon breaks the connection of a handler that does not return; the server then rolls back. Any goroutine may
	// call it.
	Abandon()
	// Release returns the connection to the pool. It closes an abandoned or broken connection, or one in a transaction.
	Release()
}
