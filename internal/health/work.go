package health

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
)

func checkUnbegun(ctx context.Context, c Config, r *Report) error {
	limit := c.Thresholds[TasksUnbegun]
	if limit < 0 {
		return nil
	}
	unbegun, err := operator.ReadUnbegun(ctx, c.DB, limit)
	if err != nil || len(unbegun) == 0 {
		return err
	}
	r.Unbegun = append(r.Unbegun, unbegun...)
	oldest := r.At.Add(-limit) // or earlier
	var since time.Time        // zero if the time of some kind is unknown
	isKnown := true
	var names []string
	for _, u := range unbegun {
		names = append(names, string(u.Kind))
		isKnown = isKnown && !u.OldestAt.IsZero()
		if !u.OldestAt.IsZero() && u.OldestAt.Before(oldest) {
			oldest = u.OldestAt
		}
	}
	if isKnown {
		since = oldest
	}
	text := fmt.Sprintf("a task has been waiting for a worker for %s or longer; kinds: %s",
		printable.Age(r.At.Sub(oldest)), printable.Names(names, maxNamed))
	full, err := readFull(ctx, c, unbegun)
	if err != nil {
		return err
	}
	if len(full) > 0 {
		text += "; they wait for limits: " + printable.Names(full, maxNamed)
	}
	cure := lagCure(r, DispatcherStopped)
	if cure == "" && len(full) == len(unbegun) {
		cure = "raise the limit, if more tasks may start: taskledger limit NAME --concurrency N or --rate N/m; " +
			"otherwise shorten the handlers, or bound the waiting tasks: docs/overload.md"
	}
	r.add(Condition{Name: TasksUnbegun, Since: since, Threshold: limit, Text: text, Cure: cure})
	return nil
}

// readFull returns the kinds whose tasks wait for a limit, with its use.
func readFull(ctx context.Context, c Config, unbegun []operator.UnbegunKind) (full []string, err error) {
	limits, err := ledger.ReadStartLimits(ctx, c.DB, "", "", lists.All)
	if err != nil {
		return nil, err
	}
	for _, u := range unbegun {
		i := slices.IndexFunc(limits, func(l ledger.StartLimitStatus) bool {
			return l.Kinds[u.Kind] > 0 && l.IsFull(time.Now())
		})
		switch {
		case i < 0:
		case limits[i].MaxRunning != nil && limits[i].Running >= *limits[i].MaxRunning:
			full = append(full, fmt.Sprintf("%s (%s: %d of %d)", u.Kind, limits[i].Name, limits[i].Running,
				*limits[i].MaxRunning))
		default:
			full = append(full, fmt.Sprintf("%s (%s: %s)", u.Kind, limits[i].Name, limits[i].Rate))
		}
	}
	return full, nil
}

func checkRepeated(ctx context.Context, c Config, r *Report) error {
	attempts, err := operator.ReadRepeated(ctx, c.DB)
	if err != nil {
		return err
	}
	if len(attempts) > 0 {
		most := attempts[0]
		r.add(Condition{
			Name: AttemptsRepeated, Since: firstSince(attempts),
			Text: fmt.Sprintf("attempts are repeated without an event; tasks: %s; %s %d times: %s",
				countRepeated(attempts), most.Key, most.Times, most.Error),
		})
	}
	snoozes, err := operator.ReadSnoozed(ctx, c.DB)
	if err != nil || len(snoozes) == 0 {
		return err
	}
	r.add(Condition{
		Name: SnoozedInARow,
		Text: fmt.Sprintf("tasks are snoozed repeatedly for less than a second; tasks: %s; %s %d times in a row",
			countRepeated(snoozes), snoozes[0].Key, snoozes[0].Times),
	})
	return nil
}

// countRepeated returns the number of tasks as text.
func countRepeated(tasks []operator.RepeatedTask) string {
	if len(tasks) == operator.MaxRepeated {
		return fmt.Sprintf("%d or more", len(tasks))
	}
	return printable.Count(int64(len(tasks)))
}

func firstSince(tasks []operator.RepeatedTask) time.Time {
	return slices.MinFunc(tasks, func(a, b operator.RepeatedTask) int { return a.Since.Compare(b.Since) }).Since
}
