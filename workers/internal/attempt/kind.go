package attempt

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/inflight"
)

// Task is a task in flight.
type Task = inflight.Task[*Attempt]

// Kind is what the attempts at tasks of one kind share. It is safe for concurrent use. All fields that are
// exported are constant.
type Kind struct {
	*Runner
	Name ledger.Kind
	// Acquire takes a connection for the transaction of a handler. Nil: effects are outside of the database.
	Acquire func(context.Context) (Conn, error)
	// Once: an attempt whose outcome is unknown is never repeated (AtMostOnce).
	Once bool

	Timeout      time.Duration // of an attempt; negative: none
	Retry        ledger.RetryPolicy
	MaxLost      int
	StartedAfter time.Duration
	Shared       int // tasks that may share a transaction; 1: none

	Logger *slog.Logger
	Errors Errors
	Tasks  *inflight.Set[*Attempt]
	// Again reads the head of a task again that is still in flight.
	Again func(*Task)
	// Companion takes the attempt that is next in the kind's line, if suits reports that it may share a
	// transaction and it is still to be run; nil if there is none.
	Companion func(suits func(*Attempt) bool) *Attempt
	// HasCompanion reports whether there may be one.
	HasCompanion func(suits func(*Attempt) bool) bool
	// NotifiesHooks: Work.Appended and Work.Ended may take a while.
	NotifiesHooks bool

	deadlines deadlines
	running   atomic.Int32
	overdue   atomic.Int32
}

// Running returns how many slots handlers take, the overdue ones included.
func (k *Kind) Running() int { return int(k.running.Load()) }

// Overdue returns how many handlers have not returned although their context was cancelled a while ago.
func (k *Kind) Overdue() int { return int(k.overdue.Load()) }

// Work is the handler of an attempt with its hooks, made by package workers.
type Work interface {
	// Cause is the cause of what the handler enqueues.
	ledger.Cause
	// Call runs the hooks before the attempt, and the handler once [Attempt.Enter] has returned true. A
	// panic is returned as an error. If one of them ends the goroutine, Call does not return.
	Call(ctx context.Context, tx pgx.Tx) error
	// Result returns what the handler left as its result, nil if it left none.
	Result() json.RawMessage
	// Appended is called for each event of the attempt that is committed, in order.
	Appended(e ledger.Event)
	// TakenOver is called if the task was taken over from a worker that is gone.
	TakenOver()
	// Ended is called once, when the outcome is committed or was not.
	Ended(end End)
}

// End is how an attempt ended.
type End struct {
	Outcome  Outcome
	State    ledger.State // of the task after the last event that the attempt appended; "": none was
	Err      error        // why it did not succeed
	Began    time.Time    // when the handler's context was made; zero: it was not
	Duration time.Duration
}

// Errors is the vocabulary of errors that handlers return.
type Errors interface {
	// Decide returns what an error asks for.
	Decide(err error) Decision
	// Describe returns the type of an error, and its stack if it is a panic.
	Describe(err error) (errorType, stack string)
}

// Action is what an error of a handler asks for.
type Action int

// The actions, in the order in which they win where an error asks for several.
const (
	Corrupt Action = iota + 1 // the args do not decode
	Panic
	Snooze
	Discard
	Bury
	Fail
)

// Decision is what an error of a handler asks for.
type Decision struct {
	Action Action
	Reason string
	// In or At is when a task that is snoozed or failed is due. HasRetry: the handler chose it.
	In       time.Duration
	At       time.Time
	HasRetry bool
	// HasNotBegun: the handler has not begun. If its context is done the task is given back.
	HasNotBegun bool
	// IsExplicit: the handler has decided how its task goes on, so that an AtMostOnce attempt may be repeated
	// or ended.
	IsExplicit bool
}

// Outcome is how an attempt ended. Package workers exports the same words.
type Outcome string

// The outcomes.
const (
	OutcomeSucceeded   Outcome = "succeeded"
	OutcomeFailed      Outcome = "failed"
	OutcomeBuried      Outcome = "buried"
	OutcomeSnoozed     Outcome = "snoozed"
	OutcomeDiscarded   Outcome = "discarded"
	OutcomeExpired     Outcome = "expired"
	OutcomeInterrupted Outcome = "interrupted"
	OutcomeFenced      Outcome = "fenced"
	OutcomeRetried     Outcome = "retried"
)

// warn logs a line that may repeat for many tasks.
func (k *Kind) warn(text string, attributes ...any) { k.limited.Warn(k.Logger, text, attributes...) }
