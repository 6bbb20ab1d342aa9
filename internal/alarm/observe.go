package alarm

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/schedules"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/available.sql
	availableSQL string
	//go:embed sql/waiting.sql
	waitingSQL string
	//go:embed sql/is_listed.sql
	isListedSQL string
	//go:embed sql/waiting_listed.sql
	waitingListedSQL string
)

const (
	observeShare = 20     // an expensive query runs for at most one part in observeShare of the time
	waitingPage  = 10_000 // tasks that a statement reads
	// maxObserveRest is the longest time for which a result is kept, however expensive it was.
	maxObserveRest = time.Minute
	// listDelay is more than the time after which the projector lists a task that has not finished.
	listDelay = 30 * time.Second
)

// cache keeps an expensive result for a multiple of the time of its query. It is for one goroutine.
type cache[T any] struct {
	value T
	until time.Time
}

func (c *cache[T]) get(read func() (T, error)) (T, error) {
	if time.Now().Before(c.until) {
		return c.value, nil
	}
	began := time.Now()
	value, err := read()
	if err != nil {
		return value, err
	}
	c.value, c.until = value, time.Now().Add(loop.Rest(time.Since(began), observeShare, maxObserveRest))
	return value, nil
}

// observation is the state of the ledger at one time.
type observation struct {
	now    time.Time // by the database's clock
	dead   []operator.DeadGroup
	missed []schedules.PassedOver
	holds  []health.Condition // conditions of package health, and of the rules for kinds
}

// observer reads observations. It is for one goroutine.
type observer struct {
	config  Config
	dead    cache[[]operator.DeadGroup]
	timers  cache[[]health.Condition]
	waiting map[ledger.Kind]*cache[waitingTask]
	numbers health.Numbers
}

// waitingTask is a task of a kind that has been available for too long. The zero value is no task.
type waitingTask struct {
	bizID string
	age   time.Duration
}

func (w *observer) observe(ctx context.Context) (o observation, installation string, err error) {
	if o.now, installation, err = readClock(ctx, w.config.DB); err != nil {
		return o, "", err
	}
	o.dead, err = w.dead.get(func() ([]operator.DeadGroup, error) { return operator.ReadDead(ctx, w.config.DB, "") })
	if err != nil {
		return o, "", err
	}
	o.dead = without(o.dead, Kind)
	for _, read := range []func(context.Context, *observation) error{w.readHealth, w.readTimers, w.readKinds} {
		if err := read(ctx, &o); err != nil {
			return o, "", err
		}
	}
	return o, installation, nil
}

// without returns the groups of other kinds.
func without(groups []operator.DeadGroup, kind ledger.Kind) (others []operator.DeadGroup) {
	for _, g := range groups {
		if g.Kind != kind {
			others = append(others, g)
		}
	}
	return others
}

// readHealth reads the schedules and the lags for which there is a rule.
func (w *observer) readHealth(ctx context.Context, o *observation) (err error) {
	if o.missed, err = schedules.ReadPassedOver(ctx, w.config.DB); err != nil {
		return err
	}
	var only []health.Name
	for name, threshold := range w.config.Rules.thresholds() {
		if threshold > 0 && name != health.TimersLate {
			only = append(only, name)
		}
	}
	if len(only) == 0 {
		return nil
	}
	r, err := w.report(ctx, only...)
	o.holds = append(o.holds, r.Degraded...)
	return err
}

// readTimers reads the timers. It is expensive while an open snapshot keeps the rows of fired timers.
func (w *observer) readTimers(ctx context.Context, o *observation) error {
	if w.config.Rules.TimersLate < 0 {
		return nil
	}
	held, err := w.timers.get(func() ([]health.Condition, error) {
		r, err := w.report(ctx, health.TimersLate)
		return r.Degraded, err
	})
	o.holds = append(o.holds, held...)
	return err
}

// report returns a report of some conditions by the thresholds of the rules.
func (w *observer) report(ctx context.Context, only ...health.Name) (health.Report, error) {
	return health.Read(ctx, health.Config{DB: w.config.DB, Thresholds: w.config.Rules.thresholds(), Only: only,
		Numbers: &w.numbers})
}

