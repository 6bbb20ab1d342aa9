package console

import (
	"context"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/explain"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/strictjson"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
)

// maxEvents is the number of events of a task that its page shows.
const maxEvents = 200

// maxLineTasks is the number of tasks at the head of a line that the page of a task shows.
const maxLineTasks = 10

// taskData is the content of the page of a task.
type taskData struct {
	Key          ledger.Key
	Archived     *ledger.ArchivedError // then the other members are not set
	Task         ledger.Task           // as of Version
	Version      int                   // the last event that counts
	Newest       int
	IsPast       bool
	First        int // the version of the first event that is shown
	Last         int // the version of the last one, less than Version if they are large
	Older        int // the version to show for the events before First; 0: no others
	Story, Why   string
	Attempts     []*attempt
	Args, Result string
	Progress     string
	Percent      float64 // of the progress, if HasPercent
	HasPercent   bool
	Events       []eventView
	Tree         projector.Tree
	HasTree      bool
	Graph        *graph // if HasTree
	Traceparent  string
	TraceURL     template.URL // "": no link
	Tags         []string
	Acts         []act
	Line         []explain.LineTask // the first tasks of its line, if it waits, runs or stops the line
	Seal         *sealView
	ArchivedAt   time.Time // zero: the task was not archived
	Failing      *kindNow  // its kind, if it fails now and the task is dead or retrying; nil: not
}

// Command returns the command that shows the task.
func (d *taskData) Command() string {
	return "taskledger show task " + shellQuote(string(d.Key.Kind)) + " " + shellQuote(string(d.Key.BizID))
}

// RunAgain returns the command that runs an archived task again.
func (d *taskData) RunAgain() string {
	return "taskledger enqueue " + shellQuote(string(d.Key.Kind)) + " " + shellQuote(string(d.Key.BizID)) +
		" --if-exists rerun --args '{…}'"
}

// Limit returns the name of the limit for which the task waits, or "".
func (d *taskData) Limit() string { return explain.Limit(d.Why) }

// isInLine reports whether the task waits for its turn, or may begin.
func (d *taskData) isInLine() bool {
	s := d.Task.State
	return d.Task.OrderKey != "" && s != ledger.StateScheduled && (!s.Finished() || s == ledger.StateDead)
}

// Blocker returns the task whose turn it is while this one waits in line, nil without one that may be named.
func (d *taskData) Blocker() *ledger.Key {
	if d.Task.State != ledger.StateInLine || len(d.Line) == 0 || d.Line[0].Key == d.Key ||
		d.Line[0].State == ledger.StateInLine || d.Line[0].Key == (ledger.Key{}) {
		return nil
	}
	return &d.Line[0].Key
}

// traceparent is a W3C trace context.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}`)

// traceURL returns the address of a trace, "" without a pattern of addresses or a valid trace.
func traceURL(pattern, parent string) template.URL {
	id := traceparent.FindStringSubmatch(parent)
	if pattern == "" || id == nil {
		return ""
	}
	return template.URL(strings.ReplaceAll(pattern, traceID, id[1])) //nolint:gosec // the operator's, with hex digits
}

