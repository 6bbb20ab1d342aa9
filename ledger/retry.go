package ledger

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Defaults and limits of a [RetryPolicy].
const (
	DefaultRetryUnit     = time.Second
	DefaultRetryMax      = 24 * time.Hour
	DefaultRetryAttempts = 25

	MaxRetryDelay    = 366 * 24 * time.Hour
	MaxRetryAttempts = 1_000_000
	MaxRetryRungs    = 100

	defaultJitter       = 0.5
	defaultLadderJitter = 0.1
)

// RetryPolicy says when a task whose attempt failed is tried again, and after how many failures
// no more. The zero value is the default: n⁴ seconds after the n-th failure, at most a day, the
// earlier half of it by chance; dead after 25 failures. It is a value: copying it is fine, its
// Ladder is not to be changed.
//
// As text it is the word exponential or a ladder, then options, each at most once:
//
//	exponential                       the default
//	exponential unit=100ms max=1h     100 ms, 1.6 s, 8.1 s … one hour
//	1m,5m,20m                         these delays, then dead: four attempts
//	10s,...                           10 s each time, 25 attempts (fixed)
//	1m,5m,20m,... attempts=10         20 m from the third failure on, ten attempts
//	1m,5m jitter=0                    to the microsecond
type RetryPolicy struct {
	// Ladder is the delay after the first failure, after the second one, and so on; the last
	// one serves for all that follow. Empty: n⁴ × Unit after the n-th failure.
	Ladder []time.Duration
	// Unit of the exponential. Default 1 s; must be 0 beside a Ladder.
	Unit time.Duration
	// Max bounds every delay. Default 24 h; with a Ladder none but its rungs.
	Max time.Duration
	// Attempts is the number of failures after which the task is dead. Default 25, or one more
	// than the Ladder has rungs.
	Attempts int
	// Jitter is the share of a delay that is left to chance, so that tasks which failed together
	// do not come back together: a delay d becomes one of [d × (1-Jitter), d], each as likely.
	// Default a half, or a tenth with a Ladder; negative: none. At most 1.
	Jitter float64
}

// Validate reports every fault at once, each as an [*InvalidError].
func (p RetryPolicy) Validate() error {
	var faults []error
	fault := func(value, rule string, a ...any) {
		faults = append(faults, &InvalidError{Field: "retry", Value: value, Rule: fmt.Sprintf(rule, a...)})
	}
	if len(p.Ladder) > MaxRetryRungs {
		fault("", "must have at most %d rungs, has %d", MaxRetryRungs, len(p.Ladder))
	}
	for _, rung := range p.Ladder {
		if rung < 0 || rung > MaxRetryDelay {
			fault(rung.String(), "a rung must be 0 to %s", MaxRetryDelay)
			break
		}
	}
	if p.Unit != 0 && len(p.Ladder) > 0 {
		fault(p.Unit.String(), "a unit is for the exponential, not for a ladder")
	}
	if p.Unit < 0 || p.Unit > MaxRetryDelay {
		fault(p.Unit.String(), "unit must be positive, and at most %s", MaxRetryDelay)
	}
	if p.Max < 0 || p.Max > MaxRetryDelay {
		fault(p.Max.String(), "max must be positive, and at most %s", MaxRetryDelay)
	}
	if p.Attempts < 0 || p.Attempts > MaxRetryAttempts {
		fault(strconv.Itoa(p.Attempts), "attempts must be 1 to %d", MaxRetryAttempts)
	}
	if math.IsNaN(p.Jitter) || p.Jitter > 1 {
		fault(formatShare(p.Jitter), "jitter must be 0 to 1")
	}
	return errors.Join(faults...)
}

// Limit is the number of failures after which a task is dead.
func (p RetryPolicy) Limit() int {
	switch {
	case p.Attempts > 0:
		return p.Attempts
	case len(p.Ladder) > 0:
		return len(p.Ladder) + 1
	}
	return DefaultRetryAttempts
}

// Delay is how long to wait after the n-th failure, counted from 1. It is a pure function: chance
// comes in by random, from [0, 1). It is never negative nor above Max, whatever n is.
func (p RetryPolicy) Delay(n int, random float64) time.Duration {
	longest := float64(p.longest())
	delay := longest
	if rungs := len(p.Ladder); rungs > 0 {
		delay = min(max(float64(p.Ladder[min(max(n, 1), rungs)-1]), 0), longest)
	} else {
		unit := p.Unit
		if unit <= 0 {
			unit = DefaultRetryUnit
		}
		// Floating point, where nothing overflows: it only gets larger than the longest.
		delay = min(float64(unit)*math.Pow(float64(max(n, 1)), 4), longest)
	}
	return time.Duration(delay * (1 - p.jitter()*min(max(random, 0), 1)))
}

// longest is Max or its default.
func (p RetryPolicy) longest() time.Duration {
	switch {
	case p.Max > 0:
		return min(p.Max, MaxRetryDelay)
	case len(p.Ladder) > 0:
		return MaxRetryDelay
	}
	return DefaultRetryMax
}

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

// String returns the policy as text that [ParseRetryPolicy] reads.
func (p RetryPolicy) String() string {
	var b strings.Builder
	b.WriteString("exponential")
	if len(p.Ladder) > 0 {
		b.Reset()
		for i, rung := range p.Ladder {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(formatDelay(rung))
		}
	}
	usual := RetryPolicy{Ladder: p.Ladder}.Limit()
	if len(p.Ladder) > 0 && p.Limit() > usual {
		b.WriteString(",...")
		usual = DefaultRetryAttempts
	}
	if p.Unit != 0 {
		b.WriteString(" unit=" + formatDelay(p.Unit))
	}
	if p.Max != 0 {
		b.WriteString(" max=" + formatDelay(p.Max))
	}
	if p.Limit() != usual {
		b.WriteString(" attempts=" + strconv.Itoa(p.Limit()))
	}
	if p.Jitter != 0 {
		b.WriteString(" jitter=" + formatShare(max(p.Jitter, 0)))
	}
	return b.String()
}

// MarshalText is String.
func (p RetryPolicy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is [ParseRetryPolicy].
func (p *RetryPolicy) UnmarshalText(text []byte) (err error) {
	*p, err = ParseRetryPolicy(string(text))
	return err
}

// formatDelay is a duration without the units that are zero at its end: 5m and not 5m0s.
func formatDelay(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func formatShare(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
