package console

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/ledger"
)

const (
	// maxBulk is the maximum number of tasks that one form changes by a filter.
	maxBulk = 5000
	// bulkBatch is the number of tasks whose states are read at once.
	bulkBatch = 200
	// maxBulkTime is the time after which a form begins no other change. It is less than timeout.
	maxBulkTime = 8 * time.Second
	// maxPreview is the number of tasks up to which a preview counts. It is at most projection.MaxList.
	maxPreview = 1000
	// maxListed is the number of tasks that a preview shows, and of refusals that a result shows.
	maxListed = 20
)

// bulkData is the content of the page of an act on all tasks of a filter: its preview, or its result.
type bulkData struct {
	Act     act
	Kind    ledger.Kind
	State   ledger.State
	Prefix  string
	message string     // of the errors, see normalize; "": all
	After   ledger.Key // the last task that was read; the zero key: the first one is still to be read
	IsDone  bool
	IsMore  bool // tasks after After may match
	Found   int  // matching tasks among the tasks that were read
	Changed int
	Skipped int // tasks that were found, and have left the state or refuse the change
	Tasks   []actTask
	Problem string // why the act stopped early
	Cure    string
	Reason  string
	Failing []*kindNow // kinds of the tasks of the preview that fail now, if the act releases them
}

// bulkActs returns the acts that can be applied to all tasks in a state.
func bulkActs(s ledger.State) (all []act) {
	for _, a := range acts {
		if a.allows(s) {
			all = append(all, a)
		}
	}
	return all
}

// bulk returns the preview of an act on all tasks of a filter. If the form confirms the act, it changes a bounded
// number of them and returns the result. Each change is a transaction: if the server is killed, a task has either been
// changed or not. The same form then does the rest, because a changed task no longer matches the filter.
func (h *Handler) bulk(w http.ResponseWriter, r *http.Request) {
	c, isAdmitted := h.admitForm(w, r, "tasks")
	if !isAdmitted {
		return
	}
	v := h.newView(w, r, c)
	d, err := bulkForm(r, c)
	if err == nil {
		ctx, cancel := database(r)
		defer cancel()
		if d.IsDone {
			err = h.changeAll(ctx, r, c, d)
			h.awaitLists(ctx) // the next act finds what this one has changed
		} else {
			err = h.preview(ctx, c, d)
		}
	}
	if err != nil {
		h.failAs(w, r, v, err)
		return
	}
	v.Name, v.Title, v.Data = "bulk", d.Act.Title+" tasks", d
	h.renderCounted(w, r, http.StatusOK, "bulk", v)
}

// bulkForm returns the request in a form.
func bulkForm(r *http.Request, c api.Caller) (*bulkData, error) {
	f := r.PostForm
	i := slices.IndexFunc(acts, func(a act) bool { return string(a.Name) == f.Get("act") })
	d := &bulkData{Kind: ledger.Kind(f.Get("kind")), State: ledger.State(f.Get("state")), Prefix: f.Get("prefix"),
		After:  ledger.Key{Kind: ledger.Kind(f.Get("after_kind")), BizID: ledger.BizID(f.Get("after_id"))},
		IsDone: f.Get("confirm") == "yes"}
	var err error
	if d.Reason, err = formReason(r, d.IsDone); err != nil {
		return nil, err
	}
	// A caller that is limited to kinds may leave the kind open: tasks of other kinds are left out.
	if err := c.MayChange(d.Kind); err != nil && (d.Kind != "" || !c.Has(api.Operator)) {
		return nil, err
	}
	switch {
	case i < 0:
		return nil, invalid("act must be release, bury or cancel")
	case !acts[i].allows(d.State):
		return nil, invalid("the filter needs a state that allows to %s a task, got %q", acts[i].Name, d.State)
	}
	d.Act = acts[i]
	return d, nil
}

// next returns the next tasks of the filter that the caller may change, at most limit, and reads a bounded number.
func (h *Handler) next(ctx context.Context, c api.Caller, d *bulkData, limit int) ([]ledger.ListedTask, error) {
	all, next, err := h.find(ctx, &c, projection.Search{Kind: d.Kind, State: d.State, Prefix: d.Prefix, After: d.After,
		Limit: limit})
	if err != nil {
		return nil, err
	}
	d.After, d.IsMore = next, next != (ledger.Key{})
	return slices.DeleteFunc(all, func(t ledger.ListedTask) bool {
		return c.MayChange(t.Kind) != nil || d.message != "" && normalize(t.Error) != d.message
	}), nil
}

// preview counts the first tasks of the filter, and shows some of them.
func (h *Handler) preview(ctx context.Context, c api.Caller, d *bulkData) error {
	from := d.After
	all, err := h.next(ctx, c, d, maxPreview)
	if err != nil {
		return err
	}
	d.Found, d.After = len(all), from
	for _, t := range all[:min(len(all), maxListed)] {
		d.Tasks = append(d.Tasks, actTask{Key: t.Key, State: t.State})
	}
	if d.Act.Name != api.Release {
		return nil
	}
	keys := make([]ledger.Key, len(all))
	for i, t := range all {
		keys[i] = t.Key
	}
	d.Failing, err = h.listFailing(ctx, time.Now(), keys)
	return err
}

// changeAll changes the tasks of the filter until there are no others, or a limit is reached, or the client has gone,
// or the database fails.
func (h *Handler) changeAll(ctx context.Context, r *http.Request, c api.Caller, d *bulkData) error {
	begun := time.Now()
	isOver := func() bool {
		return d.Changed+d.Skipped >= maxBulk || time.Since(begun) > maxBulkTime || r.Context().Err() != nil
	}
	for d.IsMore = true; d.IsMore && !isOver(); {
		last := d.After
		tasks, err := h.next(ctx, c, d, bulkBatch)
		if err == nil {
			err = h.changeBatch(ctx, r, c, d, tasks, &last, isOver)
		}
		if err != nil {
			if d.Changed == 0 {
				return err
			}
			f := h.explain(r, err)
			d.After, d.IsMore, d.Problem, d.Cure = last, true, f.title, f.cure
			return nil
		}
		if isOver() && len(tasks) > 0 && last != tasks[len(tasks)-1].Key {
			d.After, d.IsMore = last, true
		}
	}
	return nil
}

// changeBatch changes tasks that are still in the filter's state, and stores the last processed task in last.
func (h *Handler) changeBatch(
	ctx context.Context, r *http.Request, c api.Caller, d *bulkData, tasks []ledger.ListedTask, last *ledger.Key,
	isOver func() bool,
) error {
	keys := make([]ledger.Key, len(tasks))
	for i, t := range tasks {
		keys[i] = t.Key
	}
	found, err := ledger.States(ctx, h.config.DB, keys) // the projection may be behind
	if err != nil {
		return err
	}
	for _, k := range keys {
		if isOver() {
			return nil
		}
		d.Found++
		result := "it has left the state"
		if found[k] == d.State {
			err := h.config.API.ChangeTask(ctx, c, k, d.Act.Name, d.Reason)
			if err == nil {
				d.Changed++
				*last = k
				continue
			}
			f := h.explain(r, err)
			if f.status >= http.StatusInternalServerError {
				return err
			}
			result = printable.Short(f.detail, 300)
		}
		d.Skipped++
		*last = k
		if len(d.Tasks) < maxListed {
			d.Tasks = append(d.Tasks, actTask{Key: k, State: found[k], Result: result})
		}
	}
	return nil
}
