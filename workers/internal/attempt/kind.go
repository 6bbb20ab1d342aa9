package attempt

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/inflight"
)

// Task is a task in flight.
type Task = inflight.Task[*Attempt]

// Kind is the state that attempts at tasks of one kind share. It is safe for concurrent use. All exported fields are
// constant.
type Kind struct {
	*Runner
	Name ledger.Kind
	// Acquire acquires a connection for the transaction of a handler. Nil: effects are outside of the database.
	Acquire func(context.Context) (Conn, error)
	// Once: an attempt whose outcome is unknown is never repeated (AtMostOnce).
	Once bool

	Timeout      time.Duration // of an attempt; negative: no limit
	Retry        ledger.RetryPolicy
	MaxLost      int
	StartedAfter time.Duration
	Shared       int // maximum number of tasks in a transaction

	Logger *slog.Logger
	Errors Errors
	Tasks  *inflight.Set[*Attempt]
	// Again rereads the head of a task that is still in flight.
	Again func(*Task)
	// Companion takes the next attempt of the kind's line if suits returns true for it and it may still run.
	// Otherwise it returns nil.
	Companion func(suits func(*Attempt) bool) *Attempt
	// HasCompanion reports whether Companion may return an attempt.
	HasCompanion func(suits func(*Attempt) bool) bool
	// NotifiesHooks: Work.Started and Work.Ended may take a while, and End contains the events.
	NotifiesHooks bool
	// RecordsAtOnce: a process waits for each success, so that it waits for no others.
	RecordsAtOnce bool

	// Each is safe for concurrent use.
	deadlines  deadlines
	noteTimers sync.Pool // of *noteTimer
	repeats    repeats
	running    atomic.Int32
	overdue    atomic.Int32
	isLimited  atomic.Bool // a limit of starts applies
	isGated    atomic.Bool // a concurrency limit applies, whose permits are free when an attempt has ended
	isPermit   atomic.Bool // all limits of starts that apply give permits without an event
}

// SetLimited records whether a limit of starts applies to the kind, whether one of concurrency does, and whether all
// give permits without an event.
func (k *Kind) SetLimited(is, isGated, isPermit bool) {
	k.isLimited.Store(is)
	k.isGated.Store(isGated)
	k.isPermit.Store(isPermit)
}

// TakesPermits reports whether attempts take permits instead of recording their start.
func (k *Kind) TakesPermits() bool { return k.isPermit.Load() && !k.RecordsAtOnce }

// IsLimited reports whether a limit of starts applies to the kind.
func (k *Kind) IsLimited() bool { return k.isLimited.Load() }

// Running returns how many slots are busy with handlers, the overdue ones included.
func (k *Kind) Running() int { return int(k.running.Load()) }

// Overdue returns how many handlers were abandoned and have not returned.
func (k *Kind) Overdue() int { return int(k.overdue.Load()) }

// Work is the handler of an attempt with its hooks, made by package workers.
type Work interface {
	// Cause is the cause of tasks that the handler enqueues.
	ledger.Cause
	// Call runs the BeforeAttempt hooks, and the handler once [Attempt.Enter] has returned true. It returns a panic
	// as an error. If one of them ends the goroutine, Call does not return.
	Call(ctx context.Context, tx pgx.Tx) error
	// Result returns the handler's result, or nil.
	Result() json.RawMessage
	// Started is called when the start of the attempt is committed.
	Started(e ledger.Event)
	// TakenOver is called if the task was taken over from a worker that is gone.
	TakenOver()
	// Ended is called once, when the outcome is committed or cannot be.
	Ended(end End)
}

// End is how an attempt ended.
type End struct {
	Outcome  Outcome
	State    ledger.State // of the task after the last event that the attempt appended, or ""
	Err      error        // why it did not succeed
	Began    time.Time    // when the handler's context was made, or zero
	Duration time.Duration
	Events   []ledger.Event // of the outcome that are committed, in order; nil unless Kind.NotifiesHooks
}

// Errors interprets the errors of handlers.
type Errors interface {
	// Decide returns the decision that an error requests.
	Decide(err error) Decision
	// Describe returns the type of an error, and its stack if it is a panic.
	Describe(err error) (errorType, stack string)
}

// Action is the action that an error of a handler requests.
type Action int

// The actions, in the order in which they win if an error requests several. Interrupt gives the task back by an event,
// which is not a failure. Lose does so too, and counts that the process that did the work was lost.
const (
	Corrupt Action = iota + 1 // the args do not decode
	Panic
	Interrupt
	Lose
	Snooze
	Discard
	Bury
	Fail
)

// Decision is the decision that an error of a handler requests.
type Decision struct {
	Action Action
	Reason string
	// In or At is when a snoozed or failed task is due. HasRetry: the handler has chosen it.
	In       time.Duration
	At       time.Time
	HasRetry bool
	// HasNotBegun: the handler has not begun. If its context is done, or GivesBack is set, the task is given back.
	HasNotBegun, GivesBack bool
	// Retry replaces the kind's retry policy; nil: none.
	Retry *ledger.RetryPolicy
	// IsExplicit: the handler has decided how its task continues, so an AtMostOnce attempt may be repeated or ended.
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
