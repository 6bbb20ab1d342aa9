package console

import (
	"cmp"
	"context"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/taskledger/taskledger/api"
	"github.com/taskledger/taskledger/health"
	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/periodic"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
	"github.com/taskledger/taskledger/workers/operator"
)

const (
	// maxGroup is the number of tasks that one form releases at most.
	maxGroup = 5000
	// pageGroups is the number of groups of dead tasks of a page.
	pageGroups = 25
	// pageEvents is the number of events of a page.
	pageEvents = 100
)

// deadData is the content of the page Dead.
type deadData struct {
	Groups []operator.DeadGroup
	Next   template.URL // the query of the next page; "": this is the last
}

func (h *Handler) showDead(ctx context.Context, r *http.Request, v *view) error {
	q := r.URL.Query()
	search := operator.DeadSearch{
		AfterFingerprint: q.Get("after_fingerprint"), AfterKind: ledger.Kind(q.Get("after_kind")),
	}
	var d deadData
	for hasMore := true; hasMore && len(d.Groups) <= pageGroups; {
		groups, more, err := operator.FindDead(ctx, h.config.DB, search)
		if err != nil {
			return err
		}
		hasMore = more
		for _, g := range groups {
			search.AfterFingerprint, search.AfterKind = g.Fingerprint, g.Kind
			if v.Caller.MayUse(g.Kind) {
				d.Groups = append(d.Groups, g)
			}
		}
		if !v.Caller.IsLimited() && hasMore { // the last group may be named
			d.Next = query("after_fingerprint", search.AfterFingerprint, "after_kind", search.AfterKind)
			break
		}
	}
	if len(d.Groups) > pageGroups {
		d.Groups = d.Groups[:pageGroups]
		last := d.Groups[pageGroups-1]
		d.Next = query("after_fingerprint", last.Fingerprint, "after_kind", last.Kind)
	}
	slices.SortStableFunc(d.Groups, func(a, b operator.DeadGroup) int { return cmp.Compare(b.Tasks, a.Tasks) })
	v.Data = d
	return nil
}

// kindView is a kind on the page Kinds and workers.
type kindView struct {
	kindNow
	Kind   ledger.Kind
	Pause  *operator.PausedKind
	Limit  *ledger.LimitStatus
	Worker int64 // live workers that handle it
}

// kindsData is the content of the page Kinds and workers.
type kindsData struct {
	Kinds   []*kindView
	Next    template.URL // the query of the next page of kinds; "": this is the last
	Workers *listData[workers.Worker]
	IsLater bool // this is not the first page of workers
}

func (h *Handler) showKinds(ctx context.Context, r *http.Request, v *view) error {
	after, err := afterName(r)
	if err != nil {
		return err
	}
	byKind := map[ledger.Kind]*kindView{}
	kind := func(k ledger.Kind) *kindView {
		if byKind[k] == nil {
			byKind[k] = &kindView{Kind: k}
		}
		return byKind[k]
	}
	if err := h.addCounts(ctx, v, func(k ledger.Kind) *kindNow { return &kind(k).kindNow }); err != nil {
		return err
	}
	paused, err := operator.ReadPaused(ctx, h.config.DB, "", lists.All)
	if err != nil {
		return err
	}
	for _, p := range paused {
		kind(p.Kind).Pause = &p
	}
	limits, err := ledger.ReadLimits(ctx, h.config.DB, "", lists.All)
	if err != nil {
		return err
	}
	for _, l := range limits {
		kind(l.Kind).Limit = &l
	}
	live, err := workers.ReadLiveCounts(ctx, h.config.DB)
	if err != nil {
		return err
	}
	for k, n := range live {
		kind(k).Worker = n
	}
	d := &kindsData{IsLater: after != ""}
	v.Data = d
	if d.Workers, err = h.readWorkers(ctx, v, after); err != nil {
		return err
	}
	from := ledger.Kind(r.URL.Query().Get("after_kind"))
	for _, k := range slices.Sorted(maps.Keys(byKind)) {
		if k <= from || !v.Caller.MayUse(k) {
			continue
		}
		if len(d.Kinds) == maxKinds {
			d.Next = query("after_kind", d.Kinds[maxKinds-1].Kind)
			break
		}
		d.Kinds = append(d.Kinds, byKind[k])
	}
	return nil
}

