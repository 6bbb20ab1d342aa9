package api

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/eventrows"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/periodic"
	"github.com/taskledger/taskledger/projector"
	"github.com/taskledger/taskledger/workers"
)

//go:embed sql/history.sql
var historySQL string

// listTasks answers with a page of the projection, the last enqueued first.
func (h *Handler) listTasks(w http.ResponseWriter, r *http.Request, c *caller) error {
	q := parseQuery(r, "kind", "state", "tag", "partition", "order_key", "after", "limit")
	f := projector.TaskFilter{Kind: ledger.Kind(q.values.Get("kind")), State: ledger.State(q.values.Get("state")),
		Tag: q.values.Get("tag"), Partition: q.values.Get("partition"), OrderKey: q.values.Get("order_key"),
		Limit: q.limit(), StartAfter: ledger.Position(q.number("after", 0, 1, 1<<62))}
	if len(q.values["kind"]) > 1 {
		q.fault("kind", "must be given once")
	}
	if q.err != nil {
		return q.err
	}
	if f.Kind != "" && !c.mayUse(f.Kind) {
		return c.refuseKind(f.Kind)
	}
	ctx, cancel := database(r)
	defer cancel()
	tasks, next, err := projector.ReadTasks(ctx, h.config.DB, f)
	if err != nil {
		return err
	}
	tasks = slices.DeleteFunc(tasks, func(t ledger.ListedTask) bool { return !c.mayUse(t.Kind) })
	answer := client.List[ledger.ListedTask]{Items: append([]ledger.ListedTask{}, tasks...)}
	if next > 0 {
		answer.Next = strconv.FormatInt(int64(next), 10)
	}
	return h.writeJSON(w, r, http.StatusOK, answer)
}

// listHistory answers with a page of the events of a task.
func (h *Handler) listHistory(w http.ResponseWriter, r *http.Request, c *caller) error {
	q := parseQuery(r, "after", "limit")
	after, limit := q.number("after", 0, 0, 1<<31-1), q.limit()
	if q.err != nil {
		return q.err
	}
	k, err := key(r, c, r.PathValue("biz_id"))
	if err != nil {
		return err
	}
	ctx, cancel := database(r)
	defer cancel()
	answer, err := readHistory(ctx, h.config.DB, k, after, limit)
	if errors.Is(err, ledger.ErrUnknownTask) {
		var events []ledger.Event
		if _, events, err = h.ReadArchived(ctx, err); err == nil {
			answer = pageOf(events, after, limit)
		}
	}
	if err != nil {
		return err
	}
	return h.writeJSON(w, r, http.StatusOK, answer)
}

// pageOf returns a page of the events of a task: those after a version. An event with a lower version than an earlier
// one, of a key that was archived before, goes with the event before it.
func pageOf(events []ledger.Event, after int64, limit int) (page client.List[ledger.Event]) {
	page.Items = []ledger.Event{}
	var highest ledger.Version // so far
	for _, e := range events {
		isNext := e.Version > highest
		if isNext && len(page.Items) > 0 && (len(page.Items) >= limit || size(page.Items) > maxPageBytes) {
			page.Next = strconv.Itoa(int(highest))
			break
		}
		if highest = max(highest, e.Version); int64(highest) > after {
			page.Items = append(page.Items, e)
		}
	}
	return page
}

// loadAny loads a task, from the files of the archive if it was archived.
func (h *Handler) loadAny(r *http.Request, k ledger.Key) (ledger.Task, error) {
	t, err := h.load(r, k)
	if errors.Is(err, ledger.ErrUnknownTask) {
		ctx, cancel := database(r)
		defer cancel()
		t, _, err = h.ReadArchived(ctx, err)
	}
	return t, err
}

// ReadArchived returns the task with its events that err, the [*ledger.ArchivedError] of a read, names. It returns err
// if it is another error, or if the handler reads no archive.
func (h *Handler) ReadArchived(ctx context.Context, err error) (ledger.Task, []ledger.Event, error) {
	if archived, ok := errors.AsType[*ledger.ArchivedError](err); ok && h.config.Archived != nil {
		return h.config.Archived(ctx, archived)
	}
	return ledger.Task{}, nil, err
}

