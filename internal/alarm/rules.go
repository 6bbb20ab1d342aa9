package alarm

import (
	"fmt"
	"slices"
	"time"

	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/settings"
	"github.com/taskledger/taskledger/ledger"
)

// Defaults of [Rules].
const (
	defaultEvery  = 5 * time.Minute
	defaultGather = 30 * time.Second
	defaultRemind = 4 * time.Hour
	defaultLate   = 5 * time.Minute // of ScheduleLate and TimersLate; a status shows delays sooner
)

// Duration is a [time.Duration] whose text form is such as 90s or 4h.
type Duration = settings.Duration

// Rules decide which events are worth an alarm. The zero value reports tasks that die, schedules that pass over firings
// or are late, and timers that are late.
type Rules struct {
	// Every is the least time between two alarms to a receiver. Default: 5 min.
	Every Duration `json:"every"`
	// Gather is how long news is gathered before it is reported. Default: 30 s. Negative: disabled.
	Gather Duration `json:"gather"`
	// Remind is the time after which a condition that still holds is reported again. Default: 4 h. Negative: disabled.
	Remind Duration `json:"remind"`

	// IgnoreDead are kinds whose dead tasks are not reported. Default: none.
	IgnoreDead []ledger.Kind `json:"ignore_dead"`
	// RelayLag and ProjectionLag are thresholds of the conditions of package health. Default: disabled.
	RelayLag      Duration `json:"relay_lag"`
	ProjectionLag Duration `json:"projection_lag"`
	// ScheduleLate and TimersLate are thresholds too. Default: 5 min. Negative: disabled.
	ScheduleLate Duration `json:"schedule_late"`
	TimersLate   Duration `json:"timers_late"`
	// Kinds are limits for kinds of tasks. Default: none.
	Kinds []KindRule `json:"kinds"`
}

// KindRule is the limits of one kind. At least one is required; zero: no limit.
type KindRule struct {
	Kind        ledger.Kind `json:"kind"`
	DeadOver    int64       `json:"dead_over"`    // the greatest number of dead tasks
	WaitingOver Duration    `json:"waiting_over"` // the longest time for which a task may be available and not begun
}

// Validate reports every fault at once, each an [*ledger.InvalidError] with the name of the field.
func (r Rules) Validate() error { return join(r.faults()) }

func (r Rules) faults() (faults []error) {
	for field, d := range map[string]Duration{
		"every": r.Every, "relay_lag": r.RelayLag, "projection_lag": r.ProjectionLag,
	} {
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
		for _, fault := range k.faults(slices.Contains(seen, k.Kind)) {
			faults = append(faults, renamed(fault, fmt.Sprintf("kinds[%d].", i)))
		}
		seen = append(seen, k.Kind)
	}
	return faults
}

func (k KindRule) faults(isRepeated bool) (faults []error) {
	if err := k.Kind.Validate(); err != nil {
		faults = append(faults, renamed(err, "kind"))
	} else if isRepeated {
		faults = append(faults, invalid("kind", string(k.Kind), "must be given once"))
	} else if k.Kind == Kind {
		faults = append(faults, invalid("kind", string(k.Kind), "must not be the kind of alarms"))
	}
	if k.DeadOver < 0 {
		faults = append(faults, invalid("dead_over", fmt.Sprint(k.DeadOver), "must not be negative"))
	}
	if k.WaitingOver < 0 {
		faults = append(faults, invalid("waiting_over", k.WaitingOver.String(), "must not be negative"))
	}
	if k.DeadOver == 0 && k.WaitingOver == 0 {
		faults = append(faults, invalid("dead_over", "", "dead_over or waiting_over is required"))
	}
	return faults
}

func (r Rules) withDefaults() Rules {
	for _, d := range []struct {
		field *Duration
		value time.Duration
	}{
		{&r.Every, defaultEvery},
		{&r.Gather, defaultGather},
		{&r.Remind, defaultRemind},
		{&r.ScheduleLate, defaultLate},
		{&r.TimersLate, defaultLate},
	} {
		if *d.field == 0 {
			*d.field = Duration(d.value)
		}
	}
	return r
}

// thresholds returns the thresholds of the conditions of package health. Those that are not positive are disabled.
func (r Rules) thresholds() map[health.Name]time.Duration {
	return map[health.Name]time.Duration{
		health.RelayLag: time.Duration(r.RelayLag), health.ProjectionLag: time.Duration(r.ProjectionLag),
		health.ScheduleLate: time.Duration(r.ScheduleLate), health.TimersLate: time.Duration(r.TimersLate),
	}
}

// has reports whether there is a rule for a condition; about is its kind, if it has one.
func (r Rules) has(what, about string) bool {
	i := slices.IndexFunc(r.Kinds, func(k KindRule) bool { return k.Kind == ledger.Kind(about) })
	switch what {
	case WhatDeadOver:
		return i >= 0 && r.Kinds[i].DeadOver > 0
	case WhatWaitingOver:
		return i >= 0 && r.Kinds[i].WaitingOver > 0
	}
	return r.thresholds()[health.Name(what)] > 0
}
