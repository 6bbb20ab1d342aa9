package operator

import (
	"encoding/json"
	"time"

	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/ledger"
)

// action is a change of one task or of many.
type action struct {
	event ledger.EventType
	due   Due // of EventScheduled
	audit Audit

	version ledger.Version // that the task must have; 0: any
}

// defaultReasons are the reasons of events whose audit names none.
var defaultReasons = map[ledger.EventType]string{
	ledger.EventReleased:  "released by an operator",
	ledger.EventBuried:    "buried by an operator",
	ledger.EventCancelled: "cancelled by an operator",
	ledger.EventScheduled: "rescheduled by an operator",
}

// states returns the states of tasks to which the action can be applied.
func (a action) states() []ledger.State {
	if a.event == ledger.EventReleased { // the table also allows available
		return []ledger.State{
			ledger.StateDead, ledger.StateCancelled, ledger.StateExpired, ledger.StateDiscarded,
			ledger.StateScheduled, ledger.StateRetrying,
		}
	}
	var states []ledger.State
	for _, row := range ledger.Transitions() {
		for _, from := range row.From {
			if row.Type == a.event && from != ledger.StateNone {
				states = append(states, from)
			}
		}
	}
	return states
}

func (a action) validate() error {
	if err := a.audit.validate(); err != nil {
		return err
	}
	if a.event != ledger.EventScheduled {
		return nil
	}
	if err := a.due.Priority.Validate(); err != nil {
		return err
	}
	switch {
	case a.isInPlace():
		return nil
	case a.due.In < 0:
		return &ledger.InvalidError{Field: "in", Value: a.due.In.String(), Rule: "must not be negative"}
	case a.due.At.IsZero() == (a.due.In == 0):
		return &ledger.InvalidError{Field: "at", Rule: "exactly one of at and in must be given, or a priority"}
	}
	return nil
}

// isInPlace reports whether the action changes only the priority of tasks.
func (a action) isInPlace() bool { return a.due.Priority != 0 && a.due.At.IsZero() && a.due.In == 0 }

// keepTime returns the action for a task: if it changes only the priority, with the task's due time.
func (a action) keepTime(t ledger.Task) action {
	if a.isInPlace() && t.State != ledger.StateAvailable {
		a.due.At = t.DueAt
	}
	return a
}

func (a Audit) validate() error { return operation.CheckReason(a.Reason) }

// request returns the append that applies the action to a task at a version.
func (a action) request(k ledger.Key, v ledger.Version) (ledger.AppendRequest, error) {
	reason := a.audit.Reason
	if reason == "" {
		reason = defaultReasons[a.event]
	}
	data, err := json.Marshal(map[string]string{"reason": reason})
	if a.isInPlace() { // of an available task
		a.due.In = time.Microsecond
	}
	return ledger.AppendRequest{
		Key: k, Expected: v, Type: a.event, Actor: a.audit.Actor, Data: data, At: a.due.At, In: a.due.In,
		Priority: a.due.Priority,
	}, err
}
