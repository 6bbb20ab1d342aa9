package console

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
)

// limitView is a limit of starts with its use.
type limitView struct {
	ledger.StartLimitStatus
	OldestAt  time.Time // since when the oldest task of the kinds has waited; zero: none waits
	MayChange bool
}

// KindList returns the kinds by name.
func (l limitView) KindList() []ledger.Kind { return slices.Sorted(maps.Keys(l.Kinds)) }

// IsOfItself reports whether the limit is one of the kind with its name alone.
func (l limitView) IsOfItself() bool { return len(l.Kinds) == 1 && l.Kinds[ledger.Kind(l.Name)] == 1 }

// Used returns the part of the running tasks that may run, in percent; -1 without such a limit for all together.
func (l limitView) Used() float64 {
	if l.MaxRunning == nil || *l.MaxRunning == 0 || l.Per != "" {
		return -1
	}
	return min(100, 100*float64(l.Running)/float64(*l.MaxRunning))
}

// Form returns the fields of the form that changes the limit.
func (l limitView) Form() limitForm {
	f := limitForm{Name: l.Name, Kinds: operator.KindsText(l.Kinds), Per: string(l.Per)}
	if l.MaxRunning != nil {
		f.MaxRunning = strconv.Itoa(*l.MaxRunning)
	}
	if l.Rate != nil {
		f.Rate = ledger.StartRate{Starts: l.Rate.Starts, Period: l.Rate.Period}.String()
		if l.Rate.String() != f.Rate {
			f.Burst = strconv.Itoa(l.Rate.Burst)
		}
	}
	return f
}

// limitsData is the content of the page Limits.
type limitsData struct {
	*listData[limitView]
	Name string // of the only limit; "": all
}

// New returns the fields of the form of a new limit.
func (d *limitsData) New() limitForm { return limitForm{Name: d.Name, IsNew: true} }

// showLimits shows the limits of starts that the caller may see, by name, or one of them.
func (h *Handler) showLimits(ctx context.Context, r *http.Request, v *view) error {
	after, err := afterName(r)
	if err != nil {
		return err
	}
	d := &limitsData{Name: r.URL.Query().Get("name")}
	v.Data = d
	if err := ledger.Kind(d.Name).ValidateStored(); err != nil {
		return err
	}
	waiting, _, err := projector.ReadOldest(ctx, h.config.DB)
	if err != nil {
		return err
	}
	read := func(after string, limit int) ([]limitView, error) {
		found, err := h.findLimits(ctx, d.Name, after, limit)
		var all []limitView
		for _, l := range found {
			one := limitView{StartLimitStatus: l, MayChange: v.Caller.MayLimit(l.Kinds) == nil}
			for k := range l.Kinds {
				if at, isWaiting := waiting[k]; isWaiting && (one.OldestAt.IsZero() || at.Before(one.OldestAt)) {
					one.OldestAt = at
				}
			}
			all = append(all, one)
		}
		return all, err
	}
	d.listData, err = readList(after, func(l limitView) string { return l.Name },
		func(l limitView) bool { return v.Caller.SeesLimit(l.Kinds) }, read)
	return err
}

// findLimits returns at most limit limits after a name. If name is not "", it returns the limit with this name.
func (h *Handler) findLimits(ctx context.Context, name, after string, limit int) ([]ledger.StartLimitStatus, error) {
	if name == "" {
		return ledger.ReadStartLimits(ctx, h.config.DB, "", after, limit)
	}
	one, isKnown, err := ledger.FindStartLimit(ctx, h.config.DB, name)
	if !isKnown {
		return nil, err
	}
	return []ledger.StartLimitStatus{one}, nil
}

// limitForm contains the fields of a form that changes a limit.
type limitForm struct {
	Name, Kinds, Per, MaxRunning, Rate, Burst string
	IsNew                                     bool
}

// limit returns the limit that the fields describe.
func (f limitForm) limit() (ledger.StartLimit, error) {
	l := ledger.StartLimit{Name: f.Name, Kinds: map[ledger.Kind]int{}, Per: ledger.LimitPer(f.Per)}
	for _, text := range strings.FieldsFunc(f.Kinds, func(c rune) bool { return c == ',' || c == ' ' }) {
		kind, weight, isWeighed := strings.Cut(text, ":")
		n, err := strconv.Atoi(weight)
		if isWeighed && (err != nil || n < 1) {
			return l, &ledger.InvalidError{Field: "kinds", Value: text, Rule: "must be KIND or KIND:WEIGHT"}
		}
		l.Kinds[ledger.Kind(kind)] = max(1, n)
	}
	if len(l.Kinds) == 0 {
		l.Kinds[ledger.Kind(f.Name)] = 1
	}
	if f.MaxRunning != "" {
		n, err := strconv.Atoi(f.MaxRunning)
		if err != nil {
			return l, &ledger.InvalidError{Field: "max_running", Value: f.MaxRunning, Rule: "must be a number"}
		}
		l.MaxRunning = &n
	}
	if f.Rate != "" {
		rate, err := ledger.ParseStartRate(f.Rate)
		if err != nil {
			return l, err
		}
		l.Rate = &rate
	}
	if f.Burst != "" {
		n, err := strconv.Atoi(f.Burst)
		if err != nil || l.Rate == nil {
			return l, &ledger.InvalidError{Field: "burst", Value: f.Burst, Rule: "must be a number, and needs a rate"}
		}
		l.Rate.Burst = n
	}
	return l, l.Validate()
}

