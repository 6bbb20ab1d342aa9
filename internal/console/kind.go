package console

import (
	"cmp"
	"context"
	_ "embed"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
	"github.com/taskledger/taskledger/workers"
)

//go:embed sql/kind_limits.sql
var kindLimitsSQL string

// kindsData is the content of the page Kinds.
type kindsData struct {
	Kinds  []*kindNow // by trouble
	Limit  map[ledger.Kind]ledger.LimitStatus
	Starts map[ledger.Kind][]ledger.StartLimit // the limits of starts that the caller may see
	Next   template.URL                        // the query of the next page of kinds; "": this is the last
}

// HasMaxWaiting reports whether a kind of the page has a maximum number of waiting tasks.
func (d *kindsData) HasMaxWaiting() bool {
	return slices.ContainsFunc(d.Kinds, func(k *kindNow) bool { return d.Limit[k.Kind].MaxWaiting > 0 })
}

// showKinds shows the kinds, those in trouble first, at most maxKinds on a page.
func (h *Handler) showKinds(ctx context.Context, r *http.Request, v *view) error {
	kinds, _, _, err := h.readKinds(ctx, v)
	if err != nil {
		return err
	}
	limits, err := ledger.ReadLimits(ctx, h.config.DB, "", lists.All)
	if err != nil {
		return err
	}
	live, err := workers.ReadLiveCounts(ctx, h.config.DB)
	if err != nil {
		return err
	}
	d := &kindsData{Limit: map[ledger.Kind]ledger.LimitStatus{}}
	v.Data = d
	add := func(k ledger.Kind) {
		if kinds[k] == nil && v.Caller.MayUse(k) {
			kinds[k] = newKindNow(k)
			kinds[k].Workers = live[k]
		}
	}
	for _, l := range limits {
		add(l.Kind)
		d.Limit[l.Kind] = l
	}
	for k := range live {
		add(k)
	}
	all := byTrouble(kinds)
	from := ledger.Kind(r.URL.Query().Get("after_kind"))
	all = all[slices.IndexFunc(all, func(k *kindNow) bool { return k.Kind == from })+1:]
	if len(all) > maxKinds {
		all = all[:maxKinds]
		d.Next = query("after_kind", all[maxKinds-1].Kind)
	}
	d.Kinds = all
	d.Starts, err = h.readKindLimits(ctx, v.Caller.SeesLimit, all)
	return err
}

// readKindLimits returns the limits of starts of the kinds that may be seen.
func (h *Handler) readKindLimits(
	ctx context.Context, isVisible func(map[ledger.Kind]int) bool, kinds []*kindNow,
) (map[ledger.Kind][]ledger.StartLimit, error) {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = string(k.Kind)
	}
	rows, err := h.config.DB.Query(ctx, kindLimitsSQL, names, int64(maxKindLimits))
	if err != nil {
		return nil, pgerr.Explain("read limits of kinds", err)
	}
	defer rows.Close()
	all := map[ledger.Kind][]ledger.StartLimit{}
	for rows.Next() {
		var kind string
		var limited []string
		var weights []int
		var running, seconds int
		var rate ledger.StartRate
		l := ledger.StartLimit{Kinds: map[ledger.Kind]int{}}
		err := rows.Scan(&kind, &l.Name, &limited, &weights, (*string)(&l.Per), &running, &rate.Starts, &seconds,
			&rate.Burst)
		if err != nil {
			return nil, pgerr.Explain("read limits of kinds", err)
		}
		for i, k := range limited {
			l.Kinds[ledger.Kind(k)] = weights[i]
		}
		if running >= 0 {
			l.MaxRunning = &running
		}
		if rate.Starts > 0 {
			rate.Period = time.Duration(seconds) * time.Second
			l.Rate = &rate
		}
		if isVisible(l.Kinds) {
			all[ledger.Kind(kind)] = append(all[ledger.Kind(kind)], l)
		}
	}
	return all, pgerr.Explain("read limits of kinds", rows.Err())
}

