package whatif

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/taskledger/taskledger/internal/strictjson"
	"github.com/taskledger/taskledger/ledger"
)

// Policy is what would have been different. At least one field must be set.
type Policy struct {
	// Retry is the retry policy of all tasks. Default: each task is retried as it was.
	Retry *ledger.RetryPolicy
	// StartBy and FinishBy are deadlines, as delays from the first event of a task. Default: no deadlines.
	StartBy, FinishBy time.Duration
	// Transitions replace the rows of [ledger.Transitions] with the same type. A row without From forbids the type.
	// Default: no row is replaced.
	Transitions []ledger.Transition
}

// policyJSON is the JSON of a [Policy]. Delays are seconds.
type policyJSON struct {
	Retry       json.RawMessage `json:"retry"`
	StartBy     *float64        `json:"start_by"`
	FinishBy    *float64        `json:"finish_by"`
	Transitions []struct {
		Type ledger.EventType `json:"type"`
		From []ledger.State   `json:"from"`
		To   ledger.State     `json:"to"`
	} `json:"transitions"`
}

// ParsePolicy decodes a policy from a JSON object. All members are optional, and other members are invalid:
//
//	{"retry": {"ladder": [60, 300, 1200], "attempts": 10}}   as ledger.RetryPolicy
//	{"start_by": 3600, "finish_by": 86400}                   seconds after the first event of a task
//	{"transitions": [{"type": "released", "from": ["scheduled", "retrying"]}]}
//
// The member to of a transition is optional. By default it is as in [ledger.Transitions]. Errors are
// [*ledger.InvalidError].
func ParsePolicy(text []byte) (Policy, error) {
	var j policyJSON
	if err := strictjson.Unmarshal(text, &j); err != nil {
		rule := "must be an object with retry, start_by, finish_by or transitions: " + err.Error()
		return Policy{}, &ledger.InvalidError{Field: "policy", Rule: rule}
	}
	var p Policy
	var faults []error
	if len(j.Retry) > 0 {
		retry, err := ledger.ParseRetryPolicy(j.Retry)
		p.Retry, faults = &retry, append(faults, err)
	}
	for _, d := range []struct {
		name string
		from *float64
		into *time.Duration
	}{{"start_by", j.StartBy, &p.StartBy}, {"finish_by", j.FinishBy, &p.FinishBy}} {
		if d.from == nil {
			continue
		}
		if most := (100 * 366 * 24 * time.Hour).Seconds(); math.IsNaN(*d.from) || *d.from <= 0 || *d.from > most {
			rule := fmt.Sprintf("must be a number of seconds above 0 and up to %.0f", most)
			faults = append(faults, &ledger.InvalidError{Field: d.name, Value: fmt.Sprint(*d.from), Rule: rule})
			continue
		}
		*d.into = time.Duration(*d.from * float64(time.Second))
	}
	for _, row := range j.Transitions {
		if row.To == "" {
			row.To = row.Type.State()
		}
		p.Transitions = append(p.Transitions, ledger.Transition{Type: row.Type, From: row.From, To: row.To})
	}
	if err := errors.Join(faults...); err != nil {
		return Policy{}, err
	}
	return p, p.Validate()
}

// Validate returns nil, or the first fault as an [*ledger.InvalidError].
func (p Policy) Validate() error {
	if p.Retry == nil && p.StartBy == 0 && p.FinishBy == 0 && len(p.Transitions) == 0 {
		return &ledger.InvalidError{Field: "policy", Rule: "must have retry, start_by, finish_by or transitions"}
	}
	if p.StartBy < 0 || p.FinishBy < 0 {
		return &ledger.InvalidError{Field: "policy", Rule: "deadlines must not be negative"}
	}
	for _, row := range p.Transitions {
		if row.Type.State() == ledger.StateNone {
			const rule = "must be an event type"
			return &ledger.InvalidError{Field: "transitions: type", Value: string(row.Type), Rule: rule}
		}
		for _, s := range append(slices.Clone(row.From), row.To) {
			if !isState(s) {
				return &ledger.InvalidError{Field: "transitions: state", Value: string(s), Rule: "must be a state"}
			}
		}
	}
	if p.Retry != nil {
		return p.Retry.Validate()
	}
	return nil
}

// isState reports whether a state is in the transition table. [ledger.StateNone] is that before the first event.
func isState(s ledger.State) bool {
	return s == ledger.StateNone || slices.ContainsFunc(ledger.Transitions(), func(row ledger.Transition) bool {
		return row.To == s
	})
}
