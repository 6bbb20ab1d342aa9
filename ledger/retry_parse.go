package ledger

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// maxRetryText is longer than any policy within the limits needs.
const maxRetryText = 4 << 10

// What a policy is written with. taskledger.check_retry reads the same, so that SQL takes what Go
// takes: Go's own parsers take more, such as hexadecimal numbers.
var (
	durationText = regexp.MustCompile(`^(0|([0-9]+(\.[0-9]+)?(ns|us|µs|μs|ms|s|m|h))+)$`)
	countText    = regexp.MustCompile(`^[0-9]+$`)
	shareText    = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)
)

// endless is the last element of a ladder whose last rung repeats.
const endless = "..."

// ParseRetryPolicy reads a policy as text, see [RetryPolicy]. It returns an [*InvalidError] that
// names what it cannot read, or those of [RetryPolicy.Validate].
func ParseRetryPolicy(text string) (RetryPolicy, error) {
	if len(text) > maxRetryText {
		return RetryPolicy{}, &InvalidError{Field: "retry", Value: text, Rule: "is longer than any policy"}
	}
	words := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' })
	if len(words) == 0 {
		return RetryPolicy{}, &InvalidError{Field: "retry", Rule: "must be exponential, or a ladder such as 1m,5m,20m"}
	}
	p, repeats, err := parseCurve(words[0])
	if err != nil {
		return RetryPolicy{}, err
	}
	seen := map[string]bool{}
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		if seen[name] {
			return RetryPolicy{}, &InvalidError{Field: "retry", Value: word, Rule: "is given twice"}
		}
		seen[name] = true
		if err := p.option(name, value, word); err != nil {
			return RetryPolicy{}, err
		}
	}
	if repeats && p.Attempts == 0 {
		p.Attempts = DefaultRetryAttempts
	}
	if err := p.Validate(); err != nil {
		return RetryPolicy{}, err
	}
	return p, nil
}

// parseCurve reads the first word. repeats says that the last rung serves for more failures than
// there are rungs.
func parseCurve(word string) (p RetryPolicy, repeats bool, err error) {
	if word == "exponential" {
		return p, false, nil
	}
	rungs := strings.Split(word, ",")
	if len(rungs) > 1 && rungs[len(rungs)-1] == endless {
		rungs, repeats = rungs[:len(rungs)-1], true
	}
	for _, rung := range rungs {
		d, err := time.ParseDuration(rung)
		if err != nil || !durationText.MatchString(rung) {
			return p, false, &InvalidError{Field: "retry", Value: rung, Rule: "must be exponential, or a ladder such as 1m,5m,20m"}
		}
		p.Ladder = append(p.Ladder, d)
	}
	return p, repeats, nil
}

// option reads one option into p.
func (p *RetryPolicy) option(name, value, word string) (err error) {
	var zero bool
	written := durationText
	switch name {
	case "unit":
		p.Unit, err = time.ParseDuration(value)
		zero = p.Unit == 0
	case "max":
		p.Max, err = time.ParseDuration(value)
		zero = p.Max == 0
	case "attempts":
		written = countText
		p.Attempts, err = strconv.Atoi(value)
		zero = p.Attempts == 0
	case "jitter":
		written = shareText
		p.Jitter, err = strconv.ParseFloat(value, 64)
		if p.Jitter == 0 {
			p.Jitter = -1
		}
	default:
		return &InvalidError{Field: "retry", Value: word, Rule: "options are unit=, max=, attempts= and jitter="}
	}
	if err != nil || zero || !written.MatchString(value) {
		return &InvalidError{Field: "retry", Value: word, Rule: "must have a value, as in max=1h attempts=10 jitter=0.2, and not 0 but for jitter"}
	}
	return nil
}
