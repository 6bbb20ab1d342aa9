package webhooks

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/internal/settings"
	"github.com/taskledger/taskledger/ledger"
)

// PushFile is the content of a file of kinds whose tasks are sent to HTTP servers.
type PushFile struct {
	Push []Push `json:"push"`
}

// Push is a kind whose tasks are sent to an HTTP server, which does the work. The answer ends the attempt.
type Push struct {
	Kind ledger.Kind `json:"kind"`
	Endpoint
	// Caller is the name of a token of the HTTP API, with which the server ends attempts that it has accepted with 202.
	// It is also the worker's name. Default: push.
	Caller string `json:"caller"`
	Slots  int    `json:"slots"` // requests and accepted tasks at a time, in each process. Default: 8.
	// AcceptedFor is how long a task may take after an answer 202, at least 1 s. Default: 15 min.
	AcceptedFor settings.Duration `json:"accepted_for"`
	// Retry is the policy of tasks without their own. Default: n⁴ seconds after the n-th failure, and 25 attempts.
	Retry *ledger.RetryPolicy `json:"retry"`
}

const (
	defaultCaller   = "push"
	defaultAccepted = 15 * time.Minute
	maxAccepted     = 24 * time.Hour
)

var callerRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}$`)

// ParsePush parses a [PushFile] in JSON and validates it, as [Parse] does.
func ParsePush(text []byte) (f PushFile, err error) {
	if err := settings.Decode("push", text, &f); err != nil {
		return f, err
	}
	return f, f.Validate()
}

// Validate reports every fault at once, each an [*ledger.InvalidError] with the name of the field.
func (f PushFile) Validate() error {
	var faults []error
	if len(f.Push) == 0 {
		faults = append(faults, &ledger.InvalidError{Field: "push", Rule: "at least one is required"})
	}
	seen := make(map[ledger.Kind]bool)
	for i, p := range f.Push {
		field := fmt.Sprintf("push[%d].", i)
		for _, fault := range p.faults() {
			faults = append(faults, settings.Below(field, fault))
		}
		if seen[p.Kind] {
			faults = append(faults,
				&ledger.InvalidError{Field: field + "kind", Value: string(p.Kind), Rule: "must be given once"})
		}
		seen[p.Kind] = true
	}
	return errors.Join(faults...)
}

func (p Push) faults() (faults []error) {
	fault := func(field, value, rule string, a ...any) {
		faults = append(faults, &ledger.InvalidError{Field: field, Value: value, Rule: fmt.Sprintf(rule, a...)})
	}
	if err := p.Kind.Validate(); err != nil {
		faults = append(faults, err)
	} else if reserved.IsKind(p.Kind) {
		fault("kind", string(p.Kind), "must not be a kind of taskledger itself")
	}
	faults = append(faults, p.Endpoint.faults()...)
	if p.Caller != "" && !callerRule.MatchString(p.Caller) {
		fault("caller", p.Caller, "must be the name of a token")
	}
	if p.Slots < 0 || p.Slots > maxSlots {
		fault("slots", fmt.Sprint(p.Slots), "must be between 1 and %d", maxSlots)
	}
	if t := time.Duration(p.AcceptedFor); t != 0 && t < time.Second || t > maxAccepted {
		fault("accepted_for", t.String(), "must be between 1s and %s", maxAccepted)
	}
	if p.Retry != nil {
		if err := p.Retry.Validate(); err != nil {
			faults = append(faults, err)
		}
	}
	return faults
}

func (p Push) withDefaults() Push {
	if p.Caller == "" {
		p.Caller = defaultCaller
	}
	if p.Slots == 0 {
		p.Slots = defaultSlots
	}
	if p.Timeout == 0 {
		p.Timeout = settings.Duration(defaultTimeout)
	}
	if p.AcceptedFor == 0 {
		p.AcceptedFor = settings.Duration(defaultAccepted)
	}
	if p.Retry == nil {
		p.Retry = &ledger.RetryPolicy{}
	}
	return p
}
