package console

import (
	"context"
	"html/template"
	"net/http"
	"slices"

	"github.com/taskledger/taskledger/api"
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
)

// states are the states of tasks, in the filter's order.
var states = []ledger.State{ledger.StateAvailable, ledger.StateRunning, ledger.StateScheduled, ledger.StateRetrying,
	ledger.StateSucceeded, ledger.StateDead, ledger.StateCancelled, ledger.StateExpired, ledger.StateDiscarded}

// tasksData is the content of the page Tasks.
type tasksData struct {
	Kind   ledger.Kind
	State  ledger.State
	Prefix string
	Tag    string
	States []ledger.State
	Kinds  []ledger.Kind
	IsCut  bool // there are more kinds
	Tasks  []ledger.ListedTask
	Next   template.URL // the query of the next page; "": this is the last
	ByKey  bool         // sorted by key, not by time
	Bulk   []act        // that can be applied to all tasks of the filter
}

// showTasks shows a page of tasks: the last enqueued first, or, without a tag and with a prefix or in an exceptional
// state, by key.
func (h *Handler) showTasks(ctx context.Context, r *http.Request, v *view) error {
	q := r.URL.Query()
	d := &tasksData{Kind: ledger.Kind(q.Get("kind")), State: ledger.State(q.Get("state")), Prefix: q.Get("prefix"),
		Tag: q.Get("tag"), States: states}
	v.Data = d
	if d.Kind != "" && !v.Caller.MayUse(d.Kind) {
		return invalid("%s may not use this kind", v.Caller.Name())
	}
	var err error
	if d.Kinds, err = h.kinds(ctx, v.Caller); err != nil {
		return err
	}
	if d.IsCut = len(d.Kinds) > maxKinds; d.IsCut {
		d.Kinds = slices.Clone(d.Kinds[:maxKinds])
	}
	if d.Kind != "" && !slices.Contains(d.Kinds, d.Kind) {
		d.Kinds = append(d.Kinds, d.Kind)
	}
	d.ByKey = d.Tag == "" && (d.Prefix != "" || d.State != "" && d.State.Exceptional())
	if d.Tag == "" { // a bulk act cannot filter by tag
		d.Bulk = bulkActs(d.State)
	}
	filter := []any{"kind", d.Kind, "state", d.State, "prefix", d.Prefix, "tag", d.Tag}
	if d.ByKey {
		after := ledger.Key{Kind: ledger.Kind(q.Get("after_kind")), BizID: ledger.BizID(q.Get("after_id"))}
		tasks, next, err := h.find(ctx, v.Caller, projector.Search{Kind: d.Kind, State: d.State, Prefix: d.Prefix,
			After: after, Limit: pageTasks})
		if err != nil {
			return err
		}
		if next != (ledger.Key{}) {
			d.Next = query(append(filter, "after_kind", next.Kind, "after_id", next.BizID)...)
		}
		d.Tasks = tasks
	} else {
		after, err := position(q, "after")
		if err != nil {
			return err
		}
		f := projector.Filter{Kind: d.Kind, State: d.State, Prefix: d.Prefix, Tag: d.Tag, After: after,
			Limit: pageTasks, Walk: walk}
		if d.Tag != "" {
			f.Walk = walkTagged
		}
		tasks, next, err := projector.ReadTasks(ctx, h.config.DB, f)
		if err != nil {
			return err
		}
		if next != 0 {
			d.Next = query(append(filter, "after", int64(next))...)
		}
		d.Tasks = tasks
	}
	d.Tasks = slices.DeleteFunc(d.Tasks, func(t ledger.ListedTask) bool { return !v.Caller.MayUse(t.Kind) })
	return nil
}

// kinds returns the kinds that have tasks and that the caller may read.
func (h *Handler) kinds(ctx context.Context, c *api.Caller) (all []ledger.Kind, err error) {
	counts, err := h.readCounts(ctx)
	for _, n := range counts {
		if c.MayUse(n.Kind) {
			all = append(all, n.Kind)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), err
}

// find returns the next tasks of a search that the caller may read. For a caller that is limited to kinds it searches
// these, one after the other, so that next is never the key of another task.
func (h *Handler) find(
	ctx context.Context, c *api.Caller, s projector.Search,
) (found []ledger.ListedTask, next ledger.Key, err error) {
	if !c.IsLimited() || s.Kind != "" {
		return projector.FindTasks(ctx, h.config.DB, s)
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
		tasks, next, err := projector.FindTasks(ctx, h.config.DB, s)
		if found = append(found, tasks...); err != nil || next != (ledger.Key{}) {
			return found, next, err
		}
	}
	return found, next, nil
}
