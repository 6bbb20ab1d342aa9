package alarm

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// Defaults of [Rules].
const (
	DefaultEvery        = 5 * time.Minute
	DefaultGather       = 30 * time.Second
	DefaultRemind       = 4 * time.Hour
	DefaultScheduleLate = 5 * time.Minute
	DefaultTimersLate   = 5 * time.Minute
)

// Duration is a [time.Duration] that is written as text, such as 90s or 4h.
type Duration time.Duration

// UnmarshalText reads what [time.ParseDuration] reads.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return &json.UnmarshalTypeError{Value: "string", Type: reflect.TypeFor[Duration]()} // to which the decoder adds the field
	}
	*d = Duration(parsed)
	return nil
}

// MarshalText is String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d Duration) String() string { return time.Duration(d).String() }

// Rules say what is worth an alarm. The zero value tells of tasks that go dead, of schedules
// that pass slots over or are late, and of timers that are late.
type Rules struct {
	// Every is the least time between two alarms to a receiver. Default 5 min.
	Every Duration `json:"every"`
	// Gather is how long what is new is gathered before it is told. Default 30 s; negative: not.
	Gather Duration `json:"gather"`
	// Remind is after how long a condition that still holds is told again. Default 4 h; negative: never.
	Remind Duration `json:"remind"`

	// IgnoreDead are kinds whose dead tasks are nobody's concern.
	IgnoreDead []ledger.Kind `json:"ignore_dead"`
	// RelayLag and ProjectionLag are how old an event may be that is not published, or not
	// projected. Zero: any age.
	RelayLag      Duration `json:"relay_lag"`
	ProjectionLag Duration `json:"projection_lag"`
	// ScheduleLate is how long a slot may be due that nobody has fired. Default 5 min; negative: for ever.
	ScheduleLate Duration `json:"schedule_late"`
	// TimersLate is how long a delay, a retry or a deadline may be due that no scheduler has fired.
	// Default 5 min; negative: for ever.
	TimersLate Duration `json:"timers_late"`
	// Kinds are limits for kinds of tasks.
	Kinds []KindRule `json:"kinds"`
}

// KindRule is what is too much for one kind. Zero: nothing is.
type KindRule struct {
	Kind        ledger.Kind `json:"kind"`
	DeadOver    int64       `json:"dead_over"`    // more dead tasks than that
	WaitingOver Duration    `json:"waiting_over"` // a task that has been available, and not begun, for longer
}

// Validate reports every fault at once, each a [*ledger.InvalidError] that names the field.
func (r Rules) Validate() error { return join(r.faults()) }

func (r Rules) faults() (faults []error) {
	for field, d := range map[string]Duration{"every": r.Every, "relay_lag": r.RelayLag, "projection_lag": r.ProjectionLag} {
		if d < 0 {
			faults = append(faults, invalid(field, d.String(), "must not be negative"))
		}
	}
	for i, kind := range r.IgnoreDead {
		if err := kind.Validate(); err != nil {
			faults = append(faults, renamed(err, fmt.Sprintf("ignore_dead[%d]", i)))
		}
	}
	var seen []ledger.Kind
	for i, k := range r.Kinds {
		field := fmt.Sprintf("kinds[%d].", i)
		if err := k.Kind.Validate(); err != nil {
			faults = append(faults, renamed(err, field+"kind"))
		} else if slices.Contains(seen, k.Kind) {
			faults = append(faults, invalid(field+"kind", string(k.Kind), "is given twice"))
		} else if k.Kind == Kind {
			faults = append(faults, invalid(field+"kind", string(k.Kind), "is that of alarms, which never alarm about themselves"))
		}
		if k.DeadOver < 0 {
			faults = append(faults, invalid(field+"dead_over", fmt.Sprint(k.DeadOver), "must not be negative"))
		}
		if k.WaitingOver < 0 {
			faults = append(faults, invalid(field+"waiting_over", k.WaitingOver.String(), "must not be negative"))
		}
		if k.DeadOver == 0 && k.WaitingOver == 0 {
			faults = append(faults, invalid(field+"dead_over", "", "must be given, or waiting_over"))
		}
		seen = append(seen, k.Kind)
	}
	return faults
}

func (r Rules) withDefaults() Rules {
	for _, d := range []struct {
		field     *Duration
		otherwise time.Duration
	}{{&r.Every, DefaultEvery}, {&r.Gather, DefaultGather}, {&r.Remind, DefaultRemind}, {&r.ScheduleLate, DefaultScheduleLate}, {&r.TimersLate, DefaultTimersLate}} {
		if *d.field == 0 {
			*d.field = Duration(d.otherwise)
		}
	}
	return r
}

// watch reports whether there is a rule for a condition.
func (r Rules) watch(what string, kind ledger.Kind) bool {
	i := slices.IndexFunc(r.Kinds, func(k KindRule) bool { return k.Kind == kind })
	switch what {
	case WhatRelayLag:
		return r.RelayLag > 0
	case WhatProjectionLag:
		return r.ProjectionLag > 0
	case WhatScheduleLate:
		return r.ScheduleLate > 0
	case WhatTimersLate:
		return r.TimersLate > 0
	case WhatDeadOver:
		return i >= 0 && r.Kinds[i].DeadOver > 0
	case WhatWaitingOver:
		return i >= 0 && r.Kinds[i].WaitingOver > 0
	}
	return false
}
