package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// retryJSON is the JSON of a [RetryPolicy]. Delays are seconds.
type retryJSON struct {
	Ladder   []float64 `json:"ladder,omitempty"`
	Unit     float64   `json:"unit,omitempty"`
	Max      float64   `json:"max,omitempty"`
	Attempts int       `json:"attempts,omitempty"`
	Jitter   *float64  `json:"jitter,omitempty"`
}

// MarshalJSON returns the object described at [RetryPolicy], without members at their defaults. Delays are rounded to
// the microsecond. It returns the error of [RetryPolicy.Validate] if p is invalid.
func (p RetryPolicy) MarshalJSON() ([]byte, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	j := retryJSON{Unit: toSeconds(p.Unit), Max: toSeconds(p.Max), Attempts: p.Attempts}
	for _, rung := range p.Ladder {
		j.Ladder = append(j.Ladder, toSeconds(rung))
	}
	if p.Jitter != 0 {
		share := max(p.Jitter, 0)
		j.Jitter = &share
	}
	return json.Marshal(j)
}

// UnmarshalJSON sets p as [ParseRetryPolicy] does. null leaves p unchanged.
func (p *RetryPolicy) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	parsed, err := ParseRetryPolicy(text)
	if err != nil {
		return err
	}
	*p = parsed
	return nil
}

// ParseRetryPolicy decodes a policy from the JSON described at [RetryPolicy]. A null member means its default. If two
// members have the same name, the last one counts. The SQL function check_retry accepts the same policies.
//
// It returns an error that joins an [*InvalidError] for each fault. Field names the member, such as retry.max.
func ParseRetryPolicy(text json.RawMessage) (RetryPolicy, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil || members == nil {
		const rule = `must be a JSON object such as {"ladder":[60,300],"attempts":10}`
		return RetryPolicy{}, &InvalidError{Field: "retry", Value: string(text), Rule: rule}
	}
	var p RetryPolicy
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(members)) {
		faults = append(faults, p.setMember(name, members[name]))
	}
	if err := errors.Join(faults...); err != nil {
		return RetryPolicy{}, err
	}
	if err := p.Validate(); err != nil {
		return RetryPolicy{}, err
	}
	return p, nil
}

// setMember decodes one member into p. null leaves the default.
func (p *RetryPolicy) setMember(name string, value json.RawMessage) error {
	const longest = int64(maxRetryDelay / time.Second)
	var ok bool
	rule := fmt.Sprintf("must be a number of seconds between 0.000001 and %d", longest)
	switch name {
	case "ladder":
		rule = fmt.Sprintf("must be an array of at most %d numbers of seconds between 0 and %d", maxRetryRungs, longest)
		p.Ladder, ok = parseLadder(value)
	case "unit":
		p.Unit, ok = parseDelay(value, time.Microsecond)
	case "max":
		p.Max, ok = parseDelay(value, time.Microsecond)
	case "attempts":
		rule = fmt.Sprintf("must be a whole number between 1 and %d", MaxRetryAttempts)
		var n float64
		n, ok = parseNumber(value)
		ok = ok && n == math.Trunc(n) && 1 <= n && n <= MaxRetryAttempts
		p.Attempts = int(n)
	case "jitter":
		rule = "must be a number between 0 and 1"
		p.Jitter, ok = parseNumber(value)
		ok = ok && 0 <= p.Jitter && p.Jitter <= 1
		if ok && p.Jitter == 0 {
			p.Jitter = -1
		}
	default:
		rule = "must have only the members ladder, unit, max, attempts and jitter"
		return &InvalidError{Field: "retry", Value: name, Rule: rule}
	}
	if !ok && string(value) != "null" {
		return &InvalidError{Field: "retry." + name, Value: string(value), Rule: rule}
	}
	return nil
}

// parseLadder returns an array of delays and reports whether it is valid.
func parseLadder(text json.RawMessage) (ladder []time.Duration, ok bool) {
	var rungs []json.RawMessage
	if json.Unmarshal(text, &rungs) != nil || len(rungs) > maxRetryRungs {
		return nil, false
	}
	for _, rung := range rungs {
		delay, ok := parseDelay(rung, 0)
		if !ok {
			return nil, false
		}
		ladder = append(ladder, delay)
	}
	return ladder, true
}

// parseDelay returns a number of seconds as a duration, rounded to the microsecond. It reports whether text is
// a number and the duration is between shortest and maxRetryDelay.
func parseDelay(text json.RawMessage, shortest time.Duration) (time.Duration, bool) {
	seconds, ok := parseNumber(text)
	micros := math.RoundToEven(seconds * 1e6)
	if !ok || micros < float64(shortest.Microseconds()) || micros > float64(maxRetryDelay.Microseconds()) {
		return 0, false
	}
	return time.Duration(micros) * time.Microsecond, true
}

// parseNumber returns a JSON number and reports whether PostgreSQL accepts it as a double precision. Like Go, it
// rejects an overflow; unlike Go, it rejects an underflow to 0.
func parseNumber(text json.RawMessage) (float64, bool) {
	number := string(text)
	if number == "" || !strings.ContainsAny(number[:1], "-0123456789") {
		return 0, false
	}
	value, err := strconv.ParseFloat(number, 64)
	mantissa, _, _ := strings.Cut(strings.ToLower(number), "e")
	underflow := value == 0 && strings.ContainsAny(mantissa, "123456789")
	return value, err == nil && !underflow
}

// toSeconds returns d in seconds, rounded to the microsecond.
func toSeconds(d time.Duration) float64 { return d.Round(time.Microsecond).Seconds() }
