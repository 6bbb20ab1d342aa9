package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Check is the result of an examination of the database, of NATS, or of rights or settings.
type Check struct {
	Name  string
	Level CheckLevel
	Text  string
	Cure  string // "" if it is ok
}

// CheckLevel is how bad a result is.
type CheckLevel string

// The levels.
const (
	CheckOK      CheckLevel = "ok"
	CheckWarning CheckLevel = "warning"
	CheckFailure CheckLevel = "failure"
)

// level returns the level of the check, as for troubles.
func (c Check) level() level {
	switch c.Level {
	case CheckFailure:
		return critical
	case CheckWarning:
		return warning
	default:
		return fine
	}
}

// Mark returns the class of the shape and the colour of the check.
func (c Check) Mark() string { return string(c.level()) }

// maxChecksAge is the age up to which checks serve the page System, and keptChecksAge the others.
const maxChecksAge, keptChecksAge = 30 * time.Second, 2 * time.Minute

// readChecks returns checks, which may be some time old, and when they were made: the checks that are not ok, and the
// others. Only one request makes them at a time.
func (h *Handler) readChecks(ctx context.Context) (bad, good []Check, at time.Time) {
	if h.config.Checks == nil {
		return nil, nil, time.Time{}
	}
	h.checking.Lock()
	defer h.checking.Unlock()
	all, at := h.keptChecks()
	if time.Since(at) > maxChecksAge {
		all, at = h.config.Checks(ctx), time.Now()
		h.keeping.Lock()
		h.checks, h.checked = all, at
		h.keeping.Unlock()
	}
	for _, c := range all {
		if c.Level == CheckOK {
			good = append(good, c)
		} else {
			bad = append(bad, c)
		}
	}
	slices.SortStableFunc(bad, func(a, b Check) int { return compareLevels(a.level(), b.level()) })
	return bad, good, at
}

// keptChecks returns the last checks, and when they were made. It waits for none.
func (h *Handler) keptChecks() ([]Check, time.Time) {
	h.keeping.Lock()
	defer h.keeping.Unlock()
	return h.checks, h.checked
}

// renewChecks makes checks in the background if the last ones are old, unless another request makes them.
func (h *Handler) renewChecks(r *http.Request) {
	if _, at := h.keptChecks(); h.config.Checks == nil || time.Since(at) <= keptChecksAge || !h.checking.TryLock() {
		return
	}
	h.checking.Unlock()
	go func() {
		ctx, cancel := database(r)
		defer cancel()
		h.readChecks(ctx)
	}()
}

// conditionsCheck is the check of the conditions that hold, which have sentences of their own.
const conditionsCheck = "conditions"

// countChecks returns the number of the last checks that failed, and the names of those with a warning.
func (h *Handler) countChecks() (failed int64, warnings []string) {
	all, _ := h.keptChecks()
	for _, c := range all {
		switch {
		case c.Name == conditionsCheck:
		case c.Level == CheckFailure:
			failed++
		case c.Level == CheckWarning:
			warnings = append(warnings, c.Name)
		}
	}
	return failed, warnings
}

// addChecks adds the last checks that failed.
func (h *Handler) addChecks(v *view, d *overviewData) {
	all, _ := h.keptChecks()
	n := 0
	for _, c := range all {
		if c.Level != CheckFailure || c.Name == conditionsCheck || n == maxTroubles {
			continue
		}
		n++
		d.Troubles = append(d.Troubles, trouble{Level: critical, Key: "check " + c.Name, Cure: c.Cure,
			Text:  fmt.Sprintf("The check %s fails: %s.", c.Name, strings.TrimSuffix(c.Text, ".")),
			Links: []choice{{Query: v.Base + "system", Text: "Show checks"}}})
	}
}
