package console

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

const (
	// recentTasks and recentWalk are the numbers of tasks, and of events, that are read back for words.
	recentTasks, recentWalk = 200, 2000
	// maxWords is the number of words of one name that the search box completes.
	maxWords = 20
)

// recentWords are the actors and tags of a task that was enqueued recently.
type recentWords struct {
	kind  ledger.Kind
	actor string
	tags  []string
}

// addWords adds the words that the search box completes: live workers, actors and tags of the last tasks, errors and
// the beginnings of the biz_ids on the page.
func (h *Handler) addWords(ctx context.Context, v *view, d *tasksData) error {
	var all []string
	add := func(name string, values []string) {
		slices.Sort(values)
		for i, value := range slices.Compact(values) {
			if i == maxWords {
				return
			}
			if strings.Contains(value, " ") {
				value = `"` + value + `"`
			}
			all = append(all, name+":"+value)
		}
	}
	live, err := workers.ReadWorkers(ctx, h.config.DB, "", maxWords)
	if err != nil {
		return err
	}
	var ids []string
	for _, w := range live {
		isVisible := !v.Caller.IsLimited() ||
			slices.ContainsFunc(w.Kinds, func(k workers.WorkerKind) bool { return v.Caller.MayUse(k.Kind) })
		if w.Alive && isVisible {
			ids = append(ids, w.ID)
		}
	}
	recent, err := h.recent.Get(ctx, h.readRecent)
	if err != nil {
		return err
	}
	var actors, tags, errors, prefixes []string
	for _, r := range recent {
		if v.Caller.MayUse(r.kind) {
			actors, tags = append(actors, r.actor), append(tags, r.tags...)
		}
	}
	for _, t := range d.Tasks {
		if text := beginning(t.Error); text != "" {
			errors = append(errors, text)
		}
		if text := beginningOf(t.BizID); text != "" {
			prefixes = append(prefixes, text)
		}
	}
	add("worker", ids)
	add("actor", actors)
	add("tag", tags)
	add("error", errors)
	add("prefix", prefixes)
	d.Words = all
	return nil
}

// beginningOf returns a biz_id up to its last separator, "" without any.
func beginningOf(id ledger.BizID) string {
	return string(id[:max(0, strings.LastIndexAny(string(id), "/-_:@")+1)])
}

// beginning returns the first words of an error, up to the first part that usually varies.
func beginning(message string) string {
	if i := strings.IndexAny(message, "0123456789\"'<\n"); i >= 0 {
		message = message[:i]
	}
	return strings.TrimSpace(printable.Short(message, 60))
}

// readRecent reads the words of the last tasks. They are kept, so that no page waits for them twice.
func (h *Handler) readRecent(ctx context.Context) (all []recentWords, isLarge bool, err error) {
	types := []ledger.EventType{ledger.EventEnqueued, ledger.EventScheduled, ledger.EventLinedUp}
	events, _, err := ledger.ReadBack(ctx, h.config.DB, ledger.Range{Types: types},
		ledger.BackOptions{Limit: recentTasks, Walk: recentWalk})
	for _, e := range events {
		var meta ledger.Meta
		_ = json.Unmarshal(e.Meta, &meta) // other programs can store any JSON
		all = append(all, recentWords{e.Kind, e.Actor, meta.Tags})
	}
	return all, true, err
}
