package alarm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

// Crash points, see internal/fault.
const (
	pointFound   = "alarm.found"   // between the decision that there is news and its alarm
	pointMade    = "alarm.made"    // between the commit of an alarm and its delivery
	pointStarted = "alarm.started" // between started and the delivery
	pointSent    = "alarm.sent"    // between the delivery and succeeded
)

// Watcher creates alarms and delivers them. Any number may run. Run is for one goroutine.
type Watcher struct {
	config    Config
	observer  observer
	newsSince map[string]time.Time // by receiver: when news was found that is not reported yet
}

// New returns a watcher. It does not use the database. It returns the error of [Config.Validate].
func New(c Config) (*Watcher, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	w := &Watcher{config: c, newsSince: make(map[string]time.Time)}
	w.observer = observer{config: c, waiting: make(map[ledger.Kind]*cache[waitingTask])}
	for _, rule := range c.Rules.Kinds {
		w.observer.waiting[rule.Kind] = &cache[waitingTask]{}
	}
	return w, nil
}

// Run polls until ctx is done, and then returns nil. It retries while the database or a receiver is unavailable, and
// returns [ledger.ErrNotMigrated] only.
func (w *Watcher) Run(ctx context.Context) error {
	return loop.Steps{
		Step: func(ctx context.Context) (time.Duration, error) {
			err := w.pass(ctx)
			return loop.Jitter(w.config.interval), err // watchers of several processes spread
		},
		Stop: pgerr.NotMigrated,
		Failed: func(ctx context.Context, err error, in time.Duration) {
			w.config.Logger.WarnContext(ctx, "alarms interrupted; retrying", "error", err, "retry_in", in)
		},
		Backoff: loop.Backoff{Max: w.config.interval},
	}.Run(ctx)
}

// pass polls once, creates alarms, and delivers due alarms. Receivers do not wait for each other.
func (w *Watcher) pass(ctx context.Context) error {
	begun := time.Now()
	observed, installation, failure := w.observer.observe(ctx)
	errs := make([]error, len(w.config.Receivers))
	if failure == nil {
		for i, r := range w.config.Receivers {
			errs[i] = w.report(ctx, r, observed, installation)
		}
	}
	// Earlier alarms are delivered after a failure too.
	var deliveries sync.WaitGroup
	for i, r := range w.config.Receivers {
		deliveries.Go(func() { errs[i] = errors.Join(errs[i], w.deliver(ctx, r)) })
	}
	deliveries.Wait()
	err := errors.Join(append(errs, failure)...)
	if err == nil && len(w.newsSince) == 0 && w.config.Reported != nil {
		w.config.Reported(begun)
	}
	return err
}

// report creates the next alarm of a receiver. It does so if there is news, gathered for long enough, and the last
// alarm is finished and old enough.
func (w *Watcher) report(ctx context.Context, r Receiver, observed observation, installation string) error {
	last, err := loadNewest(ctx, w.config.DB, r.Name)
	if err != nil {
		return fmt.Errorf("receiver %s: %w", r.Name, err)
	}
	if last.exists() && !last.task.State.Finished() {
		return nil
	}
	before := last.baseline()
	items, after := before.news(observed, w.config.Rules)
	if len(items) == 0 {
		delete(w.newsSince, r.Name)
		return nil
	}
	since, isGathering := w.newsSince[r.Name]
	if !isGathering {
		since = time.Now()
		w.newsSince[r.Name] = since
	}
	if time.Since(since) < time.Duration(w.config.Rules.Gather) {
		return nil
	}
	age := observed.now.Sub(last.task.EnqueuedAt)
	if last.exists() && !last.args.Test && age < time.Duration(w.config.Rules.Every) {
		return nil
	}
	fault.Point(pointFound)
	added, err := last.add(ctx, w.config.DB, r.Name,
		args{Ledger: installation, Items: items, Before: before, After: after})
	if err != nil {
		return fmt.Errorf("receiver %s: %w", r.Name, err)
	}
	delete(w.newsSince, r.Name)
	if added {
		subject := Message{Items: items}.Subject()
		w.config.Logger.WarnContext(ctx, "alarm", "receiver", r.Name, "subject", subject)
		fault.Point(pointMade)
	}
	return nil
}

func (w *Watcher) deliver(ctx context.Context, r Receiver) error {
	last, err := loadNewest(ctx, w.config.DB, r.Name)
	if err != nil || !last.exists() || last.task.State.Finished() {
		return err
	}
	failure, err := deliverer{w.config.DB, r, *w.config.retry}.deliver(ctx)
	if failure != nil && ctx.Err() == nil {
		w.config.Logger.WarnContext(ctx, "cannot deliver an alarm", "alarm", string(last.task.BizID), "error", failure)
	}
	if isConflict(err) { // an operator changed the alarm
		return nil
	}
	return err
}
