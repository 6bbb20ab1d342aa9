package periodic

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/strictjson"
	"github.com/taskledger/taskledger/ledger"
)

// Parse parses schedules in JSON: {"schedules": […]}, or the list alone. It does not validate them. It returns an
// [*ledger.InvalidError] if the text is invalid.
func Parse(text []byte) ([]Schedule, error) {
	if list := bytes.TrimSpace(text); bytes.HasPrefix(list, []byte("[")) {
		text = fmt.Appendf(nil, `{"schedules":%s}`, list)
	}
	var file struct {
		Schedules []Schedule `json:"schedules"`
	}
	err := strictjson.Unmarshal(text, &file)
	var field *ledger.InvalidError
	switch {
	case errors.As(err, &field):
		return nil, err
	case err != nil:
		return nil, invalidJSON("schedules", err)
	}
	if len(file.Schedules) == 0 { // for example from a template that failed
		return nil, invalid("schedules", "", "at least one is required; to delete one, use its name")
	}
	return file.Schedules, nil
}

// invalidJSON returns an error of the JSON decoder as an [*ledger.InvalidError].
func invalidJSON(field string, err error) error {
	var mismatch *json.UnmarshalTypeError
	var wrong *strictjson.Error
	if errors.As(err, &wrong) {
		return invalid(cmp.Or(wrong.Field, field), "", "%s", wrong.Rule)
	}
	if errors.As(err, &mismatch) && mismatch.Field != "" {
		return invalid(mismatch.Field, "", "must not be a %s", mismatch.Value)
	}
	return invalid(field, "", "%s", strings.TrimPrefix(err.Error(), "json: "))
}

// scheduleJSON is the JSON form of a [Schedule].
type scheduleJSON struct {
	Name        string          `json:"name"`
	Kind        ledger.Kind     `json:"kind"`
	Args        json.RawMessage `json:"args,omitempty"`
	Cron        string          `json:"cron,omitempty"`
	Zone        string          `json:"zone,omitempty"`
	Every       string          `json:"every,omitempty"`
	Anchor      string          `json:"anchor,omitempty"`
	FixedDelay  string          `json:"fixed_delay,omitempty"`
	Missed      Missed          `json:"missed,omitempty"`
	MissedLimit int             `json:"missed_limit,omitempty"`
	Overlap     Overlap         `json:"overlap,omitempty"`
}

// MarshalJSON encodes s without adding defaults.
func (s Schedule) MarshalJSON() ([]byte, error) {
	return json.Marshal(scheduleJSON{
		s.Name, s.Kind, s.Args, s.Cron, s.Zone, interval(s.Every), instant(s.Anchor), interval(s.FixedDelay),
		s.Missed, s.MissedLimit, s.Overlap,
	})
}

// named adds the name of a schedule to an error, if the name can be read.
func named(text []byte, err error) error {
	var name string
	if json.Unmarshal(strictjson.Member(text, "name"), &name) != nil || name == "" {
		return err
	}
	return fmt.Errorf("schedule %q: %w", name, err)
}

// UnmarshalJSON decodes a schedule. It refuses unknown fields, and does not validate.
func (s *Schedule) UnmarshalJSON(text []byte) error {
	var f scheduleJSON
	if err := strictjson.Unmarshal(text, &f); err != nil {
		return named(text, invalidJSON("schedule", err))
	}
	*s = Schedule{Name: f.Name, Kind: f.Kind, Args: f.Args, Cron: f.Cron, Zone: f.Zone,
		Missed: f.Missed, MissedLimit: f.MissedLimit, Overlap: f.Overlap}
	var faults []error
	for _, field := range []struct {
		name, text string
		into       *time.Duration
	}{{"every", f.Every, &s.Every}, {"fixed_delay", f.FixedDelay, &s.FixedDelay}} {
		if field.text == "" {
			continue
		}
		d, err := time.ParseDuration(field.text)
		if err != nil || d == 0 {
			faults = append(faults,
				invalid(field.name, field.text, `must be an interval such as "90s", "15m" or "24h"`))
		}
		*field.into = d
	}
	if f.Anchor != "" {
		at, err := time.Parse(time.RFC3339, f.Anchor)
		if err != nil {
			faults = append(faults, invalid("anchor", f.Anchor, `must be a time such as "2026-01-31T09:00:00+01:00"`))
		}
		s.Anchor = at
	}
	if len(faults) > 0 {
		return fmt.Errorf("schedule %q: %w", s.Name, errors.Join(faults...))
	}
	return nil
}

// interval formats a duration without trailing zeros: 15m and not 15m0s.
func interval(d time.Duration) string {
	if d == 0 {
		return ""
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// instant formats a time in UTC, as in the biz_id of a firing.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.999999Z07:00")
}
