package console

import (
	"context"
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

// State returns the state whose colour and shape the level has.
func (c Check) State() string {
	switch c.Level {
	case CheckFailure:
		return "dead"
	case CheckWarning:
		return "retrying"
	default:
		return "succeeded"
	}
}

// maxChecksAge is the age up to which checks serve further requests.
const maxChecksAge = 30 * time.Second

// readChecks returns checks, which may be some time old, and when they were made: those that are not ok, and the
// others. Only one request makes them at a time.
func (h *Handler) readChecks(ctx context.Context) (bad, good []Check, at time.Time) {
	if h.config.Checks == nil {
		return nil, nil, time.Time{}
	}
	h.checking.Lock()
	defer h.checking.Unlock()
	if time.Since(h.checked) > maxChecksAge {
		h.checks, h.checked = h.config.Checks(ctx), time.Now()
	}
	for _, c := range h.checks {
		if c.Level == CheckOK {
			good = append(good, c)
		} else {
			bad = append(bad, c)
		}
	}
	return bad, good, h.checked
}
