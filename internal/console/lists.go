package console

import (
	"context"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
)

// pageEvents is the number of events of a page.
const pageEvents = 100

// listData is a page of a list by name.
type listData[T any] struct {
	Items []T
	Next  template.URL // the query of the next page; "": this is the last
}

// readList returns a page of the items that the caller may see, after a name. It reads until the page is full, so that
// the link to the next page does not reveal the name of another item. read returns at most limit items by name.
func readList[T any](
	after string, name func(T) string, isVisible func(T) bool, read func(after string, limit int) ([]T, error),
) (*listData[T], error) {
	var visible []T
	for {
		items, err := read(after, pageTasks+1)
		if err != nil {
			return nil, err
		}
		for _, item := range items {
			after = name(item)
			if isVisible(item) {
				visible = append(visible, item)
			}
		}
		if len(items) <= pageTasks || len(visible) > pageTasks {
			return newList(visible, name), nil
		}
	}
}

// newList returns a page of items. items contains one more than the page if there is a next page.
func newList[T any](items []T, name func(T) string) *listData[T] {
	d := &listData[T]{Items: items}
	if len(items) > pageTasks {
		d.Items = items[:pageTasks]
		d.Next = query("after", name(d.Items[pageTasks-1]))
	}
	return d
}

// afterName returns the name after which a list begins.
func afterName(r *http.Request) (string, error) {
	after := r.URL.Query().Get("after")
	if !utf8.ValidString(after) || strings.ContainsRune(after, 0) {
		return "", invalid("after must be a name")
	}
	return after, nil
}

// eventsData is the content of the page Events.
type eventsData struct {
	Prefix, Type, Actor string
	Types               []tab
	Events              []listedEvent // newest first
	Next                template.URL  // the query of the next page; "": this is the last
}

// listedEvent is an event with its data, unless they are large.
type listedEvent struct {
	ledger.Event
	Shown   string
	IsLarge bool
}

// maxListedData is the number of bytes of data up to which a list of events contains them.
const maxListedData = 4 << 10

// eventTypes are the types by which events can be chosen.
var eventTypes = []ledger.EventType{ledger.EventEnqueued, ledger.EventScheduled, ledger.EventLinedUp,
	ledger.EventStarted, ledger.EventProgressed, ledger.EventSucceeded, ledger.EventFailed, ledger.EventReleased,
	ledger.EventBuried, ledger.EventCancelled, ledger.EventExpired, ledger.EventDiscarded,
	ledger.EventInterrupted, ledger.EventSnoozed}

// showEvents shows a page of events, the newest first.
func (h *Handler) showEvents(ctx context.Context, r *http.Request, v *view) error {
	q := r.URL.Query()
	d := &eventsData{Prefix: q.Get("prefix"), Type: q.Get("type"), Actor: q.Get("actor")}
	v.Data = d
	before, err := position(q, "before")
	if err != nil {
		return err
	}
	filter := ledger.Range{Prefix: d.Prefix, Actor: d.Actor}
	if d.Type != "" {
		filter.Types = []ledger.EventType{ledger.EventType(d.Type)}
	}
	all, next, err := ledger.ReadBack(ctx, h.config.DB, filter,
		ledger.BackOptions{Before: before, Limit: pageEvents, Walk: walk})
	if err != nil {
		return err
	}
	if next != 0 {
		d.Next = query("prefix", d.Prefix, "type", d.Type, "actor", d.Actor, "before", int64(next))
	}
	choose := func(title string, t ledger.EventType) {
		d.Types = append(d.Types, tab{Title: title, IsCurrent: string(t) == d.Type,
			Query: query("prefix", d.Prefix, "type", t, "actor", d.Actor)})
	}
	choose("All", "")
	for _, t := range eventTypes {
		choose(words(t), t)
	}
	for _, e := range all {
		if !v.Caller.MayUse(e.Kind) {
			continue
		}
		one := listedEvent{Event: e, IsLarge: len(e.Data) > maxListedData}
		if !one.IsLarge {
			one.Shown = pretty(e.Data, h.config.Hide)
		}
		d.Events = append(d.Events, one)
	}
	return nil
}

// position returns a parameter, 0 if it is missing or empty.
func position(q url.Values, name string) (ledger.Position, error) {
	text := q.Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, invalid("%s must be a position, which is at least 1", name)
	}
	return ledger.Position(n), nil
}

// systemData is the content of the page System.
type systemData struct {
	health.Report
	Version   string
	Bad, Good []Check
	CheckedAt time.Time // zero: no checks
	services  map[string]service
}

// lateAge is the age of the oldest waiting event, or due timer, from which the page shows it as late. Some always wait.
const lateAge = 10 * time.Second

