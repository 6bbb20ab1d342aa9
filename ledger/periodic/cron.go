package periodic

import (
	"errors"
	"fmt"
	"math/bits"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/netresearch/go-cron"
)

// recurrence is the sequence of a schedule's firings.
type recurrence interface {
	// next returns the first firing after t, and false if no firing follows.
	next(t time.Time) (time.Time, bool)
}

const (
	// maxCron is the longest cron expression, in bytes.
	maxCron = 200
	// maxZone is the longest name of a time zone, in bytes.
	maxZone = 64
	// searchYears is the greatest distance of two firings. The fifth Monday of February recurs every 28 years, or 40
	// where a leap year is left out.
	searchYears = 60
)

// parser is the parser of go-cron, the maintained fork of robfig/cron. This package uses the parser, and the search on
// a calendar without zones. In a zone, go-cron steps by whole hours, which is wrong for Lord Howe's half hour, and
// returns a daily time in an overlap twice. Its expressions are bit sets, all of one size.
var parser = cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor |
	cron.Extended | cron.DowOrDom).WithMaxSearchYears(searchYears)

// calendar is a cron expression in a zone.
type calendar struct {
	walls     *cron.SpecSchedule // wall times, on a calendar without zones: in UTC
	zone      *time.Location
	everyHour bool // the expression covers all hours
}

const allHours = 1<<24 - 1

// parseCron parses a cron expression: minute, hour, day of month, month and day of week, or a descriptor such as
// @daily. If both days are given, a day must match one of them.
func parseCron(text string, zone *time.Location) (*calendar, error) {
	switch {
	case len(text) > maxCron:
		return nil, fmt.Errorf("must have at most %d bytes, has %d", maxCron, len(text))
	case strings.Contains(text, "TZ="):
		return nil, errors.New("must not name a time zone: use the field zone")
	case strings.HasPrefix(strings.TrimSpace(text), "@every"):
		return nil, errors.New("must not be an interval: use the field every")
	}
	parsed, err := parser.Parse(text)
	if err != nil {
		return nil, cronFault(text)
	}
	for _, r := range numericRange.FindAllStringSubmatch(text, -1) {
		if begin, end := number(r[1]), number(r[2]); begin > end {
			return nil, fmt.Errorf("must not contain the range %s, which ends before it begins: write two ranges", r[0])
		}
	}
	walls, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, errors.New("must be five fields: minute, hour, day of month, month, day of week")
	}
	walls.Location = time.UTC
	for _, field := range []struct {
		name  string
		empty bool
	}{
		{"minute", walls.Minute == 0},
		{"hour", walls.Hour == 0},
		{"day of month", walls.Dom == 0 && len(walls.DomConstraints) == 0},
		{"month", walls.Month == 0},
		{"day of week", walls.Dow == 0 && len(walls.DowConstraints) == 0},
	} {
		if field.empty {
			return nil, fmt.Errorf("must name at least one %s", field.name)
		}
	}
	if walls.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, errors.New("must name a day that exists")
	}
	return &calendar{walls, zone, bits.OnesCount64(walls.Hour&allHours) == 24}, nil
}

// numericRange is a range such as 9-17. Ranges of names, such as FRI-MON, may go round.
var numericRange = regexp.MustCompile(`\b([0-9]+)-([0-9]+)\b`)

// number returns the value of digits.
func number(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}

// cronFields are the fields of an expression, with their values.
var cronFields = [...]struct{ name, values string }{
	{"minute", "0 to 59"}, {"hour", "0 to 23"}, {"day of month", "1 to 31"}, {"month", "1 to 12 or JAN to DEC"},
	{"day of week", "0 to 7 or SUN to SAT"},
}

// cronFault returns the rule that a refused expression breaks. It parses each field alone.
func cronFault(text string) error {
	fields := strings.Fields(text)
	if len(fields) != len(cronFields) {
		return errors.New("must be five fields, minute, hour, day of month, month and day of week, " +
			"or @hourly, @daily, @weekly, @monthly or @yearly")
	}
	for i, field := range fields {
		alone := []string{"*", "*", "*", "*", "*"}
		alone[i] = field
		if _, err := parser.Parse(strings.Join(alone, " ")); err != nil {
			return fmt.Errorf("must have a valid %s, of %s, got %q", cronFields[i].name, cronFields[i].values, field)
		}
	}
	return errors.New("must be a valid expression")
}

// loadZone returns a zone by its name in the IANA database. It refuses "Local": machines may be in different zones.
func loadZone(name string) (*time.Location, error) {
	if len(name) > maxZone || name == "Local" {
		return nil, errors.New(`must be a name of the IANA time zone database, such as "Europe/Berlin"`)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("must be a name of the IANA time zone database that this machine has: %w", err)
	}
	return zone, nil
}

func (c *calendar) next(t time.Time) (time.Time, bool) {
	if c.everyHour {
		return c.nextShown(t)
	}
	return c.nextNamed(t)
}

// nextNamed returns the next firing of an expression that names hours: each wall time is one firing. A later wall
// time is never an earlier firing.
func (c *calendar) nextNamed(t time.Time) (time.Time, bool) {
	for wall := wallOf(t.In(c.zone)); ; {
		wall = c.walls.Next(wall)
		if wall.IsZero() {
			return time.Time{}, false
		}
		if firing := c.instant(wall); firing.After(t) { // otherwise the clock was put back, or wall is in a gap
			return firing, true
		}
	}
}

// nextShown returns the next time at which the clock shows a wall time of the expression.
func (c *calendar) nextShown(t time.Time) (time.Time, bool) {
	for t = t.In(c.zone); ; {
		_, offset := t.Zone()
		_, end := t.ZoneBounds()
		wall := c.walls.Next(wallOf(t))
		if wall.IsZero() {
			return time.Time{}, false
		}
		firing := wall.Add(-time.Duration(offset) * time.Second)
		if end.IsZero() || firing.Before(end) {
			return firing.UTC(), true
		}
		if first := wallOf(end); c.walls.Next(first.Add(-time.Second)).Equal(first) {
			return end.UTC(), true
		}
		t = end
	}
}

// wallOf returns the wall time at t, as if it were UTC.
func wallOf(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// instant returns when the clock first shows a wall time, or the end of the gap that contains the wall time.
func (c *calendar) instant(wall time.Time) time.Time {
	for t := wall.Add(-24 * time.Hour).In(c.zone); ; { // no clock is 24 hours ahead of UTC
		_, offset := t.Zone()
		start, end := t.ZoneBounds()
		at := wall.Add(-time.Duration(offset) * time.Second)
		switch {
		case !end.IsZero() && !at.Before(end):
			t = end
		case at.Before(start):
			return start.UTC()
		default:
			return at.UTC()
		}
	}
}

// rate is a fixed rate: anchor, anchor + every, …
type rate struct {
	anchor time.Time
	every  time.Duration
}

func (r rate) next(t time.Time) (time.Time, bool) {
	if t.Before(r.anchor) {
		return r.anchor, true
	}
	// In microseconds: a time.Duration is at most 292 years.
	since, every := t.UnixMicro()-r.anchor.UnixMicro(), r.every.Microseconds()
	return time.UnixMicro(r.anchor.UnixMicro() + (since/every+1)*every).UTC(), true
}
