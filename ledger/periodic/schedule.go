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
	MinEvery       = time.Second                // shortest Every and After
	MaxEvery       = 100 * 365 * 24 * time.Hour // longest Every and After
	MaxMissedLimit = 1000
)

// DefaultMissedLimit is how many slots [MissedAll] fires at a time, if the schedule does not say.
const DefaultMissedLimit = 100

// Grace is how late a slot may fire that is not called missed.
const Grace = time.Minute

// Missed says what becomes of slots that nobody fired when they were due.
type Missed string

// The policies for missed slots. All but [MissedAll] fire at most one slot however many are due.
const (
	MissedOne  Missed = "one"  // the newest fires, however late; the default
	MissedSkip Missed = "skip" // the newest fires if it is at most [Grace] late
	MissedAll  Missed = "all"  // all fire in order, or the newest MissedLimit if there are more
)

// Overlap says what becomes of a slot while the task of the slot before is unfinished.
type Overlap string

// The policies for overlapping tasks.
const (
	OverlapAllow Overlap = "allow" // it fires all the same; the default
	OverlapSkip  Overlap = "skip"  // it is passed over, and recorded as discarded
)

// Schedule says which task is due when. Exactly one of Cron, Every and After must be given.
//
// In JSON durations are texts such as "15m", and times are RFC 3339.
type Schedule struct {
	Name string          // like a kind: words of A-Z a-z 0-9 _ - joined by dots
	Kind ledger.Kind     // of its tasks
	Args json.RawMessage // of its tasks; nil: none

	Cron string // five fields, or @hourly, @daily, @weekly, @monthly, @yearly
	Zone string // of Cron, in the IANA time zone database; default UTC

	Every  time.Duration // fixed rate, at least [MinEvery], in whole milliseconds
	Anchor time.Time     // of Every: the first slot, from which all others are counted; default 1970-01-01T00:00:00Z

	After time.Duration // fixed delay after the task before has finished, at least [MinEvery], in whole milliseconds

	Missed      Missed  // default [MissedOne]; not with After, of which at most one is due
	MissedLimit int     // of [MissedAll], 1 to [MaxMissedLimit]; default [DefaultMissedLimit]
	Overlap     Overlap // default [OverlapAllow]; not with After, whose tasks never overlap
}

// Validate reports every fault at once, each a [*ledger.InvalidError] that names the field as
// JSON does.
func (s Schedule) Validate() error {
	_, faults := s.compile()
	return errors.Join(faults...)
}

// When says in a few words when s is due.
func (s Schedule) When() string {
	switch {
	case s.Cron != "":
		return s.Cron + " " + s.withDefaults().Zone
	case s.Every != 0:
		return "every " + interval(s.Every)
	}
	return interval(s.After) + " after the last"
}

func invalid(field, value, rule string, a ...any) error {
	return &ledger.InvalidError{Field: field, Value: value, Rule: fmt.Sprintf(rule, a...)}
}

// compile checks a schedule and returns its slots, nil if it has After.
func (s Schedule) compile() (due slots, faults []error) {
	if err := ledger.Kind(s.Name).Validate(); err != nil {
		faults = append(faults, renamed(err, "name"))
	}
	if err := s.Kind.Validate(); err != nil {
		faults = append(faults, err)
	}
	if len(s.Args) > 0 && !json.Valid(s.Args) {
		faults = append(faults, invalid("args", "", "must be JSON"))
	}
	ways := 0
	for _, given := range []bool{s.Cron != "", s.Every != 0, s.After != 0} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return nil, append(faults, invalid("when", "", "exactly one of cron, every and after must be given"))
	}
	due, whenFaults := s.compileWhen()
	return due, slices.Concat(faults, whenFaults, s.checkPolicies())
}

// renamed gives the field of an [*ledger.InvalidError] another name.
func renamed(err error, field string) error {
	var e *ledger.InvalidError
	if !errors.As(err, &e) {
		return err
	}
	return &ledger.InvalidError{Field: field, Value: e.Value, Rule: e.Rule}
}

func (s Schedule) compileWhen() (due slots, faults []error) {
	if s.Zone != "" && s.Cron == "" {
		faults = append(faults, invalid("zone", s.Zone, "means nothing without cron"))
	}
	if !s.Anchor.IsZero() && s.Every == 0 {
		faults = append(faults, invalid("anchor", "", "means nothing without every"))
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
			faults = append(faults, invalid("anchor", s.Anchor.Format(time.RFC3339), "must be in the years 1900 to 2200"))
		} else if !s.Anchor.Equal(s.Anchor.Truncate(time.Millisecond)) {
			faults = append(faults, invalid("anchor", s.Anchor.Format(time.RFC3339Nano), "must be in whole milliseconds"))
		}
		return rate{s.withDefaults().Anchor, s.Every}, faults
	}
	return nil, append(faults, checkInterval("after", s.After)...)
}

func checkInterval(field string, d time.Duration) []error {
	switch {
	case d < MinEvery || d > MaxEvery:
		return []error{invalid(field, d.String(), "must be %s to %s", MinEvery, MaxEvery)}
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
	if s.After != 0 && s.Missed != "" {
		faults = append(faults, invalid("missed", string(s.Missed), "means nothing with after: at most one slot is due"))
	}
	if s.After != 0 && s.Overlap != "" {
		faults = append(faults, invalid("overlap", string(s.Overlap), "means nothing with after: its tasks never overlap"))
	}
	if s.MissedLimit != 0 && s.Missed != MissedAll {
		faults = append(faults, invalid("missed_limit", fmt.Sprint(s.MissedLimit), "means nothing without missed: all"))
	} else if s.MissedLimit < 0 || s.MissedLimit > MaxMissedLimit {
		faults = append(faults, invalid("missed_limit", fmt.Sprint(s.MissedLimit), "must be 1 to %d", MaxMissedLimit))
	}
	return faults
}

// withDefaults returns s with every zero that has a default replaced by it.
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
	if s.After != 0 {
		return s
	}
	if s.Missed == "" {
		s.Missed = MissedOne
	}
	if s.Missed == MissedAll && s.MissedLimit == 0 {
		s.MissedLimit = DefaultMissedLimit
	}
	if s.Overlap == "" {
		s.Overlap = OverlapAllow
	}
	return s
}
