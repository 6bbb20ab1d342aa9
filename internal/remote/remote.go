// Package remote is the part of package workers for workers in other processes: types and calls of a gateway, which the
// HTTP API and pushes use. Package workers, which is the gateway, stores its constructor here when the program starts.
package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/ledger"
)

// New returns a gateway. It does not connect to anything yet. It returns an error that names every fault.
var New func(c Config) (Gateway, error)

// Gateway gives tasks to workers in other processes that ask for them. It is safe for concurrent use.
type Gateway interface {
	// Ask returns tasks for a worker of a caller, as soon as there is one.
	Ask(ctx context.Context, caller string, a Ask) (Answer, error)
	// End ends attempts, and returns the state of each task once the outcomes are committed.
	End(ctx context.Context, caller string, outcomes ...Outcome) []State
	// Progress reports how far an attempt is.
	Progress(ctx context.Context, caller string, a AttemptRef, report json.RawMessage) error
	// Heartbeat renews the tasks that a session holds, and returns the finished ones.
	Heartbeat(ctx context.Context, caller, session string, fences []string) []Ended
	// Live renews the tasks that a session holds, and returns the fences of tasks that are not over.
	Live(caller, session string, fences []string) []string
	// Release gives back tasks of a session, or all if fences is nil: then the session ends.
	Release(ctx context.Context, caller, session string, fences []string) (int, error)
	// Term returns how long a task stays with a worker that does not report.
	Term() time.Duration
	// Rest ends all sessions and connections of workers. The next Ask begins them again. Call it while no task is at
	// work.
	Rest()
	// Drain begins no further task, and returns when no task is at work.
	Drain()
}

// Config configures [New].
type Config struct {
	DB   *pgxpool.Pool // the primary, with the role worker. Required.
	NATS *nats.Conn    // with the rights of a worker, see workers.Config.NATS. Required.
	// Term is how long a task stays with a worker that does not report. It is also the duration of the leases. Default:
	// 30 s.
	Term time.Duration
	// StopTimeout is how long Drain waits for attempts, see workers.Config.StopTimeout. Default: 10 s.
	StopTimeout time.Duration
	// Logger receives warnings and errors. Default: [slog.Default].
	Logger *slog.Logger
}

// Ask is the request of a worker for tasks.
type Ask struct {
	Worker    string        // a name for people
	Session   string        // identifies the process
	Kinds     []ledger.Kind // of the tasks
	Guarantee string        // of all kinds: a workers.Guarantee
	Limit     int           // number of tasks
	Wait      time.Duration // for the first task
	FirstWait time.Duration // in place of Wait, for the first request of a session. Default: Wait.
	Received  string        // Answer.Batch of the last answer that the worker has read
	Timeout   time.Duration // of an attempt
	IsHere    bool          // the worker ends with this process
}

// Answer contains the tasks for a worker.
type Answer struct {
	Batch string // for Ask.Received
	Tasks []Task
}

// Task is an attempt that a worker was given. Fence identifies it, and is "" for a task that the worker begins
// with taskledger.claim.
type Task struct {
	AttemptRef
	Version                 ledger.Version // of the event that made the task available
	Args                    []byte
	Priority                ledger.Priority
	AvailableAt             time.Time
	FinishBy                time.Time // zero: no deadline
	Timeout                 time.Duration
	Traceparent, Tracestate string
	Again                   bool // it was given before, in an answer that may be lost
}

// AttemptRef identifies an attempt.
type AttemptRef struct {
	ledger.Key
	Attempt ledger.Attempt
	Fence   string
}

// Error is the error of a handler in another process. Retry is the policy for a task without its own, or nil.
type Error struct {
	Message, Type, Stack string
	Retry                *ledger.RetryPolicy
}

func (e *Error) Error() string { return e.Message }

// EndedError reports that an attempt has ended otherwise, or never was the caller's.
type EndedError struct {
	ledger.Key
	Attempt ledger.Attempt
	State   ledger.State // of the task; "": the ledger does not have it any more
	Version ledger.Version
}

func (e *EndedError) Error() string {
	if e.State == "" {
		return fmt.Sprintf("attempt %d at task %s has ended: the ledger does not have the task any more",
			e.Attempt, e.Key)
	}
	return fmt.Sprintf("attempt %d at task %s has ended otherwise, or is not the caller's: the task is %s, version %d",
		e.Attempt, e.Key, e.State, e.Version)
}

// Outcome is how a worker ends an attempt: with a result if Err is nil, else as a pool ends the attempt of a
// handler that returns Err.
type Outcome struct {
	AttemptRef
	Result json.RawMessage
	Err    error
}

// State is the state of a task once the outcome of its attempt is committed, or an error: an
// [*EndedError], a [*ledger.InvalidError] for the result, [ledger.ErrUnknownTask], or one of the database.
type State struct {
	State ledger.State
	Err   error
}

// End is why an attempt has ended without an outcome of its worker.
type End string

// The ends.
const (
	Cancelled End = "cancelled"
	Timeout   End = "timeout"
	Deadline  End = "deadline"
	Fenced    End = "fenced"
	Unknown   End = "unknown" // the session does not have it
)

// Ended is an attempt that is over.
type Ended struct {
	ledger.Key // zero: unknown
	Fence      string
	Reason     End
}
