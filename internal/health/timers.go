package health

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/scheduler"
	"github.com/taskledger/taskledger/internal/schedules"
)

//go:embed sql/open_append.sql
var openAppendSQL string

func checkTimers(ctx context.Context, c Config, r *Report) (err error) {
	if r.Timers, err = scheduler.ReadTimers(ctx, c.DB); err != nil {
		return err
	}
	if !isExceeded(r.Timers.Late(), c.Thresholds[TimersLate]) {
		return nil
	}
	orMore := ""
	if r.Timers.DueCapped {
		orMore = " or more"
	}
	cause, cure, err := whyLate(ctx, c, r)
	if err != nil {
		return err
	}
	r.add(Condition{
		Name: TimersLate, Since: r.Timers.NextAt, Threshold: c.Thresholds[TimersLate],
		Text: fmt.Sprintf("a delayed task, a retry or a deadline has been due for %s; timers due: %s%s%s",
			printable.Age(r.Timers.Late()), printable.Count(int64(r.Timers.Due)), orMore, cause),
		Cure: cure,
	})
	return nil
}

// manyDue is a number of due timers that takes a scheduler several batches.
const manyDue = 1000

// whyLate returns why timers are late, as the end of a text, and the cure. Both are "" if no cause is visible.
func whyLate(ctx context.Context, c Config, r *Report) (cause, cure string, err error) {
	var pid int
	var prepared, user string
	var ms int64
	d, _ := Define(TimersLate)
	least := c.Thresholds[TimersLate].Milliseconds()
	found, err := pgquery.Row(ctx, c.DB, openAppendSQL, []any{least}, &pid, &prepared, &user, &ms)
	age := printable.Age(time.Duration(ms) * time.Millisecond)
	switch {
	case err != nil:
		return "", "", pgerr.Explain("find an open transaction", err)
	case found && pid == 0:
		return fmt.Sprintf("; transaction %q of %s, prepared %s ago, may be locking their tasks", prepared, user, age),
			"commit it, or: " + rollbackPrepared(prepared), nil
	case found:
		return fmt.Sprintf("; a transaction of %s, open for %s, has appended events and may be locking their tasks",
				user, age),
			fmt.Sprintf("end it in its program, or: select pg_terminate_backend(%d)", pid), nil
	case c.Only == nil && r.Outbox.Relay == nil && !r.Outbox.IsOff: // else the caller may be a service
		return "; no process runs taskledger serve", "start: taskledger serve", nil
	case r.Timers.Due >= manyDue:
		return "; schedulers fire them in batches, taking turns between kinds",
			"if the number is falling, wait, or start another taskledger serve; " + d.Cure, nil
	}
	return "", "", nil
}

func checkSchedules(ctx context.Context, c Config, r *Report) (err error) {
	if r.Schedules, err = schedules.ReadSummary(ctx, c.DB); err != nil {
		return err
	}
	for i, s := range r.Schedules.Late {
		late := r.At.Sub(s.NextAt)
		if !isExceeded(late, c.Thresholds[ScheduleLate]) {
			continue
		}
		r.add(Condition{
			Name: ScheduleLate, About: s.Name, Since: s.NextAt, Threshold: c.Thresholds[ScheduleLate],
			Text: fmt.Sprintf("schedule %s has been due for %s and has not fired", s.Name, printable.Age(late)),
		})
		isLast := i == len(r.Schedules.Late)-1
		if others := r.Schedules.Due - len(r.Schedules.Late); isLast && others > 0 {
			r.add(Condition{
				Name: ScheduleLate, Threshold: c.Thresholds[ScheduleLate],
				Text: fmt.Sprintf("other schedules that are due and may also be late: %s; "+
					"to list them: taskledger show schedules", printable.Count(int64(others))),
			})
		}
	}
	return nil
}