// readHistory returns events of a task after a version, up to a number and a size.
func readHistory(ctx context.Context, db ledger.DB, k ledger.Key, after int64, limit int) (
	page client.List[ledger.Event], err error) {
	page.Items = []ledger.Event{}
	rows, err := db.Query(ctx, historySQL, string(k.Kind), string(k.BizID), after, int64(limit+1))
	if err != nil {
		return page, pgerr.Explain("read history", err)
	}
	for e, err := range eventrows.Scan(rows) {
		if err != nil {
			return page, pgerr.Explain("read history", err)
		}
		if len(page.Items) == limit || size(page.Items) > maxPageBytes {
			page.Next = strconv.Itoa(int(page.Items[len(page.Items)-1].Version))
			break
		}
		page.Items = append(page.Items, e)
	}
	if len(page.Items) > 0 {
		return page, nil
	}
	archived, err := ledger.Archived(ctx, db, k)
	switch {
	case err == nil && archived[0] != nil:
		err = archived[0]
	case err == nil && after == 0:
		err = fmt.Errorf("%s: %w", k, ledger.ErrUnknownTask)
	}
	if err != nil {
		return page, err
	}
	return page, nil
}

// kindStatus is a kind in the list of kinds.
type kindStatus struct {
	Kind   ledger.Kind            `json:"kind"`
	Counts map[ledger.State]int64 `json:"counts"` // tasks by state
	Paused *operator.PausedKind   `json:"paused,omitempty"`
	Limit  *ledger.LimitStatus    `json:"limit,omitempty"`
}

// listKinds answers with a page of the kinds that have tasks, a pause or a limit.
func (h *Handler) listKinds(w http.ResponseWriter, r *http.Request, c *caller) error {
	name := func(k kindStatus) string { return string(k.Kind) }
	isVisible := func(k kindStatus) bool { return c.mayUse(k.Kind) }
	return paged(h, w, r, name, isVisible, func(kindStatus) int { return smallValue }, readKinds)
}

// readKinds returns at most limit kinds after a kind. Each of its reads returns at least as many kinds as fit into the
// page, so none is skipped.
func readKinds(ctx context.Context, db ledger.DB, after string, limit int) ([]kindStatus, error) {
	counts, err := projector.ReadCounts(ctx, db, ledger.Kind(after), limit)
	if err != nil {
		return nil, err
	}
	paused, err := operator.ReadPaused(ctx, db, ledger.Kind(after), limit)
	if err != nil {
		return nil, err
	}
	limits, err := ledger.ReadLimits(ctx, db, ledger.Kind(after), limit)
	if err != nil {
		return nil, err
	}
	byKind := map[ledger.Kind]*kindStatus{}
	status := func(k ledger.Kind) *kindStatus {
		if byKind[k] == nil {
			byKind[k] = &kindStatus{Kind: k, Counts: map[ledger.State]int64{}}
		}
		return byKind[k]
	}
	for _, n := range counts {
		status(n.Kind).Counts[n.State] = n.Tasks
	}
	for _, p := range paused {
		status(p.Kind).Paused = &p
	}
	for _, l := range limits {
		status(l.Kind).Limit = &l
	}
	page := []kindStatus{}
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		page = append(page, *byKind[kind])
	}
	return page[:min(limit, len(page))], nil
}

// listSchedules answers with a page of the schedules.
func (h *Handler) listSchedules(w http.ResponseWriter, r *http.Request, c *caller) error {
	name := func(s periodic.Status) string { return s.Schedule.Name }
	isVisible := func(s periodic.Status) bool { return c.mayUse(s.Schedule.Kind) }
	size := func(s periodic.Status) int { return len(s.Schedule.Args) + smallValue }
	return paged(h, w, r, name, isVisible, size, periodic.ReadSchedules)
}

