package operator

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/taskledger/taskledger/ledger"
)

// Filter selects tasks. It reads the projection, which may be a moment behind. A task that has moved on since is tried
// again if its new state matches; with Fingerprint or OlderThan it is skipped.
type Filter struct {
	// Kind of the tasks. Default: all kinds.
	Kind ledger.Kind
	// State of the tasks. Default: dead for a release, else all states that the change allows.
	State ledger.State
	// Fingerprint of the error of dead tasks. Default: all tasks.
	Fingerprint string
	// OrderKey of the tasks, which are then changed in the order of their line. Default: all tasks.
	OrderKey string
	// OlderThan is the least time since the last event of the tasks, by the database's clock. Default: 0.
	OlderThan time.Duration
	// Limit is the maximum number of tasks, in an unspecified order without OrderKey. Default: 0, no limit.
	Limit int
}

// search returns the search for the tasks that match f and to which a can be applied.
func (f Filter) search(a action) (*search, error) {
	allowed := a.states()
	if err := f.validate(allowed); err != nil {
		return nil, err
	}
	s := &search{filter: f, states: allowed}
	switch {
	case a.due.IsInPlace() && f.State != "" && f.State != ledger.StateAvailable:
		rule := "must be available if only the priority changes: give at or in, too"
		return nil, &ledger.InvalidError{Field: "state", Value: string(f.State), Rule: rule}
	case a.due.IsInPlace():
		s.states = []ledger.State{ledger.StateAvailable}
	case f.State != "":
		s.states = []ledger.State{f.State}
	case a.event == ledger.EventReleased:
		s.states = []ledger.State{ledger.StateDead}
	}
	return s, nil
}

// validate returns an [*ledger.InvalidError] if f is invalid for a change that these states allow.
func (f Filter) validate(allowed []ledger.State) error {
	invalid := func(field, value, rule string) error {
		return &ledger.InvalidError{Field: field, Value: value, Rule: rule}
	}
	switch {
	case f.Kind.ValidateStored() != nil:
		return f.Kind.ValidateStored()
	case f.State != "" && !slices.Contains(allowed, f.State):
		return invalid("state", string(f.State), "must be one of "+joinStates(allowed))
	case !isText(f.Fingerprint):
		return invalid("fingerprint", f.Fingerprint, "must be UTF-8 without NUL")
	case f.Fingerprint != "" && f.State != "" && f.State != ledger.StateDead:
		return invalid("fingerprint", f.Fingerprint, "requires the state dead, got "+string(f.State))
	case f.Fingerprint != "" && !slices.Contains(allowed, ledger.StateDead):
		return invalid("fingerprint", f.Fingerprint, "selects dead tasks, which this change does not allow")
	case !isText(f.OrderKey):
		return invalid("order_key", f.OrderKey, "must be UTF-8 without NUL")
	case f.OlderThan < 0:
		return invalid("older than", f.OlderThan.String(), "must not be negative")
	case f.Limit < 0:
		return invalid("limit", fmt.Sprint(f.Limit), "must not be negative")
	}
	return nil
}

// isText reports whether the database can store s as text.
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

func joinStates(states []ledger.State) string {
	names := make([]string, len(states))
	for i, s := range states {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}
