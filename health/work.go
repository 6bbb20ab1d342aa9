package health

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers/operator"
)

// checkUnbegun needs the stream, which checkOutbox has read unless [Config].Only excludes its conditions.
func checkUnbegun(ctx context.Context, c Config, r *Report) error {
	if c.JetStream == nil || c.Thresholds.TasksUnbegun < 0 {
		return nil
	}
	unbegun := r.Outbox.Unbegun
	if r.Outbox.Stream == nil && r.Outbox.StreamError == "" {
		s, err := outbox.ReadStatus(ctx, c.DB, c.JetStream, c.Stream)
		if err != nil {
			return err
		}
		unbegun = s.Unbegun
	}
	paused, err := operator.ReadPaused(ctx, c.DB)
	if err != nil {
		return err
	}
	unhandled := r.Unhandled
	if c.Only != nil {
		if unhandled, err = operator.ReadUnhandled(ctx, c.DB); err != nil {
			return err
		}
	}
	isExempt := func(kind ledger.Kind) bool { // paused, or reported by KindUnhandled
		return slices.ContainsFunc(paused, func(p operator.PausedKind) bool { return p.Kind == kind }) ||
			slices.ContainsFunc(unhandled, func(u operator.UnhandledKind) bool { return u.Kind == kind })
	}
	var late []string
	var since time.Time
	for _, u := range unbegun {
		if isExempt(u.Kind) || !isExceeded(r.At.Sub(u.OldestAt), c.Thresholds.TasksUnbegun) {
			continue
		}
		late = append(late, string(u.Kind))
		if since.IsZero() || u.OldestAt.Before(since) {
			since = u.OldestAt
		}
	}
	if len(late) > 0 {
		r.add(Condition{
			Name: TasksUnbegun, Since: since, Threshold: c.Thresholds.TasksUnbegun,
			Text: fmt.Sprintf("a task has waited %s for a worker to begin it; kinds: %s",
				printable.Age(r.At.Sub(since)), printable.Names(late, maxNamed)),
		})
	}
	return nil
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
	releases, err := operator.ReadReleased(ctx, c.DB)
	if err != nil || len(releases) == 0 {
		return err
	}
	most := releases[0]
	r.add(Condition{
		Name: ReleasesRepeated, Since: firstSince(releases),
		Text: fmt.Sprintf("messages vanish without an attempt; tasks: %s; %s was released %d times in a row",
			countRepeated(releases), most.Key, most.Times),
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