// listWorkers answers with a page of the workers, each with the kinds that the caller may use.
func (h *Handler) listWorkers(w http.ResponseWriter, r *http.Request, c *caller) error {
	name := func(w workers.Worker) string { return w.ID }
	isVisible := func(w workers.Worker) bool { return len(w.Kinds) > 0 }
	size := func(w workers.Worker) int { return (len(w.Kinds) + 1) * smallValue }
	return paged(h, w, r, name, isVisible, size,
		func(ctx context.Context, db ledger.DB, after string, limit int) ([]workers.Worker, error) {
			all, err := workers.ReadWorkers(ctx, db, after, limit)
			isOther := func(k workers.WorkerKind) bool { return !c.mayUse(k.Kind) }
			for i := range all {
				all[i].Kinds = slices.DeleteFunc(all[i].Kinds, isOther)
			}
			return all, err
		})
}

// listSubscribers answers with a page of the subscribers of the feed.
func (h *Handler) listSubscribers(w http.ResponseWriter, r *http.Request, _ *caller) error {
	name := func(s subscribers.Subscriber) string { return s.Name }
	isVisible := func(subscribers.Subscriber) bool { return true }
	return paged(h, w, r, name, isVisible, func(subscribers.Subscriber) int { return smallValue }, subscribers.ReadAll)
}

const (
	smallValue = 1 << 10 // bytes of a value of a list without its args, at most
	firstPart  = 32      // values that are read at first, before their size is known
)

// paged answers with the page of a list that the parameters after and limit request. read returns at most limit values
// by name. A caller that is limited to kinds must not see another kind's name, so paged reads until the page contains
// enough visible values. size returns the bytes of a value: a page is limited to about maxPageBytes.
func paged[T any](
	h *Handler, w http.ResponseWriter, r *http.Request, name func(T) string, isVisible func(T) bool, size func(T) int,
	read func(ctx context.Context, db ledger.DB, after string, limit int) ([]T, error),
) error {
	q := parseQuery(r, "after", "limit")
	after, limit := q.values.Get("after"), q.limit()
	if q.err != nil {
		return q.err
	}
	ctx, cancel := database(r)
	defer cancel()
	visible := []T{}
	seen, total := 0, 0 // values, and bytes of the visible ones
	isLast := false
	for !isLast && len(visible) <= limit && total <= maxPageBytes {
		n := min(limit+1, firstPart)
		if total > 0 { // as many as fit, by the size of those before
			n = min(limit+1, max(1, (maxPageBytes-total)*seen/total))
		}
		values, err := read(ctx, h.config.DB, after, n)
		if err != nil {
			return err
		}
		isLast = len(values) < n
		for _, v := range values {
			after = name(v)
			seen++
			if isVisible(v) {
				visible, total = append(visible, v), total+size(v)
			}
		}
	}
	answer := client.List[T]{Items: visible[:min(limit, len(visible))]}
	if len(visible) > limit || !isLast {
		answer.Next = name(answer.Items[len(answer.Items)-1])
	}
	return h.writeJSON(w, r, http.StatusOK, answer)
}

// listStats answers with the statistics of a kind by minute.
func (h *Handler) listStats(w http.ResponseWriter, r *http.Request, c *caller) error {
	q := parseQuery(r, "kind", "from", "to")
	to := q.time("to", time.Now())
	from := q.time("from", to.Add(-time.Hour))
	kind := ledger.Kind(q.values.Get("kind"))
	if err := kind.Validate(); err != nil && q.err == nil {
		q.err = err
	}
	if len(q.values["kind"]) > 1 {
		q.fault("kind", "must be given once")
	}
	if from.After(to) || to.Sub(from) > maxStatsMinutes*time.Minute {
		q.fault("from", "must be at most %d hours before to", maxStatsMinutes/60)
	}
	if q.err != nil {
		return q.err
	}
	if !c.mayUse(kind) {
		return c.refuseKind(kind)
	}
	ctx, cancel := database(r)
	defer cancel()
	all, err := projector.ReadKindStats(ctx, h.config.DB, kind, from, to)
	if err != nil {
		return err
	}
	return h.writeJSON(w, r, http.StatusOK, client.List[projector.KindStats]{Items: all})
}
