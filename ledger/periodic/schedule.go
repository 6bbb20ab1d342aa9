package periodic

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// Limits of a [Schedule].
const (
	minEvery       = time.Second                // shortest Every and FixedDelay
	maxEvery       = 100 * 365 * 24 * time.Hour // longest Every and FixedDelay
	maxMissedLimit = 1000
)

// defaultMissedLimit is the default of [Schedule].MissedLimit.
const defaultMissedLimit = 100

// grace is the delay after which [MissedSkip] passes over a firing.
const grace = time.Minute

// Missed is a policy for firings that were due while no runner was at work.
type Missed string

// The policies for missed firings. All but [MissedAll] fire at most one, however many are due.
const (
	MissedOne  Missed = "one"  // the newest fires, however late; default
	MissedSkip Missed = "skip" // the newest fires if it is at most a minute late
	MissedAll  Missed = "all"  // all fire in order, or the newest MissedLimit if there are more
)

// Overlap is a policy for firings that are due while the task of the previous firing is unfinished.
type Overlap string

// The policies for overlapping tasks.
const (
	OverlapAllow Overlap = "allow" // the firing becomes a task; default
	OverlapSkip  Overlap = "skip"  // the firing is passed over and recorded as discarded
)

// Schedule is a rule by which tasks are enqueued. Exactly one of Cron, Every and FixedDelay is required.
//
// In JSON, durations are texts such as "15m", and times are RFC 3339.
type Schedule struct {
	Name string          // words of A-Z a-z 0-9 _ - joined by dots, as in a kind. Required.
	Kind ledger.Kind     // of its tasks. Required.
	Args json.RawMessage // of its tasks. Default: none.

	Cron string // five fields, or @hourly, @daily, @weekly, @monthly, @yearly
	Zone string // of Cron, in the IANA time zone database. Default: UTC.

	Every  time.Duration // fixed rate, at least 1 s, in whole milliseconds
	Anchor time.Time     // of Every: the first firing. Default: 1970-01-01T00:00:00Z.

	// FixedDelay is the delay after the previous task has finished, at least 1 s, in whole milliseconds.
	FixedDelay time.Duration

	Missed      Missed  // Default: [MissedOne]. Invalid with FixedDelay, because at most one firing is due.
	MissedLimit int     // of [MissedAll], 1 to 1000. Default: 100.
	Overlap     Overlap // Default: [OverlapAllow]. Invalid with FixedDelay, whose tasks never overlap.
}

// Validate reports every fault at once, each an [*ledger.InvalidError] with the name of the field in JSON.
func (s Schedule) Validate() error {
	_, faults := s.compile()
	return errors.Join(faults...)
}

// When returns the rule of s in a few words, for people.
func (s Schedule) When() string {
	switch {
	case s.Cron != "":
		return s.Cron + " " + s.withDefaults().Zone
	case s.Every != 0:
		return "every " + interval(s.Every)
	}
	return interval(s.FixedDelay) + " after the last"
}

func invalid(field, value, rule string, a ...any) error {
	return &ledger.InvalidError{Field: field, Value: value, Rule: fmt.Sprintf(rule, a...)}
}

// compile validates a schedule and returns its recurrence, nil for FixedDelay.
func (s Schedule) compile() (due recurrence, faults []error) {
	if err := ledger.Kind(s.Name).Validate(); err != nil {
		faults = append(faults, renamed(err, "name"))
	}
	if err := s.Kind.Validate(); err != nil {
		faults = append(faults, err)
	}
	if len(s.Args) > 0 && !json.Valid(s.Args) {
		faults = append(faults, invalid("args", "", "must be JSON"))
	}
	rules := 0
	for _, isSet := range []bool{s.Cron != "", s.Every != 0, s.FixedDelay != 0} {
		if isSet {
			rules++
		}
	}
	if rules != 1 {
		return nil, append(faults, invalid("when", "", "exactly one of cron, every and fixed_delay must be given"))
	}
	due, whenFaults := s.compileWhen()
	return due, slices.Concat(faults, whenFaults, s.checkPolicies())
}

