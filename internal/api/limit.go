package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// limitForm is a limit of starts in JSON, without its name.
type limitForm struct {
	Kinds      map[ledger.Kind]int `json:"kinds,omitempty"` // with their weights
	Per        ledger.LimitPer     `json:"per,omitempty"`
	MaxRunning *int                `json:"max_running,omitempty"`
	Rate       string              `json:"rate,omitempty"`
	Burst      int                 `json:"burst,omitempty"`
	Reason     string              `json:"reason,omitempty"` // of a change
}

// limitStatus is a limit in the list of limits, as taskledger show limits prints it.
type limitStatus struct {
	Name string `json:"name"`
	limitForm
	Waiting int64     `json:"waiting"`
	Running int       `json:"running"`
	Oldest  time.Time `json:"oldest,omitzero"` // since when the first of them has run
	Next    time.Time `json:"next,omitzero"`   // when the rate allows the next start
	Actor   string    `json:"actor"`
	Updated time.Time `json:"updated"`
}

func newLimitStatus(l ledger.StartLimitStatus) limitStatus {
	s := limitStatus{Name: l.Name, limitForm: limitForm{Kinds: l.Kinds, Per: l.Per, MaxRunning: l.MaxRunning},
		Waiting: l.Waiting, Running: l.Running, Oldest: l.Oldest, Next: l.Next, Actor: l.Actor, Updated: l.Updated}
	if l.Rate != nil {
		s.Rate, s.Burst = ledger.StartRate{Starts: l.Rate.Starts, Period: l.Rate.Period}.String(), l.Rate.Burst
	}
	return s
}

// limit returns the limit with a name. By default it is a limit of the kind with this name.
func (f limitForm) limit(name string) (ledger.StartLimit, error) {
	l := ledger.StartLimit{Name: name, Kinds: f.Kinds, Per: f.Per, MaxRunning: f.MaxRunning}
	if l.Kinds == nil {
		l.Kinds = map[ledger.Kind]int{ledger.Kind(name): 1}
	}
	if f.Rate != "" {
		rate, err := ledger.ParseStartRate(f.Rate)
		if err != nil {
			return l, err
		}
		rate.Burst = f.Burst
		l.Rate = &rate
	} else if f.Burst != 0 {
		return l, &ledger.InvalidError{Field: "burst", Value: strconv.Itoa(f.Burst), Rule: "needs a rate"}
	}
	return l, l.Validate()
}

// MayLimit returns an error unless the caller may set and remove limits of starts, and use each of the kinds.
func (c Caller) MayLimit(kinds map[ledger.Kind]int) error {
	if !c.Has(Operator) {
		return c.c.forbid(Operator)
	}
	if !c.SeesLimit(kinds) {
		return problem(codeKindForbidden, c.Name()+" may not use all kinds of the limit")
	}
	return nil
}

// SeesLimit reports whether the caller may use each of the kinds of a limit of starts.
func (c Caller) SeesLimit(kinds map[ledger.Kind]int) bool {
	for k := range kinds {
		if !c.MayUse(k) {
			return false
		}
	}
	return true
}

// SetLimit sets or replaces a limit of starts by the rules of the API, and reports whether it is new. A caller that is
// limited to kinds may not replace a limit of others. It commits. It returns a [*client.Problem], or an error of
// [ledger.SetStartLimit].
func (h *Handler) SetLimit(ctx context.Context, c Caller, l ledger.StartLimit, reason string) (isNew bool, err error) {
	if err := l.Validate(); err != nil {
		return false, err
	}
	if err := c.MayLimit(l.Kinds); err != nil {
		return false, err
	}
	before, isKnown, err := ledger.FindStartLimit(ctx, h.config.DB, l.Name)
	if err != nil {
		return false, err
	}
	if err := c.MayLimit(before.Kinds); err != nil {
		return false, err
	}
	return !isKnown, h.operator.SetLimit(ctx, l, c.c.audit(reason))
}

// RemoveLimit removes a limit of starts by the rules of the API, and reports whether it existed. It commits. It returns
// a [*client.Problem], or an error of [ledger.RemoveStartLimit].
func (h *Handler) RemoveLimit(ctx context.Context, c Caller, name, reason string) (existed bool, err error) {
	if err := ledger.Kind(name).ValidateStored(); err != nil {
		return false, err
	}
	before, _, err := ledger.FindStartLimit(ctx, h.config.DB, name)
	if err != nil {
		return false, err
	}
	if err := c.MayLimit(before.Kinds); err != nil {
		return false, err
	}
	return h.operator.RemoveLimit(ctx, name, c.c.audit(reason))
}

// listLimits answers with a page of the limits of starts, with their use.
func (h *Handler) listLimits(w http.ResponseWriter, r *http.Request, c *caller) error {
	name := func(l limitStatus) string { return l.Name }
	isVisible := func(l limitStatus) bool { return Caller{c}.SeesLimit(l.Kinds) }
	size := func(l limitStatus) int { return (len(l.Kinds) + 1) * smallValue }
	return paged(h, w, r, name, isVisible, size,
		func(ctx context.Context, db ledger.DB, after string, limit int) (all []limitStatus, err error) {
			found, err := ledger.ReadStartLimits(ctx, db, "", after, limit)
			for _, l := range found {
				all = append(all, newLimitStatus(l))
			}
			return all, err
		})
}

// putLimit sets or replaces a limit of starts, and answers with it.
func (h *Handler) putLimit(w http.ResponseWriter, r *http.Request, c *caller) error {
	if err := errors.Join(parseQuery(r).err, refusePreconditions(r)); err != nil {
		return err
	}
	var body limitForm
	if err := h.decode(w, r, maxBodyBytes, false, &body); err != nil {
		return err
	}
	l, err := body.limit(r.PathValue("name"))
	if err != nil {
		return err
	}
	ctx, cancel := database(r)
	defer cancel()
	isNew, err := h.SetLimit(ctx, Caller{c}, l, body.Reason)
	if err != nil {
		return err
	}
	now, isKnown, err := ledger.FindStartLimit(ctx, h.config.DB, l.Name)
	if err != nil {
		return err
	}
	if !isKnown {
		return problem(codeConflict, "the limit was removed at the same time")
	}
	status := http.StatusOK
	if isNew {
		status = http.StatusCreated
	}
	return h.writeJSON(w, r, status, newLimitStatus(now))
}

// deleteLimit removes a limit of starts.
func (h *Handler) deleteLimit(w http.ResponseWriter, r *http.Request, c *caller) error {
	q := parseQuery(r, "reason")
	if err := errors.Join(q.err, refusePreconditions(r)); err != nil {
		return err
	}
	ctx, cancel := database(r)
	defer cancel()
	answer := struct {
		Name    string `json:"name"`
		Changed bool   `json:"changed"` // false: there was no such limit
	}{Name: r.PathValue("name")}
	var err error
	if answer.Changed, err = h.RemoveLimit(ctx, Caller{c}, answer.Name, q.values.Get("reason")); err != nil {
		return err
	}
	return h.writeJSON(w, r, http.StatusOK, answer)
}