// limitData is the content of the preview of a change of a limit.
type limitData struct {
	Form         limitForm
	IsRemoval    bool
	Before       string // the limit in words; "": it does not exist
	After        string
	Running, Max int // Max is that of After; -1: any number
	Reason       string
}

// IsLess reports whether more tasks run than the new limit allows.
func (d *limitData) IsLess() bool { return d.Max >= 0 && d.Running > d.Max }

// limitText describes a limit.
func limitText(l ledger.StartLimit) string {
	of := " tasks of " + operator.KindsText(l.Kinds)
	if l.Per != "" {
		of += " with the same " + strings.ReplaceAll(string(l.Per), "_", " ")
	}
	var all []string
	if l.MaxRunning != nil {
		all = append(all, fmt.Sprintf("At most %d%s may run at a time.", *l.MaxRunning, of))
	}
	if l.Rate != nil {
		all = append(all, fmt.Sprintf("At most %s%s may start.", l.Rate, of))
	}
	return strings.Join(all, " ")
}

// limit returns the preview of a change of a limit. If the form confirms it, it changes the limit, and leads to the
// page Limits.
func (h *Handler) limit(w http.ResponseWriter, r *http.Request) {
	c, isAdmitted := h.admitForm(w, r, "limits")
	if !isAdmitted {
		return
	}
	v := h.newView(w, r, c)
	ctx, cancel := database(r)
	defer cancel()
	isConfirmed := r.PostForm.Get("confirm") == "yes"
	d, l, err := h.previewLimit(ctx, r, c, isConfirmed)
	if err != nil {
		h.failAs(w, r, v, err)
		return
	}
	if !isConfirmed {
		v.Name, v.Title, v.Data = "limit", "Limit "+d.Form.Name, d
		h.renderCounted(w, r, http.StatusOK, "limit", v)
		return
	}
	text := d.Form.Name + ": " + d.After
	if d.IsRemoval {
		text = d.Form.Name + " was removed."
		_, err = h.config.API.RemoveLimit(ctx, c, d.Form.Name, d.Reason)
	} else {
		_, err = h.config.API.SetLimit(ctx, c, l, d.Reason)
	}
	if err != nil {
		h.failAs(w, r, v, err)
		return
	}
	h.setDone(w, r, text)
	http.Redirect(w, r, h.config.Base+"limits", http.StatusSeeOther)
}

// previewLimit returns the preview of the change in a form, and the new limit.
func (h *Handler) previewLimit(
	ctx context.Context, r *http.Request, c api.Caller, isConfirmed bool,
) (d *limitData, l ledger.StartLimit, err error) {
	field := func(name string) string { return strings.TrimSpace(r.PostForm.Get(name)) }
	d = &limitData{IsRemoval: field("act") == "remove", Max: -1, Form: limitForm{Name: field("name"),
		Kinds: field("kinds"), Per: field("per"), MaxRunning: field("max_running"), Rate: field("rate"),
		Burst: field("burst")}}
	if d.Reason, err = formReason(r, isConfirmed); err == nil {
		err = c.MayLimit(nil)
	}
	if err != nil {
		return nil, l, err
	}
	if !d.IsRemoval {
		if l, err = d.Form.limit(); err == nil {
			err = c.MayLimit(l.Kinds)
		}
		if err != nil {
			return nil, l, err
		}
		if d.After = limitText(l); l.MaxRunning != nil && l.Per == "" {
			d.Max = *l.MaxRunning
		}
	}
	if err := ledger.Kind(d.Form.Name).ValidateStored(); err != nil {
		return nil, l, err
	}
	before, isKnown, err := ledger.FindStartLimit(ctx, h.config.DB, d.Form.Name)
	if err == nil {
		err = c.MayLimit(before.Kinds)
	}
	switch {
	case err != nil:
		return nil, l, err
	case isKnown:
		d.Before, d.Running = limitText(before.StartLimit), before.Running
	case d.IsRemoval:
		return nil, l, &failure{status: http.StatusNotFound, title: "There is no such limit.",
			cure: "load the page Limits again: the limit may have been removed"}
	}
	return d, l, nil
}