// renamed returns an [*ledger.InvalidError] with a new field name.
func renamed(err error, field string) error {
	var e *ledger.InvalidError
	if !errors.As(err, &e) {
		return err
	}
	return &ledger.InvalidError{Field: field, Value: e.Value, Rule: e.Rule}
}

func (s Schedule) compileWhen() (due recurrence, faults []error) {
	if s.Zone != "" && s.Cron == "" {
		faults = append(faults, invalid("zone", s.Zone, "must not be set without cron"))
	}
	if !s.Anchor.IsZero() && s.Every == 0 {
		faults = append(faults, invalid("anchor", "", "must not be set without every"))
	}
	switch {
	case s.Cron != "":
		zone, err := loadZone(s.Zone)
		if err != nil {
			faults, zone = append(faults, invalid("zone", s.Zone, "%s", err)), time.UTC
		}
		c, err := parseCron(s.Cron, zone)
		if err != nil {
			faults = append(faults, invalid("cron", s.Cron, "%s", err))
		}
		return c, faults
	case s.Every != 0:
		faults = append(faults, checkInterval("every", s.Every)...)
		if year := s.Anchor.UTC().Year(); !s.Anchor.IsZero() && (year < 1900 || year > 2200) {
			faults = append(faults,
				invalid("anchor", s.Anchor.Format(time.RFC3339), "must be between the years 1900 and 2200"))
		} else if !s.Anchor.Equal(s.Anchor.Truncate(time.Millisecond)) {
			faults = append(faults,
				invalid("anchor", s.Anchor.Format(time.RFC3339Nano), "must be in whole milliseconds"))
		}
		return rate{s.withDefaults().Anchor, s.Every}, faults
	}
	return nil, append(faults, checkInterval("fixed_delay", s.FixedDelay)...)
}

func checkInterval(field string, d time.Duration) []error {
	switch {
	case d < minEvery || d > maxEvery:
		return []error{invalid(field, d.String(), "must be between %s and %s", minEvery, maxEvery)}
	case d%time.Millisecond != 0:
		return []error{invalid(field, d.String(), "must be in whole milliseconds")}
	}
	return nil
}

func (s Schedule) checkPolicies() (faults []error) {
	switch s.Missed {
	case "", MissedOne, MissedSkip, MissedAll:
	default:
		faults = append(faults, invalid("missed", string(s.Missed), "must be one, skip or all"))
	}
	switch s.Overlap {
	case "", OverlapAllow, OverlapSkip:
	default:
		faults = append(faults, invalid("overlap", string(s.Overlap), "must be allow or skip"))
	}
	if s.FixedDelay != 0 && s.Missed != "" {
		faults = append(faults,
			invalid("missed", string(s.Missed), "must not be set with fixed_delay: at most one firing is due"))
	}
	if s.FixedDelay != 0 && s.Overlap != "" {
		faults = append(faults,
			invalid("overlap", string(s.Overlap), "must not be set with fixed_delay: its tasks never overlap"))
	}
	if s.MissedLimit != 0 && s.Missed != MissedAll {
		faults = append(faults,
			invalid("missed_limit", fmt.Sprint(s.MissedLimit), "must not be set without missed: all"))
	} else if s.MissedLimit < 0 || s.MissedLimit > maxMissedLimit {
		limit := fmt.Sprint(s.MissedLimit)
		faults = append(faults, invalid("missed_limit", limit, "must be between 1 and %d", maxMissedLimit))
	}
	return faults
}

// withDefaults returns s with its defaults in place of zero values.
func (s Schedule) withDefaults() Schedule {
	if s.Cron != "" && s.Zone == "" {
		s.Zone = "UTC"
	}
	if s.Every != 0 && s.Anchor.IsZero() {
		s.Anchor = time.Unix(0, 0)
	}
	if s.Every != 0 {
		s.Anchor = s.Anchor.UTC()
	}
	if s.FixedDelay != 0 {
		return s
	}
	if s.Missed == "" {
		s.Missed = MissedOne
	}
	if s.Missed == MissedAll && s.MissedLimit == 0 {
		s.MissedLimit = defaultMissedLimit
	}
	if s.Overlap == "" {
		s.Overlap = OverlapAllow
	}
	return s
}
