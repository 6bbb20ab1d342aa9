package alarm

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/periodic"
	"github.com/taskledger/taskledger/workers"
)

var (
	//go:embed sql/now.sql
	nowSQL string
	//go:embed sql/available.sql
	availableSQL string
	//go:embed sql/waiting.sql
	waitingSQL string
)

const (
	observeShare = 20     // what costs more is looked at for one part in so many of the time
	waitingPage  = 10_000 // tasks that a statement looks at
)

// seldom keeps what was expensive to find out for a multiple of the time that it took.
type seldom[T any] struct {
	value T
	until time.Time
}

func (s *seldom[T]) get(find func() (T, error)) (T, error) {
	if time.Now().Before(s.until) {
		return s.value, nil
	}
	begun := time.Now()
	value, err := find()
	if err != nil {
		return value, err
	}
	s.value, s.until = value, time.Now().Add((observeShare-1)*time.Since(begun))
	return value, nil
}

// observer looks at the ledger.
type observer struct {
	config   Config
	operator *workers.Operator
	dead     seldom[[]workers.DeadGroup]
	timers   seldom[workers.TimerStatus]
	waiting  map[ledger.Kind]*seldom[waiting]
}

// waiting is the task of a kind that waits too long, if there is one.
type waiting struct {
	bizID string
	age   time.Duration
}

func (w *observer) observe(ctx context.Context) (o observation, installation string, err error) {
	if err := w.config.DB.QueryRow(ctx, nowSQL).Scan(&o.now, &installation); err != nil {
		return o, "", pgerr.Explain("read the clock", err)
	}
	o.now = o.now.UTC()
	o.dead, err = w.dead.get(func() ([]workers.DeadGroup, error) { return w.operator.Dead(ctx, "") })
	if err != nil {
		return o, "", err
	}
	o.dead = without(o.dead, Kind)
	if o.schedules, err = periodic.ReadSchedules(ctx, w.config.DB); err != nil {
		return o, "", err
	}
	for _, look := range []func(context.Context, *observation) error{w.lags, w.late, w.kinds} {
		if err := look(ctx, &o); err != nil {
			return o, "", err
		}
	}
	w.schedules(&o)
	return o, installation, nil
}

// without returns the groups of other kinds.
func without(groups []workers.DeadGroup, kind ledger.Kind) (others []workers.DeadGroup) {
	for _, g := range groups {
		if g.Kind != kind {
			others = append(others, g)
		}
	}
	return others
}

func (w *observer) lags(ctx context.Context, o *observation) error {
	for _, l := range []struct {
		what  string
		limit Duration
		read  func(context.Context) (time.Duration, error)
		text  string
	}{
		{WhatRelayLag, w.config.Rules.RelayLag, w.config.RelayLag, "an event has waited %s to be published; the limit is %s"},
		{WhatProjectionLag, w.config.Rules.ProjectionLag, w.config.ProjectionLag, "an event has waited %s to be projected; the limit is %s"},
	} {
		if l.limit == 0 {
			continue
		}
		lag, err := l.read(ctx)
		if err != nil {
			return fmt.Errorf("read %s: %w", l.what, err)
		}
		if lag > time.Duration(l.limit) {
			o.holds = append(o.holds, condition{l.what, "", fmt.Sprintf(l.text, printable.Age(lag), l.limit)})
		}
	}
	return nil
}

// late looks at the timers, which is expensive while a snapshot that somebody holds keeps what was fired.
func (w *observer) late(ctx context.Context, o *observation) error {
	timers, err := w.timers.get(func() (workers.TimerStatus, error) { return workers.ReadTimers(ctx, w.config.DB) })
	if err != nil {
		return err
	}
	if limit := w.config.Rules.TimersLate; limit > 0 && timers.Late() > time.Duration(limit) {
		more := ""
		if timers.DueCapped {
			more = " or more"
		}
		o.holds = append(o.holds, condition{WhatTimersLate, "", fmt.Sprintf(
			"a delay, a retry or a deadline has been due for %s, and no scheduler fires it; %s%s are due", printable.Age(timers.Late()), printable.Count(int64(timers.Due)), more)})
	}
	return nil
}

func (w *observer) schedules(o *observation) {
	for _, s := range o.schedules {
		late := o.now.Sub(s.NextAt)
		if w.config.Rules.ScheduleLate > 0 && !s.Paused && !s.NextAt.IsZero() && late > time.Duration(w.config.Rules.ScheduleLate) {
			o.holds = append(o.holds, condition{WhatScheduleLate, s.Schedule.Name,
				fmt.Sprintf("schedule %s has been due for %s, and nobody fires it", s.Schedule.Name, printable.Age(late))})
		}
	}
}

func (w *observer) kinds(ctx context.Context, o *observation) error {
	dead := make(map[ledger.Kind]int64)
	for _, g := range o.dead {
		dead[g.Kind] += g.Tasks
	}
	for _, rule := range w.config.Rules.Kinds {
		if n := dead[rule.Kind]; rule.DeadOver > 0 && n > rule.DeadOver {
			o.holds = append(o.holds, condition{WhatDeadOver, string(rule.Kind),
				fmt.Sprintf("%s of kind %s are dead; the limit is %s", formatTasks(n), rule.Kind, printable.Count(rule.DeadOver))})
		}
		if rule.WaitingOver == 0 {
			continue
		}
		found, err := w.waiting[rule.Kind].get(func() (waiting, error) { return w.findWaiting(ctx, rule) })
		if err != nil {
			return err
		}
		if found.bizID != "" {
			o.holds = append(o.holds, condition{WhatWaitingOver, string(rule.Kind), fmt.Sprintf("%s of kind %s has been available for %s; the limit is %s",
				printable.Short(found.bizID, 80), rule.Kind, printable.Age(found.age), rule.WaitingOver)})
		}
	}
	return nil
}

// findWaiting walks the tasks of a kind until it finds one that waits too long. Tasks by age have
// no index, which every enqueue would pay for; but where none is available, nothing is walked.
func (w *observer) findWaiting(ctx context.Context, rule KindRule) (waiting, error) {
	available, err := queryOne[int64](ctx, w.config.DB, availableSQL, string(rule.Kind))
	if err != nil || available == 0 {
		return waiting{}, pgerr.Explain("count available tasks", err)
	}
	for after := ""; ; {
		var oldest *string
		var ms int64
		if err := w.config.DB.QueryRow(ctx, waitingSQL, string(rule.Kind), after, int64(waitingPage)).Scan(&after, &oldest, &ms); err != nil {
			return waiting{}, pgerr.Explain("look for waiting tasks", err)
		}
		if found := time.Duration(ms) * time.Millisecond; oldest != nil && found > time.Duration(rule.WaitingOver) {
			return waiting{*oldest, found}, nil
		}
		if after == "" {
			return waiting{}, nil
		}
	}
}
