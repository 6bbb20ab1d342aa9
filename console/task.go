package console

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/taskledger/taskledger/api"
	"github.com/taskledger/taskledger/internal/strictjson"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
)

// maxEvents is the number of events of a task that its page shows.
const maxEvents = 200

// taskData is the content of the page of a task.
type taskData struct {
	Key          ledger.Key
	Task         ledger.Task // as of Version
	Version      int         // the last event that counts
	Newest       int
	IsPast       bool
	IsCut        bool // there are more than maxEvents events
	Args, Result string
	Events       []eventView
	Tree         projector.Tree
	HasTree      bool
	Traceparent  string
	Tags         []string
	Acts         []act
	Seal         *sealView
}

// eventView is an event on the page of a task.
type eventView struct {
	ledger.Event
	Error, Data string
	Since       time.Duration // after the event before it
	X, Width    float64       // of its place in the time of the task, in percent
}

func (h *Handler) showTask(ctx context.Context, r *http.Request, v *view) error {
	q := r.URL.Query()
	d := &taskData{Key: ledger.Key{Kind: ledger.Kind(q.Get("kind")), BizID: ledger.BizID(q.Get("biz_id"))}}
	v.Data = d
	if err := d.Key.ValidateStored(); err != nil {
		return err
	}
	if !v.Caller.MayUse(d.Key.Kind) {
		return &failure{status: http.StatusForbidden, title: "The caller is limited to other kinds."}
	}
	page, err := api.ReadHistory(ctx, h.config.DB, d.Key, 0, maxEvents)
	if err != nil {
		return err
	}
	events := page.Items
	d.IsCut, d.Newest = page.Next != "", int(events[len(events)-1].Version)
	d.Version = d.Newest
	if text := q.Get("version"); text != "" {
		if d.Version, err = strconv.Atoi(text); err != nil || d.Version < 1 || d.Version > d.Newest {
			return invalid("version must be between 1 and %d", d.Newest)
		}
	}
	if text := q.Get("at"); text != "" {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return invalid("at must be a time as 2026-12-24T18:00:00Z")
		}
		moment, err := ledger.MomentAt(ctx, h.config.DB, at)
		if err != nil {
			return err
		}
		version, err := ledger.VersionAsOf(ctx, h.config.DB, d.Key, moment)
		if err != nil {
			return err
		}
		d.Version = min(int(version), d.Newest)
	}
	d.IsPast = d.Version < d.Newest
	events = events[:d.Version]
	if !d.IsPast { // even if the history is cut
		d.Task, err = ledger.Load(ctx, h.config.DB, d.Key)
	} else {
		d.Task, err = ledger.Fold(events)
	}
	if err != nil {
		return err
	}
	d.Args, d.Result = pretty(d.Task.Args, h.config.Hide), pretty(d.Task.Result, h.config.Hide)
	if meta, err := ledger.ParseMeta(events[0].Meta); err == nil {
		d.Traceparent, d.Tags = meta.Traceparent, meta.Tags
	}
	d.Events = h.timeline(events)
	if d.Seal, err = h.readSeal(ctx, d.Key, d.Version); err != nil {
		return err
	}
	if !d.IsPast {
		for _, a := range acts {
			if v.Caller.MayChange(d.Key.Kind) == nil && a.allows(d.Task.State) {
				d.Acts = append(d.Acts, a)
			}
		}
	}
	return h.addTree(ctx, v, d)
}

// addTree adds a task's causes, its predecessors, the tasks that wait for it and the tasks that it caused. It leaves
// out kinds that the caller may not read.
func (h *Handler) addTree(ctx context.Context, v *view, d *taskData) error {
	tree, err := projector.ReadTree(ctx, h.config.DB, d.Key, projector.TreeLimits{Depth: 3, Breadth: 20, Tasks: 60})
	if err != nil {
		return err
	}
	tree.Causes = slices.DeleteFunc(tree.Causes, func(n projector.Node) bool { return !v.Caller.MayUse(n.Kind) })
	mayNotUse := func(n *projector.Node) bool { return !v.Caller.MayUse(n.Kind) }
	var prune func(n *projector.Node)
	prune = func(n *projector.Node) {
		n.Children, n.After = slices.DeleteFunc(n.Children, mayNotUse), slices.DeleteFunc(n.After, mayNotUse)
		n.Before = slices.DeleteFunc(n.Before, mayNotUse)
		for _, other := range slices.Concat(n.Children, n.After) {
			prune(other)
		}
	}
	prune(tree.Task)
	root := tree.Task
	d.Tree, d.HasTree = tree, root.More || root.MoreBefore || root.MoreAfter > 0 ||
		len(tree.Causes)+len(root.After)+len(root.Before)+len(root.Children) > 0
	return nil
}

// timeline returns events with their places in time.
func (h *Handler) timeline(events []ledger.Event) []eventView {
	first, last := events[0].RecordedAt, events[len(events)-1].RecordedAt
	whole := max(last.Sub(first).Seconds(), 1e-6)
	all := make([]eventView, len(events))
	before := first
	for i, e := range events {
		at := e.RecordedAt
		if began, ok := e.BeganAt(); ok && e.Type == ledger.EventStarted { // which is recorded some time after it
			at = began
		}
		all[i] = eventView{Event: e, Error: lines(wholeError(e)), X: max(0, 100*at.Sub(first).Seconds()/whole)}
		since := at.Sub(before)
		before = at
		if i > 0 {
			all[i].Since = since
			all[i].Width = max(0, all[i].X-all[i-1].X)
			all[i].Data = pretty(e.Data, h.config.Hide)
		}
	}
	return all
}

// wholeError returns the error of an event with its type and its stack.
func wholeError(e ledger.Event) string {
	text := e.ErrorText()
	if name := strictjson.Text(e.Data, "error", "type"); name != "" {
		text = name + ": " + text
	}
	if stack := strictjson.Text(e.Data, "error", "stack"); stack != "" {
		text += "\n\n" + stack
	}
	return text
}
