package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// OperatorConfig says where an [Operator] works.
type OperatorConfig struct {
	// DB is the primary. Required.
	DB *pgxpool.Pool
	// NATS tells workers at once that a task they run was taken from them. Nil: they find out
	// when they renew their leases, every third of their AckWait.
	NATS *nats.Conn
}

// Validate reports every fault at once.
func (c OperatorConfig) Validate() error {
	if c.DB == nil {
		return errors.New("workers: DB is required")
	}
	return nil
}

// Operator is what a person does to tasks. Everything is an event with an actor and a reason,
// appended only to what the task is at that moment; nothing is done twice. Each method for one
// task has one for all that a [Filter] finds. It is safe for concurrent use.
type Operator struct{ config OperatorConfig }

// NewOperator returns an operator. It returns the error of [OperatorConfig.Validate].
func NewOperator(c OperatorConfig) (*Operator, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Operator{c}, nil
}

// By says who does something, and why. Both stand in the event.
type By struct {
	Actor  string // empty: the database's session_user
	Reason string // empty: that an operator did it
}

// MaxReasonBytes is the longest reason.
const MaxReasonBytes = 4 << 10

// When is a moment: At, or In from now on by the database's clock; exactly one of them. A moment
// that is past is now.
type When struct {
	At time.Time
	In time.Duration
}

// Release makes a task available again that is dead, cancelled, expired or discarded, which then
// has all its attempts before it again, or that waits (scheduled, retrying), which is brought
// forward. An available task is left as it is.
//
// Errors, of this and the other methods for one task: [ledger.ErrUnknownTask];
// [*ledger.TransitionError] with the state in which the task is if nothing can be done to it
// there, so that whoever lost a race is told against what; [*ledger.InvalidError]. It commits.
func (o *Operator) Release(ctx context.Context, k ledger.Key, by By) (ledger.Event, error) {
	return o.one(ctx, k, order{event: ledger.EventReleased, by: by})
}

// Bury makes an unfinished task dead: nobody works on it until it is released. If a handler is
// at it, its context is cancelled, and what it has done in its transaction is rolled back.
func (o *Operator) Bury(ctx context.Context, k ledger.Key, by By) (ledger.Event, error) {
	return o.one(ctx, k, order{event: ledger.EventBuried, by: by})
}

// Cancel calls an unfinished task off. If a handler is at it, its context is cancelled
// ([ErrCancelled]) within moments, or when its worker renews the lease if the message is lost;
// what it has done in its transaction is rolled back. If the handler has finished first, the task
// has succeeded, and the error says so.
func (o *Operator) Cancel(ctx context.Context, k ledger.Key, by By) (ledger.Event, error) {
	return o.one(ctx, k, order{event: ledger.EventCancelled, by: by})
}

// Reschedule has a task that waits, or is available and not yet begun, released at another time.
func (o *Operator) Reschedule(ctx context.Context, k ledger.Key, when When, by By) (ledger.Event, error) {
	return o.one(ctx, k, order{event: ledger.EventScheduled, when: when, by: by})
}

// order is what is to be done, to one task or many.
type order struct {
	event ledger.EventType
	when  When
	by    By
}

// states are those in which the order can be carried out on a task.
func (r order) states() []ledger.State {
	if r.event == ledger.EventReleased { // the table allows available, for a message that was lost
		return []ledger.State{
			ledger.StateDead, ledger.StateCancelled, ledger.StateExpired, ledger.StateDiscarded, ledger.StateScheduled, ledger.StateRetrying,
		}
	}
	var states []ledger.State
	for _, row := range ledger.Transitions() {
		for _, from := range row.From {
			if row.Type == r.event && from != ledger.StateNone {
				states = append(states, from)
			}
		}
	}
	return states
}

// defaultReasons are what stands in an event without a reason of its own.
var defaultReasons = map[ledger.EventType]string{
	ledger.EventReleased:  "released by an operator",
	ledger.EventBuried:    "buried by an operator",
	ledger.EventCancelled: "cancelled by an operator",
	ledger.EventScheduled: "rescheduled by an operator",
}

func (r order) validate() error {
	if len(r.by.Reason) > MaxReasonBytes {
		return &ledger.InvalidError{Field: "reason", Rule: fmt.Sprintf("must have at most %d bytes, has %d", MaxReasonBytes, len(r.by.Reason))}
	}
	if r.event != ledger.EventScheduled {
		return nil
	}
	switch {
	case r.when.In < 0:
		return &ledger.InvalidError{Field: "in", Value: r.when.In.String(), Rule: "must not be negative"}
	case r.when.At.IsZero() == (r.when.In == 0):
		return &ledger.InvalidError{Field: "at", Rule: "must be given, or else in"}
	}
	return nil
}

// request is the append that carries the order out on a task that is at a version.
func (r order) request(k ledger.Key, v ledger.Version) (ledger.AppendRequest, error) {
	reason := r.by.Reason
	if reason == "" {
		reason = defaultReasons[r.event]
	}
	data, err := json.Marshal(map[string]string{"reason": printable.Storable(reason, MaxReasonBytes)})
	return ledger.AppendRequest{
		Key: k, Expected: v, Type: r.event, Actor: r.by.Actor, Data: data, At: r.when.At, After: r.when.In,
	}, err
}

// maxRaces is how often an order may find that the task has moved on since it was looked at.
const maxRaces = 20

// one carries an order out on one task. If somebody else is quicker, it looks at what the task is
// now, and tries again if that still allows it.
func (o *Operator) one(ctx context.Context, k ledger.Key, r order) (ledger.Event, error) {
	if err := r.validate(); err != nil {
		return ledger.Event{}, err
	}
	for race := 1; ; race++ {
		task, err := ledger.Load(ctx, o.config.DB, k)
		if err != nil {
			return ledger.Event{}, err
		}
		if !slices.Contains(r.states(), task.State) {
			return ledger.Event{}, &ledger.TransitionError{Key: k, Type: r.event, State: task.State}
		}
		request, err := r.request(k, task.Version)
		if err != nil {
			return ledger.Event{}, err
		}
		e, err := ledger.Append(ctx, o.config.DB, request)
		if err == nil {
			o.recall(k, task.State)
			o.flush()
			return e, nil
		}
		if !ledger.IsConflict(err) || race == maxRaces {
			return ledger.Event{}, err
		}
	}
}

// recall tells workers that a task which they may be at has moved on.
func (o *Operator) recall(k ledger.Key, before ledger.State) {
	atWork := before == ledger.StateRunning || before == ledger.StateAvailable
	if o.config.NATS != nil && atWork {
		_ = o.config.NATS.Publish(stream.RecallSubject(k.Kind), []byte(k.BizID)) // if it is lost they find out later
	}
}

// flush sends the messages of recall, before the process may end.
func (o *Operator) flush() {
	if o.config.NATS != nil {
		stream.Flush(o.config.NATS)
	}
}
