package console

import (
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
)

// act is a change of tasks that a form asks for.
type act struct {
	Name   api.Change
	Title  string
	states []ledger.State // that allow it
}

// allows reports whether a task in a state may be changed so.
func (a act) allows(s ledger.State) bool { return slices.Contains(a.states, s) }

var unfinished = []ledger.State{ledger.StateAvailable, ledger.StateRunning, ledger.StateScheduled, ledger.StateInLine,
	ledger.StateRetrying}

var acts = []act{
	{api.Release, "Release", []ledger.State{ledger.StateDead, ledger.StateCancelled, ledger.StateExpired,
		ledger.StateDiscarded, ledger.StateScheduled, ledger.StateRetrying}},
	{api.Bury, "Bury", unfinished},
	{api.Cancel, "Cancel", append(slices.Clone(unfinished), ledger.StateDead)},
}

// actData is the content of the page of an act: its preview, or its result.
type actData struct {
	Act    act
	Tasks  []actTask
	Able   int // tasks whose state allows it
	IsDone bool
	Reason string
	// Failing are kinds of Tasks that fail now, if the act releases them.
	Failing []*kindNow
}

// actTask is a task of an act.
type actTask struct {
	ledger.Key
	State  ledger.State
	Field  string // its key as a value of the form
	IsAble bool
	Result string // after the act
}

// Why returns why the state of the task does not allow an act, and what to do instead.
func (t actTask) Why(name api.Change) string {
	switch {
	case t.State == "":
		return "no: there is no such task"
	case name == api.Release && t.State == ledger.StateRunning:
		return "no: it runs; cancel it first, then release it"
	case name == api.Release && t.State != ledger.StateSucceeded:
		return "no: it waits already"
	case name == api.Release:
		return "no: it has succeeded; its page has “Run a copy as…”"
	}
	return "no: it has ended"
}

// act returns the preview of an act on tasks. If the form confirms the act, it executes the act and returns the result.
func (h *Handler) act(w http.ResponseWriter, r *http.Request) {
	c, isAdmitted := h.admitForm(w, r, "")
	if !isAdmitted {
		return
	}
	v := h.newView(w, r, c)
	d, err := h.changeTasks(r, c)
	if err != nil {
		h.failAs(w, r, v, err)
		return
	}
	v.Name, v.Title, v.Data = "act", d.Act.Title+" tasks", d
	h.renderCounted(w, r, http.StatusOK, "act", v)
}

func (h *Handler) changeTasks(r *http.Request, c api.Caller) (*actData, error) {
	i := slices.IndexFunc(acts, func(a act) bool { return string(a.Name) == r.PostForm.Get("act") })
	keys := r.PostForm["key"]
	d := &actData{IsDone: r.PostForm.Get("confirm") == "yes"}
	var err error
	if d.Reason, err = formReason(r, d.IsDone); err != nil {
		return nil, err
	}
	switch {
	case i < 0:
		return nil, invalid("act must be release, bury or cancel")
	case len(keys) == 0:
		return nil, invalid("no task is selected")
	case len(keys) > pageTasks:
		return nil, invalid("at most %d tasks can be selected", pageTasks)
	}
	d.Act = acts[i]
	ctx, cancel := database(r)
	defer cancel()
	for _, field := range keys {
		q, err := url.ParseQuery(field)
		if err != nil {
			return nil, invalid("a key cannot be read")
		}
		key := ledger.Key{Kind: ledger.Kind(q.Get("kind")), BizID: ledger.BizID(q.Get("biz_id"))}
		t := actTask{Key: key, Field: field}
		if err := t.Key.ValidateStored(); err != nil {
			return nil, err
		}
		if err := c.MayChange(t.Kind); err != nil {
			return nil, err
		}
		d.Tasks = append(d.Tasks, t)
	}
	all := make([]ledger.Key, len(d.Tasks))
	for i, t := range d.Tasks {
		all[i] = t.Key
	}
	found, err := ledger.States(ctx, h.config.DB, all)
	if err != nil {
		return nil, err
	}
	for i := range d.Tasks {
		t := &d.Tasks[i]
		t.State = found[t.Key]
		t.IsAble = d.Act.allows(t.State)
		if d.IsDone {
			err := h.config.API.ChangeTask(ctx, c, t.Key, d.Act.Name, d.Reason)
			if t.IsAble, t.Result = err == nil, "done"; err != nil {
				t.Result = printable.Short(h.explain(r, err).detail, 300)
			}
		}
		if t.IsAble {
			d.Able++
		}
	}
	if d.IsDone {
		h.awaitLists(ctx)
	} else if d.Act.Name == api.Release {
		d.Failing, err = h.listFailing(ctx, time.Now(), all)
	}
	return d, err
}