// readKinds compares kinds with their limits.
func (w *observer) readKinds(ctx context.Context, o *observation) error {
	dead := make(map[ledger.Kind]int64)
	for _, g := range o.dead {
		dead[g.Kind] += g.Tasks
	}
	for _, rule := range w.config.Rules.Kinds {
		if n := dead[rule.Kind]; rule.DeadOver > 0 && n > rule.DeadOver {
			o.holds = append(o.holds, health.Condition{
				Name: WhatDeadOver, About: string(rule.Kind),
				Text: fmt.Sprintf("%s of kind %s are dead; the limit is %s",
					formatTasks(n), rule.Kind, printable.Count(rule.DeadOver)),
				Cure: fmt.Sprintf("taskledger show dead --kind %s", rule.Kind),
			})
		}
		if rule.WaitingOver == 0 {
			continue
		}
		found, err := w.waiting[rule.Kind].get(func() (waitingTask, error) { return w.findWaiting(ctx, rule) })
		if err != nil {
			return err
		}
		if found.bizID != "" {
			o.holds = append(o.holds, health.Condition{
				Name: WhatWaitingOver, About: string(rule.Kind), Since: o.now.Add(-found.age),
				Threshold: time.Duration(rule.WaitingOver),
				Text: fmt.Sprintf("%s of kind %s has been available for %s; the limit is %s",
					printable.Short(found.bizID, 80), rule.Kind, printable.Age(found.age), rule.WaitingOver),
				Cure: "are enough workers of the kind running? taskledger show workers",
			})
		}
	}
	return nil
}

// findWaiting returns a task of a kind that has been available for too long. It reads the unfinished tasks that the
// projector lists, up to the limit of the rule. If the limit is short or there is no list, it reads all tasks of the
// kind: there is no index of tasks by age, because every enqueue would pay for it. If no task is available, it reads
// none.
func (w *observer) findWaiting(ctx context.Context, rule KindRule) (waitingTask, error) {
	var available int64
	_, err := pgquery.Row(ctx, w.config.DB, availableSQL, []any{string(rule.Kind)}, &available)
	if err != nil || available == 0 {
		return waitingTask{}, pgerr.Explain("count available tasks", err)
	}
	isListed := false
	if time.Duration(rule.WaitingOver) >= listDelay {
		if _, err := pgquery.Row(ctx, w.config.DB, isListedSQL, nil, &isListed); err != nil {
			return waitingTask{}, pgerr.Explain("look for the list of lingering tasks", err)
		}
	}
	if isListed {
		return w.findListed(ctx, rule)
	}
	for after := ""; ; {
		var oldest *string
		var ms int64
		_, err := pgquery.Row(ctx, w.config.DB, waitingSQL,
			[]any{string(rule.Kind), after, int64(waitingPage)}, &after, &oldest, &ms)
		if err != nil {
			return waitingTask{}, pgerr.Explain("find a task that waits", err)
		}
		if found := overdue(rule, oldest, ms); found.bizID != "" || after == "" {
			return found, nil
		}
	}
}

// findListed is findWaiting by the list of lingering tasks.
func (w *observer) findListed(ctx context.Context, rule KindRule) (waitingTask, error) {
	limit := time.Duration(rule.WaitingOver).Milliseconds()
	var enqueuedAt int64
	var kind, id string
	for {
		var oldest *string
		var ms int64
		_, err := pgquery.Row(ctx, w.config.DB, waitingListedSQL,
			[]any{string(rule.Kind), enqueuedAt, kind, id, int64(waitingPage), limit},
			&enqueuedAt, &kind, &id, &oldest, &ms)
		if err != nil {
			return waitingTask{}, pgerr.Explain("find a task that waits", err)
		}
		if found := overdue(rule, oldest, ms); found.bizID != "" || id == "" {
			return found, nil
		}
	}
}

// overdue returns the task that has been available longest, if that is too long.
func overdue(rule KindRule, oldest *string, ms int64) waitingTask {
	age := time.Duration(ms) * time.Millisecond
	if oldest == nil || age <= time.Duration(rule.WaitingOver) {
		return waitingTask{}
	}
	return waitingTask{*oldest, age}
}