// shortLimit returns a limit in a few words, such as "2 per partition, 100/m".
func shortLimit(l ledger.StartLimit) string {
	var all []string
	if l.MaxRunning != nil {
		unit := " running"
		if l.Per != "" {
			unit = " per " + words(string(l.Per))
		}
		all = append(all, strconv.Itoa(*l.MaxRunning)+unit)
	}
	if l.Rate != nil {
		all = append(all, l.Rate.String())
	}
	return strings.Join(all, ", ")
}

const (
	// maxKindLimits is the number of limits of starts that are read for a page of kinds.
	maxKindLimits = 1000
	// maxKindWorkers is the number of workers among which the page of a kind finds its workers.
	maxKindWorkers = 200
	// maxKindFailures is the number of dead tasks on the page of a kind.
	maxKindFailures = 10
)

// kindData is the content of the page of a kind.
type kindData struct {
	*kindNow
	Chart     chart
	Tabs      []tab
	Limit     *ledger.LimitStatus
	Starts    []ledger.StartLimitStatus // the limits of starts
	Live      []workerView              // workers
	LastDead  []ledger.ListedTask
	HasOthers bool // there may be other workers of the kind
	IsUnknown bool // without tasks and workers
}

// Full returns a limit for which tasks wait, or nil.
func (d *kindData) Full() *ledger.StartLimitStatus {
	for i := range d.Starts {
		if d.Starts[i].IsFull(time.Now()) && d.Tasks.Available() > 0 {
			return &d.Starts[i]
		}
	}
	return nil
}

// HasMoreDead reports whether there are dead tasks that the page does not show.
func (d *kindData) HasMoreDead() bool { return d.Tasks.Dead() > int64(len(d.LastDead)) }

// showKind shows a kind: its tasks by state, its attempts in time, its workers and its last dead tasks.
func (h *Handler) showKind(ctx context.Context, r *http.Request, v *view) error {
	q := r.URL.Query()
	kind := ledger.Kind(q.Get("name"))
	if err := kind.ValidateStored(); err != nil {
		return err
	}
	if kind == "" {
		return invalid("name must be a kind")
	}
	if !v.Caller.MayUse(kind) {
		return &failure{status: http.StatusForbidden, title: "The caller is limited to other kinds."}
	}
	kinds, _, minutes, err := h.readKinds(ctx, v)
	if err != nil {
		return err
	}
	d := &kindData{kindNow: cmp.Or(kinds[kind], newKindNow(kind))}
	v.Title, v.Data = printable.Short(string(kind), 128), d
	if d.Chart, err = h.makeChart(ctx, v, q.Get("range"), "", kind, minutes); err != nil {
		return err
	}
	limits, err := ledger.ReadLimits(ctx, h.config.DB, "", lists.All)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(limits, func(l ledger.LimitStatus) bool { return l.Kind == kind }); i >= 0 {
		d.Limit = &limits[i]
	}
	if d.Starts, err = ledger.ReadStartLimits(ctx, h.config.DB, kind, "", lists.All); err != nil {
		return err
	}
	t := &tasksData{search: search{Kind: kind}}
	if _, err := h.addTabs(ctx, v, t); err != nil {
		return err
	}
	d.Tabs = t.Tabs
	all, err := workers.ReadWorkers(ctx, h.config.DB, "", maxKindWorkers)
	if err != nil {
		return err
	}
	d.HasOthers = len(all) == maxKindWorkers
	for _, w := range all {
		w.Kinds = slices.DeleteFunc(w.Kinds, func(k workers.WorkerKind) bool { return k.Kind != kind })
		if len(w.Kinds) > 0 && w.Alive {
			d.Live = append(d.Live, newWorkerView(w))
		}
	}
	d.IsUnknown = kinds[kind] == nil && len(d.Live) == 0
	if d.Tasks.Dead() == 0 {
		return nil
	}
	f := projector.TaskFilter{Kind: kind, State: ledger.StateDead, Limit: maxKindFailures}
	if d.Tasks.Dead() > maxSorted { // no index has them by time
		d.LastDead, _, err = projection.FindTasks(ctx, h.config.DB,
			projection.Search{Kind: kind, State: ledger.StateDead, Limit: maxKindFailures})
		return err
	}
	d.LastDead, _, err = projector.ReadTasks(ctx, h.config.DB, f)
	return err
}
