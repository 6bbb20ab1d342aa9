package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/periodic"
)

const (
	// maxFirings is the number of the last firings of a schedule that its row shows.
	maxFirings = 10
	// maxFound is the number of tasks among which the last firings are found.
	maxFound = 200
)

// scheduleView is a schedule with its last firings.
type scheduleView struct {
	periodic.Status
	Firings []ledger.ListedTask // in order
}

// When returns the rule of the schedule in words, or as it is written.
func (s scheduleView) When() string {
	rule := s.Schedule
	switch {
	case rule.Every > 0:
		return "every " + inWords(rule.Every)
	case rule.FixedDelay > 0:
		return inWords(rule.FixedDelay) + " after the previous task"
	}
	words := cronInWords(rule.Cron)
	if words == "" {
		return rule.When()
	}
	if rule.Zone != "" && rule.Zone != "UTC" {
		return words + " " + rule.Zone
	}
	return words + " UTC"
}

// Misses reports whether a paused schedule has missed a firing: those since NextAt.
func (s scheduleView) Misses(at time.Time) bool {
	return s.Paused && !s.NextAt.IsZero() && s.NextAt.Before(at)
}

// Pause returns the pause of the schedule, nil if it is not paused.
func (s scheduleView) Pause() *pause { return schedulePause(s.Status) }

func schedulePause(s periodic.Status) *pause {
	if !s.Paused {
		return nil
	}
	return &pause{s.PausedBy, s.PauseReason, s.PausedAt}
}

// inWords returns a duration in one unit, if it is whole in it.
func inWords(d time.Duration) string {
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		if d%unit.length == 0 {
			if d == unit.length {
				return unit.name
			}
			return fmt.Sprintf("%d %ss", d/unit.length, unit.name)
		}
	}
	return d.String()
}

// cronInWords returns a common cron expression in words, "" for any other.
func cronInWords(cron string) string {
	switch cron {
	case "@hourly":
		return "every hour"
	case "@daily", "@midnight":
		return "every day at 00:00"
	case "@weekly":
		return "every Sunday at 00:00"
	case "@monthly":
		return "on day 1 of each month at 00:00"
	}
	f := strings.Fields(cron)
	if len(f) != 5 || f[3] != "*" {
		return ""
	}
	minute, err1 := strconv.Atoi(f[0])
	hour, err2 := strconv.Atoi(f[1])
	rest := f[2] + " " + f[4]
	if step, isStep := strings.CutPrefix(f[0], "*/"); isStep && f[1] == "*" && rest == "* *" {
		return "every " + step + " minutes"
	}
	if err1 != nil {
		return ""
	}
	if f[1] == "*" && rest == "* *" {
		if minute == 0 {
			return "every hour"
		}
		return fmt.Sprintf("every hour at %d past", minute)
	}
	at := fmt.Sprintf(" at %02d:%02d", hour, minute)
	if err2 != nil {
		return ""
	}
	if rest == "* *" {
		return "every day" + at
	}
	if day, err := strconv.Atoi(f[4]); err == nil && f[2] == "*" {
		return "every " + time.Weekday(day%7).String() + at
	}
	if _, err := strconv.Atoi(f[2]); err == nil && f[4] == "*" {
		return "on day " + f[2] + " of each month" + at
	}
	if f[4] == "1-5" && f[2] == "*" {
		return "Monday to Friday" + at
	}
	return ""
}

func (h *Handler) showSchedules(ctx context.Context, r *http.Request, v *view) error {
	after, err := afterName(r)
	if err != nil {
		return err
	}
	name := func(s scheduleView) string { return s.Schedule.Name }
	isVisible := func(s scheduleView) bool { return v.Caller.MayUse(s.Schedule.Kind) }
	d, err := readList(after, name, isVisible, func(after string, limit int) (all []scheduleView, err error) {
		found, err := periodic.ReadSchedules(ctx, h.config.DB, after, limit)
		for _, s := range found {
			all = append(all, scheduleView{Status: s})
		}
		return all, err
	})
	if err != nil {
		return err
	}
	v.Data = d
	for i := range d.Items {
		if err := h.addFirings(ctx, &d.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// addFirings adds the last firings of a schedule. Their keys contain their times, so a prefix finds the firings of
// an hour, a day or a month.
func (h *Handler) addFirings(ctx context.Context, s *scheduleView) error {
	if s.LastTask == nil || s.LastAt.IsZero() {
		return nil
	}
	layout, back := "2006-01", func(t time.Time) time.Time { return t.AddDate(0, 0, -t.Day()) }
	switch between := s.NextAt.Sub(s.LastAt); {
	case between > 0 && between < 10*time.Minute:
		layout, back = "2006-01-02T15", func(t time.Time) time.Time { return t.Add(-time.Hour) }
	case between < 6*time.Hour:
		layout, back = "2006-01-02", func(t time.Time) time.Time { return t.AddDate(0, 0, -1) }
	}
	at := s.LastAt.UTC()
	for range 2 {
		found, _, err := projection.FindTasks(ctx, h.config.DB, projection.Search{Kind: s.Schedule.Kind,
			Prefix: s.Schedule.Name + "@" + at.Format(layout), Limit: maxFound})
		if err != nil {
			return err
		}
		s.Firings = slices.Concat(found, s.Firings)
		if len(s.Firings) >= maxFirings {
			break
		}
		at = back(at)
	}
	s.Firings = s.Firings[max(0, len(s.Firings)-maxFirings):]
	return nil
}
