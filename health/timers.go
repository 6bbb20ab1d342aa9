package health

import (
	"context"
	"fmt"

	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger/periodic"
	"github.com/taskledger/taskledger/workers/scheduler"
)

func checkTimers(ctx context.Context, c Config, r *Report) (err error) {
	if r.Timers, err = scheduler.ReadTimers(ctx, c.DB); err != nil {
		return err
	}
	if !isExceeded(r.Timers.Late(), c.Thresholds.TimersLate) {
		return nil
	}
	orMore := ""
	if r.Timers.DueCapped {
		orMore = " or more"
	}
	r.add(Condition{
		Name: TimersLate, Since: r.Timers.NextAt, Threshold: c.Thresholds.TimersLate,
		Text: fmt.Sprintf("a delay, a retry or a deadline has been due for %s; timers that are due: %s%s",
			printable.Age(r.Timers.Late()), printable.Count(int64(r.Timers.Due)), orMore),
	})
	return nil
}

func checkSchedules(ctx context.Context, c Config, r *Report) (err error) {
	if r.Schedules, err = periodic.ReadSummary(ctx, c.DB); err != nil {
		return err
	}
	for _, s := range r.Schedules.Late {
		late := r.At.Sub(s.NextAt)
		if !isExceeded(late, c.Thresholds.ScheduleLate) {
			continue
		}
		r.add(Condition{
			Name: ScheduleLate, About: s.Name, Since: s.NextAt, Threshold: c.Thresholds.ScheduleLate,
			Text: fmt.Sprintf("schedule %s has been due for %s and does not fire", s.Name, printable.Age(late)),
		})
	}
	return nil
}
