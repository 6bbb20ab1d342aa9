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
	due   ledger.Due // of EventScheduled
	audit Audit
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
	return a.due.Validate()
}

func (a Audit) validate() error { return operation.CheckReason(a.Reason) }

// request returns the append that applies the action to a task at a version.
func (a action) request(k ledger.Key, v ledger.Version) (ledger.AppendRequest, error) {
	reason := a.audit.Reason
	if reason == "" {
		reason = defaultReasons[a.event]
	}
	data, err := json.Marshal(map[string]string{"reason": reason})
	if a.due.IsInPlace() { // of an available task
		a.due.In = time.Microsecond
	}
	return ledger.AppendRequest{
		Key: k, Expected: v, Type: a.event, Actor: a.audit.Actor, Data: data, At: a.due.At, In: a.due.In,
		Priority: a.due.Priority,
	}, err
}
