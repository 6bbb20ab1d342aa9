package console

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/ledger"
)

// unhandledKind is a kind with available or running tasks, and no live worker. All pages take its level from the
// condition kind_unhandled.
type unhandledKind struct {
	Kind               ledger.Kind
	Available, Running int64         // the worker of the running ones is lost
	Waited             time.Duration // by the oldest task; 0: unknown
	IsDue              bool          // the condition holds for the kind
}

// Level returns how bad it is that no worker handles the kind. A worker that is restarted needs some time.
func (u unhandledKind) Level() level {
	if u.IsDue {
		return levelOf(health.Condition{Name: health.KindUnhandled})
	}
	return note
}

// Age returns how long the oldest task has waited, "" if that is unknown.
func (u unhandledKind) Age() string {
	if u.Waited == 0 {
		return ""
	}
	return age(u.Waited)
}

// findUnhandled returns the kinds without a live worker that the caller may read. live is the number of live workers of
// each kind.
func (h *Handler) findUnhandled(
	ctx context.Context, v *view, live map[ledger.Kind]int64,
) (map[ledger.Kind]*unhandledKind, error) {
	counts, err := h.pageCounts(ctx, v)
	if err != nil {
		return nil, err
	}
	all := map[ledger.Kind]*unhandledKind{}
	for _, n := range counts {
		isWaiting := n.State == ledger.StateAvailable || n.State == ledger.StateRunning
		if !isWaiting || n.Tasks == 0 || live[n.Kind] > 0 || reserved.IsKind(n.Kind) {
			continue
		}
		if all[n.Kind] == nil {
			all[n.Kind] = &unhandledKind{Kind: n.Kind}
		}
		if n.State == ledger.StateAvailable {
			all[n.Kind].Available = n.Tasks
		} else {
			all[n.Kind].Running = n.Tasks
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	report, err := h.readReport(ctx) // an error is on Overview and System
	for _, u := range all {
		u.IsDue = err != nil
	}
	for _, r := range report.Unhandled {
		if u := all[r.Kind]; u != nil {
			u.IsDue, u.Waited = r.IsDue, waited(r)
		}
	}
	return all, nil
}

func waited(u operator.UnhandledKind) time.Duration {
	if u.OldestMS == nil {
		return 0
	}
	return time.Duration(*u.OldestMS) * time.Millisecond
}

// unhandledText returns a sentence about kinds without a worker, "" without any.
func unhandledText(all []unhandledKind) string {
	if len(all) == 0 {
		return ""
	}
	var names []string
	var longest time.Duration
	slices.SortFunc(all, compareUnhandled)
	for _, u := range all {
		names = append(names, string(u.Kind))
		longest = max(longest, u.Waited)
	}
	text := "1 kind waits without a worker"
	if len(all) > 1 {
		text = fmt.Sprintf("%s kinds wait without a worker", printable.Count(int64(len(all))))
	}
	if longest > 0 {
		text += " for " + age(longest)
	}
	return text + ": " + printable.Names(names, maxUnhandled)
}

// compareUnhandled orders the kinds with the most tasks first.
func compareUnhandled(a, b unhandledKind) int {
	return cmp.Or(cmp.Compare(b.Available+b.Running, a.Available+a.Running), cmp.Compare(a.Kind, b.Kind))
}

// addUnhandled adds a sentence about the kinds for which the condition does not hold yet, and for a caller that reads
// no conditions, one about the others.
func addUnhandled(v *view, d *overviewData, kinds map[ledger.Kind]*kindNow) {
	var waiting, due []unhandledKind
	for _, k := range kinds {
		switch {
		case k.Unhandled == nil:
		case !k.Unhandled.IsDue:
			waiting = append(waiting, *k.Unhandled)
		case d.IsLimited:
			due = append(due, *k.Unhandled)
		}
	}
	for _, all := range [][]unhandledKind{due, waiting} {
		if text := unhandledText(all); text != "" {
			one := all[0].Level()
			d.Troubles = append(d.Troubles, trouble{Level: one, Text: text + ".", Key: "unhandled " + string(one),
				Links: []choice{{Query: v.Base + "workers", Text: "Show workers"}}})
		}
	}
}
