package health

import (
	"context"
	"slices"
	"time"

	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
)

// maxNamed is the greatest number of kinds in a text.
const maxNamed = 5

// AlarmKind is the kind of alarms. Package alarm delivers them, so they need no worker.
const AlarmKind ledger.Kind = "taskledger.alarm"

func checkKinds(ctx context.Context, c Config, r *Report) error {
	found, err := c.readUnhandled(ctx, r)
	if err != nil {
		return err
	}
	paused, err := operator.ReadPaused(ctx, c.DB, "", lists.All)
	if err != nil {
		return err
	}
	r.Paused = append(r.Paused, paused...)
	unhandled := slices.DeleteFunc(found.kinds, func(u operator.UnhandledKind) bool {
		return u.Kind == AlarmKind || u.Kind == operation.Kind // checkOperations examines records of acts
	})
	r.Unhandled = append(r.Unhandled, unhandled...)
	var late []string
	var since time.Time
	for i := range r.Unhandled {
		u := &r.Unhandled[i]
		if u.IsDue = c.Thresholds[KindUnhandled] >= 0 && u.Late(c.Thresholds[KindUnhandled]); !u.IsDue {
			continue
		}
		late = append(late, string(u.Kind))
		if u.OldestMS == nil {
			continue
		}
		if at := found.at.Add(-time.Duration(*u.OldestMS) * time.Millisecond); since.IsZero() || at.Before(since) {
			since = at
		}
	}
	if len(late) > 0 {
		r.add(Condition{
			Name: KindUnhandled, Since: since, Threshold: c.Thresholds[KindUnhandled],
			Text: "tasks are waiting, and no worker handles their kind: " + printable.Names(late, maxNamed),
		})
	}
	return nil
}
