package api

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/taskledger/taskledger/internal/health"
)

// reportAge is the age after which a report is read again: requests for reports share it.
const reportAge = time.Second

// reports keeps the newest report of health.
type reports struct {
	read func(context.Context) (health.Report, error)

	mu     sync.Mutex // held while a report is read, so that one request reads it for all
	readAt time.Time
	newest health.Report
}

func newReports(c Config) *reports {
	r := &reports{read: c.Report}
	if r.read == nil {
		var numbers health.Numbers
		r.read = func(ctx context.Context) (health.Report, error) {
			return health.Read(ctx, health.Config{DB: c.DB, Numbers: &numbers})
		}
	}
	return r
}

func (r *reports) get(ctx context.Context) (health.Report, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.readAt) < reportAge {
		return r.newest, nil
	}
	if err := ctx.Err(); err != nil { // it has waited for others, which have failed
		return health.Report{}, err
	}
	report, err := r.read(ctx)
	if err == nil {
		r.newest, r.readAt = report, time.Now()
	}
	return report, err
}

// report returns a report of health. It refuses a caller that is limited to kinds, because reports are about all kinds.
func (h *Handler) report(r *http.Request, c *caller) (health.Report, error) {
	if len(c.kinds) > 0 {
		return health.Report{}, problem(codeKindForbidden, c.name+" is limited to kinds, and the answer is about all")
	}
	ctx, cancel := database(r)
	defer cancel()
	return h.reports.get(ctx)
}

// getStatus answers with the state of the services.
func (h *Handler) getStatus(w http.ResponseWriter, r *http.Request, c *caller) error {
	if q := parseQuery(r); q.err != nil {
		return q.err
	}
	report, err := h.report(r, c)
	if err != nil {
		return err
	}
	return h.writeJSON(w, r, http.StatusOK, boundedReport(report))
}

// status is the answer of getStatus.
type status struct {
	health.Report
	Truncated []string `json:"truncated,omitempty"` // members that were cut to their first maxList items
}

// boundedReport returns a report whose lists have at most maxList items: kinds may be many.
func boundedReport(r health.Report) status {
	s := status{Report: r}
	s.SubscriberStates = truncate(&s.Truncated, "subscriber_states", s.SubscriberStates)
	s.Subscribers = truncate(&s.Truncated, "subscribers", s.Subscribers)
	s.Tasks = truncate(&s.Truncated, "tasks", s.Tasks)
	s.Unhandled = truncate(&s.Truncated, "unhandled", s.Unhandled)
	s.Unbegun = truncate(&s.Truncated, "unbegun", s.Unbegun)
	s.Paused = truncate(&s.Truncated, "paused", s.Paused)
	s.Alarms = truncate(&s.Truncated, "undelivered_alarms", s.Alarms)
	s.Degraded = truncate(&s.Truncated, "degraded", s.Degraded)
	return s
}

// truncate returns the first maxList items of a list, and adds its name to names if it has more.
func truncate[T any](names *[]string, name string, all []T) []T {
	if len(all) <= maxList {
		return all
	}
	*names = append(*names, name)
	return all[:maxList]
}

// listConditions answers with the conditions that hold.
func (h *Handler) listConditions(w http.ResponseWriter, r *http.Request, c *caller) error {
	if q := parseQuery(r); q.err != nil {
		return q.err
	}
	report, err := h.report(r, c)
	if err != nil {
		return err
	}
	var answer struct {
		Items     []health.Condition `json:"items"`
		Truncated []string           `json:"truncated,omitempty"` // as in status
	}
	answer.Items = append([]health.Condition{}, truncate(&answer.Truncated, "items", report.Degraded)...)
	return h.writeJSON(w, r, http.StatusOK, answer)
}