// IsPublishLate reports whether events wait long for the stream.
func (d *systemData) IsPublishLate() bool { return d.Outbox.OldestWaiting >= lateAge }

// IsProjectLate reports whether events wait long for the projector.
func (d *systemData) IsProjectLate() bool {
	return d.Projection.OldestWaitingMS >= lateAge.Milliseconds()
}

// Behind returns the greatest number of events that a subscriber has not passed.
func (d *systemData) Behind() (most int64) {
	for _, s := range d.Subscribers {
		most = max(most, s.Lag)
	}
	return most
}

// Available returns the number of tasks that wait for a worker.
func (d *systemData) Available() int64 { return d.in(ledger.StateAvailable) }

// Running returns the number of tasks in an attempt.
func (d *systemData) Running() int64 { return d.in(ledger.StateRunning) }

func (d *systemData) in(s ledger.State) (n int64) {
	for _, c := range d.Tasks {
		if c.State == s {
			n += c.Tasks
		}
	}
	return n
}

// IsTimerLate reports whether a timer has been due for long.
func (d *systemData) IsTimerLate() bool { return d.Timers.Late() >= lateAge }

func (h *Handler) showSystem(ctx context.Context, _ *http.Request, v *view) error {
	if v.Caller.IsLimited() { // as in the API
		return &failure{status: http.StatusForbidden, title: "The caller is limited to kinds.",
			detail: v.Caller.Name() + " is limited to kinds, and this page is about all"}
	}
	report, err := h.readReport(ctx)
	d := &systemData{Report: report, Version: h.config.Version}
	v.Data = d
	if err == nil {
		d.Bad, d.Good, d.CheckedAt = h.readChecks(ctx)
		d.addBoxes()
	}
	return err
}

// result is the result of an act: a sentence, and the task to whose page it leads. The zero key: the form's page.
type result struct {
	done string
	task ledger.Key
}

// change is an act on a kind or a group of dead tasks, which a form asks for. It leads back to its page, or to the page
// that the form names, which shows the result.
func (h *Handler) change(
	page string, do func(context.Context, *http.Request, api.Caller, string) (result, error),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, isAdmitted := h.admitForm(w, r, page)
		if !isAdmitted {
			return
		}
		reason, err := formReason(r, true)
		ctx, cancel := database(r)
		defer cancel()
		var done result
		if err == nil {
			done, err = do(ctx, r, c, reason)
		}
		if err != nil {
			h.fail(w, r, err)
			return
		}
		h.awaitLists(ctx)
		h.setDone(w, r, done.done)
		to := page
		switch r.PostForm.Get("to") { // the page of the form, of those that have it in several places
		case "overview":
			to = ""
		case "kind":
			to = string(kindPath(ledger.Kind(r.PostForm.Get("kind"))))
		case "failures":
			to = "failures"
		case "task":
			done.task.Kind = ledger.Kind(r.PostForm.Get("kind"))
			done.task.BizID = ledger.BizID(r.PostForm.Get("biz_id"))
		}
		if done.task != (ledger.Key{}) {
			to = string(taskPath(done.task))
		}
		http.Redirect(w, r, h.config.Base+to, http.StatusSeeOther)
	}
}

func (h *Handler) pauseKind(ctx context.Context, r *http.Request, c api.Caller, reason string) (result, error) {
	kind, act := ledger.Kind(r.PostForm.Get("kind")), r.PostForm.Get("act")
	if act != "pause" && act != "resume" {
		return result{}, invalid("act must be pause or resume")
	}
	if _, err := h.config.API.PauseKind(ctx, c, kind, act == "pause", reason); err != nil {
		return result{}, err
	}
	text := fmt.Sprintf("%s is %sd.", kind, act)
	if act == "resume" {
		counts, err := h.readCounts(ctx)
		for _, n := range counts {
			if err == nil && n.Kind == kind && n.State == ledger.StateDead && n.Tasks > 0 {
				text += fmt.Sprintf(" %s wait on Failures for a release.", tasks(int(n.Tasks)))
			}
		}
	}
	return result{done: text}, nil
}

func (h *Handler) changeSchedule(
	ctx context.Context, r *http.Request, c api.Caller, reason string,
) (result, error) {
	name, act := r.PostForm.Get("name"), api.ScheduleAct(r.PostForm.Get("act"))
	task, err := h.config.API.ChangeSchedule(ctx, c, name, act, reason)
	if act == api.RunSchedule {
		return result{done: fmt.Sprintf("%s was enqueued now.", name), task: task}, err
	}
	return result{done: fmt.Sprintf("%s is %sd.", name, act)}, err
}

// tasks returns a number of tasks in words.
func tasks(n int) string {
	if n == 1 {
		return "1 task"
	}
	return printable.Count(int64(n)) + " tasks"
}