// shellQuote returns a word of a command for a shell.
func shellQuote(word string) string {
	if strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-/:@+") == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// eventView is an event on the page of a task.
type eventView struct {
	ledger.Event
	Error, Reason, Data string
	Since               time.Duration // after the event before it
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
	v.Title = printable.Short(string(d.Key.BizID), 120)
	var err error
	var archived []ledger.Event // all events, if the task was archived
	if d.Task, err = ledger.Load(ctx, h.config.DB, d.Key); errors.As(err, &d.Archived) {
		if d.Task, archived, err = h.config.API.ReadArchived(ctx, err); len(archived) == 0 {
			return nil // the page states where its events are
		}
		d.Archived = nil
	}
	if err != nil {
		return err
	}
	if archived != nil {
		return h.showArchived(q, d, archived, v.At)
	}
	d.Newest = int(d.Task.Version)
	if err := h.chooseVersion(ctx, q, d); err != nil {
		return err
	}
	events, err := h.readEvents(ctx, d)
	if err != nil {
		return err
	}
	enqueued, err := h.enqueuedBy(ctx, d.Key, events)
	if err != nil {
		return err
	}
	h.addEvents(d, events, enqueued, v.At)
	if d.Seal, err = h.readSeal(ctx, d.Key, d.Version); err != nil {
		return err
	}
	if !d.IsPast {
		source := explain.Source{DB: h.config.DB, Counts: h.readCounts, MayName: v.Caller.MayUse, Age: age}
		if d.Why, err = source.State(ctx, d.Task); err != nil {
			return err
		}
		if d.isInLine() {
			if d.Line, err = source.LineTasks(ctx, d.Task.OrderKey, maxLineTasks); err != nil {
				return err
			}
		}
		for _, a := range acts {
			if v.Caller.MayChange(d.Key.Kind) == nil && a.allows(d.Task.State) {
				d.Acts = append(d.Acts, a)
			}
		}
		if s := d.Task.State; s == ledger.StateDead || s == ledger.StateRetrying {
			failing, err := h.findFailing(ctx, v.At, d.Key.Kind)
			if err != nil {
				return err
			}
			if d.Failing = failing[d.Key.Kind]; d.Failing != nil {
				d.Failing.BizID = d.Key.BizID
			}
		}
	}
	return h.addTree(ctx, v, d)
}

// showArchived shows a task by all of its events.
func (h *Handler) showArchived(q url.Values, d *taskData, events []ledger.Event, now time.Time) error {
	d.Newest = int(d.Task.Version)
	d.Version = d.Newest
	if text := q.Get("version"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > d.Newest {
			return invalid("version must be between 1 and %d", d.Newest)
		}
		d.Version = n
	}
	d.ArchivedAt, d.IsPast = d.Task.ArchivedAt, d.Version < d.Newest
	events = slices.DeleteFunc(events, func(e ledger.Event) bool { return int(e.Version) > d.Version })
	if len(events) == 0 {
		return ledger.ErrUnknownTask
	}
	enqueued := events[0]
	for _, e := range events {
		if e.HasArgs() {
			enqueued = e
		}
	}
	if d.IsPast {
		begin := max(len(events)-1, 0)
		for begin > 0 && events[begin].Version > 1 {
			begin--
		}
		var err error
		if d.Task, err = ledger.Fold(events[begin:]); err != nil {
			return err
		}
	}
	if n := len(events) - maxEvents; n > 0 {
		events = events[n:]
		d.Older = int(events[0].Version) - 1
	}
	d.First, d.Last = int(events[0].Version), int(events[len(events)-1].Version)
	h.addEvents(d, events, enqueued, now)
	return nil
}

// addEvents adds the events of a task to its page.
func (h *Handler) addEvents(d *taskData, events []ledger.Event, enqueued ledger.Event, now time.Time) {
	if meta, err := ledger.ParseMeta(enqueued.Meta); err == nil {
		d.Traceparent, d.Tags = meta.Traceparent, meta.Tags
		d.TraceURL = traceURL(h.config.TraceURL, meta.Traceparent)
	}
	if d.IsPast {
		now = events[len(events)-1].RecordedAt
	}
	d.Attempts = newAttempts(events, now)
	d.Story = tellStory(d.Task, d.Attempts, enqueued.RecordedAt, now)
	d.Args, d.Result = pretty(d.Task.Args, h.config.Hide), pretty(d.Task.Result, h.config.Hide)
	if d.Task.State == ledger.StateRunning {
		d.Progress = pretty(d.Task.Progress, h.config.Hide)
		d.Percent, d.HasPercent = explain.Progress(d.Task.Progress)
	}
	d.Events = h.timeline(events)
}

// chooseVersion sets the version that the parameters name, by default the newest one.
func (h *Handler) chooseVersion(ctx context.Context, q url.Values, d *taskData) (err error) {
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
	return nil
}

// readEvents returns the last events up to the version, of a bounded size, and sets the task as of that version.
func (h *Handler) readEvents(ctx context.Context, d *taskData) ([]ledger.Event, error) {
	after := max(0, d.Version-maxEvents)
	page, err := api.ReadHistory(ctx, h.config.DB, d.Key, ledger.Version(after), d.Version-after)
	if err != nil {
		return nil, err
	}
	events := page.Items
	if len(events) == 0 {
		return nil, ledger.ErrUnknownTask
	}
	d.First, d.Last, d.Older = after+1, int(events[len(events)-1].Version), after
	switch {
	case !d.IsPast:
	case after == 0 && d.Last == d.Version:
		d.Task, err = ledger.Fold(events)
	default:
		var moment ledger.Moment
		if moment, err = ledger.MomentOf(ctx, h.config.DB, events[len(events)-1].Position); err == nil {
			d.Task, err = ledger.LoadAsOf(ctx, h.config.DB, d.Key, moment)
		}
	}
	return events, err
}

// enqueuedBy returns the event that enqueued the last run of a task, or replaced its args. events are its newest ones.
func (h *Handler) enqueuedBy(ctx context.Context, k ledger.Key, events []ledger.Event) (ledger.Event, error) {
	for _, e := range slices.Backward(events) {
		if e.HasArgs() {
			return e, nil
		}
	}
	return ledger.ArgsEvent(ctx, h.config.DB, k)
}

// addTree adds a task's causes, its predecessors, the tasks that wait for it and the tasks that it caused. It leaves
// out kinds that the caller may not read.
func (h *Handler) addTree(ctx context.Context, v *view, d *taskData) error {
	tree, err := projector.ReadTree(ctx, h.config.DB, d.Key, projector.TreeLimits{Depth: 3, Breadth: 20, Tasks: 100})
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
	if d.HasTree {
		d.Graph = newGraph(tree)
	}
	return nil
}

// timeline returns events, the newest first, with the time since the event before.
func (h *Handler) timeline(events []ledger.Event) []eventView {
	all := make([]eventView, len(events))
	before := events[0].RecordedAt
	for i, e := range events {
		at := e.RecordedAt
		if began, ok := e.BeganAt(); ok && e.Type == ledger.EventStarted { // which is recorded some time after it
			at = began
		}
		one := eventView{Event: e, Since: at.Sub(before)}
		if e.Type == ledger.EventFailed || strictjson.Text(e.Data, "error", "message") != "" {
			one.Error = lines(errorOf(e))
		}
		if reason := strictjson.Text(e.Data, "reason"); reason != "" {
			one.Reason = lines(reason)
		}
		if !e.HasArgs() {
			one.Data = pretty(e.Data, h.config.Hide)
		}
		before = at
		all[len(events)-1-i] = one
	}
	return all
}
