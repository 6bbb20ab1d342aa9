package ledger

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Defaults and bounds of a [RetryPolicy].
const (
	defaultRetryUnit     = time.Second
	defaultRetryMax      = 24 * time.Hour
	DefaultRetryAttempts = 25

	maxRetryDelay    = 366 * 24 * time.Hour
	MaxRetryAttempts = 1_000_000
	maxRetryRungs    = 100

	defaultJitter       = 0.5
	defaultLadderJitter = 0.1
)

// RetryPolicy defines the delay of a failed task until its next attempt, and the number of failures after
// which it is dead. The zero value is the default: n⁴ seconds after the n-th failure, at most a day, less a
// random part of up to a half, and dead after 25 failures. A policy may be copied, but its Ladder must not be
// modified.
//
// Its JSON is an object. Delays are numbers of seconds, rounded to the microsecond. All members are
// optional, and other members are invalid:
//
//	{}                                        the default
//	{"unit": 0.1, "max": 3600}                100 ms, 1.6 s, 8.1 s … one hour
//	{"ladder": [60, 300, 1200]}               these delays, then dead: four attempts
//	{"ladder": [10], "attempts": 25}          10 s each time, 25 attempts
//	{"ladder": [60, 300], "attempts": 10}     300 s from the second failure on, ten attempts
//	{"ladder": [60, 300], "jitter": 0}        exactly these delays
type RetryPolicy struct {
	// Ladder lists the delays after the first failure, the second failure, and so on. The last delay is repeated. At
	// most 100 rungs between 0 and 366 days. Default: n⁴ × Unit after the n-th failure.
	Ladder []time.Duration
	// Unit is the factor of n⁴, between 1 µs and 366 days. It must be 0 with a Ladder. Default: 1 s.
	Unit time.Duration
	// Max is the maximum delay, between 1 µs and 366 days. Default: 24 h, or 366 days with a Ladder.
	Max time.Duration
	// Attempts is the number of failures after which the task is dead, at most 1,000,000. Default: 25, or one more
	// than the number of rungs of the Ladder.
	Attempts int
	// Jitter is the random share of a delay: a delay d becomes a random one between d × (1-Jitter) and d, so
	// that tasks that failed together are not retried together. At most 1. A negative number disables it, as
	// 0 does in JSON. Default: 0.5, or 0.1 with a Ladder.
	Jitter float64
}

// Validate returns nil, or an error that joins an [*InvalidError] for each fault. Field names the member, such
// as retry.max.
func (p RetryPolicy) Validate() error {
	var faults []error
	fault := func(member, value, rule string, a ...any) {
		faults = append(faults, &InvalidError{Field: "retry." + member, Value: value, Rule: fmt.Sprintf(rule, a...)})
	}
	if len(p.Ladder) > maxRetryRungs {
		fault("ladder", "", "must have at most %d rungs, got %d", maxRetryRungs, len(p.Ladder))
	}
	for _, rung := range p.Ladder {
		if rung < 0 || rung > maxRetryDelay {
			fault("ladder", rung.String(), "rungs must be between 0 and %s", maxRetryDelay)
			break
		}
	}
	if p.Unit != 0 && len(p.Ladder) > 0 {
		fault("unit", p.Unit.String(), "must not be set together with ladder")
	}
	if p.Unit != 0 && (p.Unit < time.Microsecond || p.Unit > maxRetryDelay) {
		fault("unit", p.Unit.String(), "must be between %s and %s", time.Microsecond, maxRetryDelay)
	}
	if p.Max != 0 && (p.Max < time.Microsecond || p.Max > maxRetryDelay) {
		fault("max", p.Max.String(), "must be between %s and %s", time.Microsecond, maxRetryDelay)
	}
	if p.Attempts < 0 || p.Attempts > MaxRetryAttempts {
		fault("attempts", strconv.Itoa(p.Attempts), "must be between 1 and %d", MaxRetryAttempts)
	}
	if math.IsNaN(p.Jitter) || p.Jitter > 1 {
		fault("jitter", strconv.FormatFloat(p.Jitter, 'g', -1, 64), "must be between 0 and 1")
	}
	return errors.Join(faults...)
}

// Limit returns the number of failures after which a task is dead: Attempts or its default.
func (p RetryPolicy) Limit() int {
	switch {
	case p.Attempts > 0:
		return p.Attempts
	case len(p.Ladder) > 0:
		return len(p.Ladder) + 1
	}
	return DefaultRetryAttempts
}

// Delay returns the delay after the n-th failure, counted from 1. random is a random number from [0, 1).
// For every n and random the result is between 0 and Max.
func (p RetryPolicy) Delay(n int, random float64) time.Duration {
	longest := float64(p.longest())
	var delay float64
	if rungs := len(p.Ladder); rungs > 0 {
		delay = min(max(float64(p.Ladder[min(max(n, 1), rungs)-1]), 0), longest)
	} else {
		unit := p.Unit
		if unit <= 0 {
			unit = defaultRetryUnit
		}
		// Floating point does not overflow here: a product that is too large is greater than longest.
		delay = min(float64(unit)*math.Pow(float64(max(n, 1)), 4), longest)
	}
	return time.Duration(delay * (1 - p.jitter()*min(max(random, 0), 1)))
}

// longest returns Max or its default.
func (p RetryPolicy) longest() time.Duration {
	switch {
	case p.Max > 0:
		return min(p.Max, maxRetryDelay)
	case len(p.Ladder) > 0:
		return maxRetryDelay
	}
	return defaultRetryMax
}

// jitter returns Jitter or its default, from [0, 1].
func (p RetryPolicy) jitter() float64 {
	switch {
	case p.Jitter < 0:
		return 0
	case p.Jitter > 0:
		return min(p.Jitter, 1)
	case len(p.Ladder) > 0:
		return defaultLadderJitter
	}
	return defaultJitter
}
