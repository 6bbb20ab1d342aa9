package console

import (
	"context"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/explain"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
)

const (
	// pageTasks is the number of tasks of a page.
	pageTasks = 50
	// walk is the number of events that a page of tasks reads back at most.
	walk = 20_000
	// walkTagged is the number of tasks with a tag that a page reads back at most.
	walkTagged = 5_000
	// maxSorted is the number of tasks in an exceptional state up to which a page sorts them by time.
	maxSorted = 5_000
)

// states are the states of tasks, in the order of the tabs: trouble first.
var states = []ledger.State{ledger.StateDead, ledger.StateRetrying, ledger.StateAvailable, ledger.StateRunning,
	ledger.StateScheduled, ledger.StateInLine, ledger.StateSucceeded, ledger.StateCancelled, ledger.StateExpired,
	ledger.StateDiscarded}

// tasksData is the content of the page Tasks.
type tasksData struct {
	search
	Tabs   []tab
	Chips  []chip
	Kinds  []ledger.Kind
	IsCut  bool // there are more kinds
	States []ledger.State
	Tasks  []ledger.ListedTask
	Next   template.URL // the query of the next page; "": this is the last
	ByKey  bool         // sorted by key, not by time
	Bulk   []act        // that can be applied to all tasks of the filter
	Narrow template.URL // the query that all tasks of the page match, for which there is Bulk; "": none
	Words  []string     // that the search box completes
	InLine string       // how many tasks wait in the line, and whose turn it is
}

// tab is a state with its number of tasks.
type tab struct {
	Title, Count string
	Query        template.URL
	IsCurrent    bool
	Hint         string // what the list leaves out
}

// showTasks shows a page of tasks: the last enqueued first, or by key where a prefix, or a state with many tasks, would
// make that expensive. Without a kind and a state, it leaves out the tasks of taskledger itself.
func (h *Handler) showTasks(ctx context.Context, r *http.Request, v *view) error {
	q := r.URL.Query()
	d := &tasksData{search: newSearch(q), States: states}
	v.Data = d
	kinds, err := h.kinds(ctx, v.Caller)
	if err != nil {
		return err
	}
	if text := strings.TrimSpace(q.Get("q")); text != "" {
		return redirection("tasks?" + d.add(text, kinds).Query())
	}
	if d.Kind != "" && !v.Caller.MayUse(d.Kind) {
		return invalid("%s may not use this kind", v.Caller.Name())
	}
	d.Chips, d.Kinds = d.chips(), kinds
	if d.IsCut = len(kinds) > maxKinds; d.IsCut {
		d.Kinds = kinds[:maxKinds]
	}
	inState, err := h.addTabs(ctx, v, d)
	if err != nil {
		return err
	}
	if d.Line != "" {
		source := explain.Source{DB: h.config.DB, MayName: v.Caller.MayUse, Age: age}
		if d.InLine, err = source.Line(ctx, d.Line); err != nil {
			return err
		}
	}
	isExceptional := d.State != "" && d.State.Exceptional()
	isMany := isExceptional && inState > maxSorted
	d.ByKey = d.isOnlyKey() && (d.Prefix != "" && (!isExceptional || isMany) || isMany)
	if d.isOnlyKey() {
		d.Bulk = bulkActs(d.State)
	}
	if d.ByKey {
		after := ledger.Key{Kind: ledger.Kind(q.Get("after_kind")), BizID: ledger.BizID(q.Get("after_id"))}
		tasks, next, err := h.find(ctx, v.Caller, projection.Search{Kind: d.Kind, State: d.State, Prefix: d.Prefix,
			After: after, Limit: pageTasks})
		if err != nil {
			return err
		}
		if next != (ledger.Key{}) {
			d.Next = query(append(d.Fields(), "after_kind", next.Kind, "after_id", next.BizID)...)
		}
		d.Tasks = tasks
	} else if err := h.readNewest(ctx, r, v, d, isMany); err != nil {
		return err
	}
	d.Tasks = slices.DeleteFunc(d.Tasks, func(t ledger.ListedTask) bool { return !v.Caller.MayUse(t.Kind) })
	d.narrow()
	return h.addWords(ctx, v, d)
}

