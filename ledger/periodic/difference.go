package periodic

import "fmt"

// Action is a change of a schedule.
type Action string

// The actions of [Apply].
const (
	Create Action = "create"
	Change Action = "change"
	Delete Action = "delete"
	Keep   Action = "keep" // the schedule does not differ
)

// Difference is the action of [Apply] on a schedule, done or, for a dry run, planned.
type Difference struct {
	Name   string  `json:"name"`
	Action Action  `json:"action"`
	Fields []Field `json:"fields,omitempty"` // the fields that differ; none for Delete and Keep
}

// Field is a field that differs, with its values as in JSON; "" is a field that is not set.
type Field struct {
	Name string `json:"field"`
	From string `json:"from"`
	To   string `json:"to"`
}

// fields returns the fields of a schedule except its name, in this order, with their values in To.
func fields(s Schedule) []Field {
	limit := ""
	if s.MissedLimit != 0 {
		limit = fmt.Sprint(s.MissedLimit)
	}
	return []Field{
		{Name: "kind", To: string(s.Kind)},
		{Name: "args", To: string(s.Args)},
		{Name: "cron", To: s.Cron},
		{Name: "zone", To: s.Zone},
		{Name: "every", To: interval(s.Every)},
		{Name: "anchor", To: instant(s.Anchor)},
		{Name: "fixed_delay", To: interval(s.FixedDelay)},
		{Name: "missed", To: string(s.Missed)},
		{Name: "missed_limit", To: limit},
		{Name: "overlap", To: string(s.Overlap)},
	}
}

// differences returns the fields that differ between two schedules with defaults.
func differences(from, to Schedule) (different []Field) {
	before := fields(from)
	for i, f := range fields(to) {
		if f.From = before[i].To; f.From != f.To {
			different = append(different, f)
		}
	}
	return different
}

// haveSameTimes reports whether two schedules with defaults are due at the same times.
func haveSameTimes(a, b Schedule) bool {
	return a.Cron == b.Cron && a.Zone == b.Zone && a.Every == b.Every && a.Anchor.Equal(b.Anchor) &&
		a.FixedDelay == b.FixedDelay
}