// readWorkers returns a page of the workers, with the kinds that the caller may use.
func (h *Handler) readWorkers(ctx context.Context, v *view, after string) (*listData[workers.Worker], error) {
	name := func(w workers.Worker) string { return w.ID }
	isVisible := func(w workers.Worker) bool { return len(w.Kinds) > 0 || !v.Caller.IsLimited() }
	return readList(after, name, isVisible, func(after string, limit int) ([]workers.Worker, error) {
		all, err := workers.ReadWorkers(ctx, h.config.DB, after, limit)
		for i := range all {
			w := &all[i]
			w.Kinds = slices.DeleteFunc(w.Kinds, func(k workers.WorkerKind) bool { return !v.Caller.MayUse(k.Kind) })
		}
		return all, err
	})
}

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

func (h *Handler) showSchedules(ctx context.Context, r *http.Request, v *view) error {
	after, err := afterName(r)
	if err != nil {
		return err
	}
	name := func(s periodic.Status) string { return s.Schedule.Name }
	isVisible := func(s periodic.Status) bool { return v.Caller.MayUse(s.Schedule.Kind) }
	v.Data, err = readList(after, name, isVisible, func(after string, limit int) ([]periodic.Status, error) {
		return periodic.ReadSchedules(ctx, h.config.DB, after, limit)
	})
	return err
}

func (h *Handler) showSubscribers(ctx context.Context, r *http.Request, v *view) error {
	after, err := afterName(r)
	if err != nil {
		return err
	}
	all, err := outbox.ReadSubscribers(ctx, h.config.DB, after, pageTasks+1)
	v.Data = newList(all, func(s outbox.Subscriber) string { return s.Name })
	return err
}

// eventsData is the content of the page Events.
type eventsData struct {
	Prefix, Type, Actor string
	Events              []ledger.Event // newest first
	Next                template.URL   // the query of the next page; "": this is the last
}

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
	d.Events = slices.DeleteFunc(all, func(e ledger.Event) bool { return !v.Caller.MayUse(e.Kind) })
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
	Version string
}

func (h *Handler) showSystem(ctx context.Context, _ *http.Request, v *view) error {
	if v.Caller.IsLimited() { // as in the API
		return &failure{status: http.StatusForbidden, title: "The caller is limited to kinds.",
			detail: v.Caller.Name() + " is limited to kinds, and this page is about all"}
	}
	report, err := h.readReport(ctx)
	v.Data = &systemData{report, h.config.Version}
	return err
}

// change is an act on a kind or a group of dead tasks, which a form asks for. It leads back to its page.
func (h *Handler) change(
	page string, do func(context.Context, *http.Request, api.Caller, string) (task ledger.Key, err error),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, isAdmitted := h.admitForm(w, r, page)
		if !isAdmitted {
			return
		}
		reason, err := formReason(r, true)
		var task ledger.Key
		if err == nil {
			ctx, cancel := database(r)
			defer cancel()
			task, err = do(ctx, r, c, reason)
		}
		if err != nil {
			h.fail(w, r, err)
			return
		}
		to := page
		if task != (ledger.Key{}) {
			to = string(taskPath(task))
		}
		http.Redirect(w, r, h.config.Base+to, http.StatusSeeOther)
	}
}

func (h *Handler) pauseKind(ctx context.Context, r *http.Request, c api.Caller, reason string) (ledger.Key, error) {
	kind, act := ledger.Kind(r.PostForm.Get("kind")), r.PostForm.Get("act")
	if act != "pause" && act != "resume" {
		return ledger.Key{}, invalid("act must be pause or resume")
	}
	_, err := h.config.API.PauseKind(ctx, c, kind, act == "pause", reason)
	return ledger.Key{}, err
}

func (h *Handler) changeSchedule(
	ctx context.Context, r *http.Request, c api.Caller, reason string,
) (ledger.Key, error) {
	act := api.ScheduleAct(r.PostForm.Get("act"))
	return h.config.API.ChangeSchedule(ctx, c, r.PostForm.Get("name"), act, reason)
}

func (h *Handler) releaseGroup(ctx context.Context, r *http.Request, c api.Caller, reason string) (ledger.Key, error) {
	kind, fingerprint := ledger.Kind(r.PostForm.Get("kind")), r.PostForm.Get("fingerprint")
	if kind == "" || fingerprint == "" {
		return ledger.Key{}, invalid("a kind and a fingerprint are required")
	}
	_, err := h.config.API.ReleaseGroup(ctx, c, kind, fingerprint, reason, maxGroup, false)
	return ledger.Key{}, err
}