// narrow sets Narrow, because not all tasks of a search by actor, worker, tag or partition can be changed at once: the
// kind and state, with the beginning that the biz_ids of the page share.
func (d *tasksData) narrow() {
	isUnfit := d.isOnlyKey() || d.Error != "" || d.Since != "" || d.Kind == ""
	if isUnfit || len(bulkActs(d.State)) == 0 || len(d.Tasks) == 0 {
		return
	}
	first := beginningOf(d.Tasks[0].BizID)
	isShared := !slices.ContainsFunc(d.Tasks, func(t ledger.ListedTask) bool { return beginningOf(t.BizID) != first })
	if isShared && first != "" {
		d.Narrow = search{Kind: d.Kind, State: d.State, Prefix: first}.Query()
	}
}

// readNewest reads the last enqueued tasks. If many tasks are in the state, it reads back tasks in all states, because
// no index has them by time.
func (h *Handler) readNewest(ctx context.Context, r *http.Request, v *view, d *tasksData, isMany bool) error {
	after, err := position(r.URL.Query(), "after")
	if err != nil {
		return err
	}
	f, err := d.filter(v.At, after)
	if err != nil {
		return err
	}
	if isMany && d.Tag == "" && d.Line == "" {
		f.State = ""
	}
	f.IsWithoutOwn = d.Kind == "" && d.State == ""
	tasks, next, err := projector.ReadTasks(ctx, h.config.DB, f)
	if err != nil {
		return err
	}
	if next != 0 {
		d.Next = query(append(d.Fields(), "after", int64(next))...)
	}
	d.Tasks = slices.DeleteFunc(tasks, func(t ledger.ListedTask) bool { return d.State != "" && t.State != d.State })
	return nil
}

// addTabs adds the states with their numbers of tasks of the kind, or of all kinds that the caller may read. It returns
// the number of tasks in the state of the search, of the kinds that are searched.
func (h *Handler) addTabs(ctx context.Context, v *view, d *tasksData) (inState int64, err error) {
	counts, err := h.readCounts(ctx)
	if err != nil {
		return 0, err
	}
	sums, all, own := stateCounts{}, int64(0), int64(0)
	for _, n := range counts {
		if n.State == d.State && (d.Kind == "" || n.Kind == d.Kind) {
			inState += n.Tasks
		}
		if v.Caller.MayUse(n.Kind) && (d.Kind == "" || n.Kind == d.Kind) {
			sums.add(n)
			all += n.Tasks
			if d.Kind == "" && reserved.IsKind(n.Kind) {
				own += n.Tasks
			}
		}
	}
	isExact := d.isOnlyKey() && d.Prefix == "" // else the numbers are of other tasks, too
	add := func(title string, s ledger.State, n int64) {
		t := tab{Title: strings.ReplaceAll(title, "_", " "), Query: d.with("state", string(s)).Query(),
			IsCurrent: s == d.State}
		if isExact {
			t.Count = printable.Count(n)
		}
		d.Tabs = append(d.Tabs, t)
	}
	add("All", "", all)
	if own > 0 {
		d.Tabs[0].Hint = fmt.Sprintf("The list leaves out %s of taskledger itself", printable.Count(own))
	}
	for i, s := range states {
		if i < 6 || s == d.State || sums[s] > 0 {
			add(strings.ToUpper(string(s[:1]))+string(s[1:]), s, sums[s])
		}
	}
	return inState, nil
}

// kinds returns the kinds that have tasks and that the caller may read.
func (h *Handler) kinds(ctx context.Context, c *api.Caller) (all []ledger.Kind, err error) {
	counts, err := h.countsOf(ctx, c)
	for _, n := range counts {
		all = append(all, n.Kind)
	}
	slices.Sort(all)
	return slices.Compact(all), err
}

// find returns the next tasks of a search that the caller may read. For a caller that is limited to kinds it searches
// these, one after the other, so that next is never the key of another task.
func (h *Handler) find(
	ctx context.Context, c *api.Caller, s projection.Search,
) (found []ledger.ListedTask, next ledger.Key, err error) {
	if !c.IsLimited() || s.Kind != "" {
		return projection.FindTasks(ctx, h.config.DB, s)
	}
	kinds, err := h.kinds(ctx, c)
	if err != nil {
		return nil, next, err
	}
	limit := s.Limit
	for _, kind := range kinds {
		if kind < s.After.Kind {
			continue
		}
		if s.Kind = kind; kind != s.After.Kind {
			s.After = ledger.Key{}
		}
		s.Limit = limit - len(found)
		tasks, next, err := projection.FindTasks(ctx, h.config.DB, s)
		if found = append(found, tasks...); err != nil || next != (ledger.Key{}) {
			return found, next, err
		}
	}
	return found, next, nil
}
