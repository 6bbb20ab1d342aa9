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
	"github.com/taskledger/taskledger/workers"
)

// Watcher makes alarms and delivers them. Any number may run.
type Watcher struct {
	config   Config
	observer observer
	found    map[string]time.Time // by receiver: when news were found that it is not told yet
}

// New returns a watcher. It does not use the database yet. It returns the error of
// [Config.Validate].
func New(c Config) (*Watcher, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	operator, err := workers.NewOperator(workers.OperatorConfig{DB: c.DB})
	if err != nil {
		return nil, err
	}
	w := &Watcher{config: c, found: make(map[string]time.Time)}
	w.observer = observer{config: c, operator: operator, waiting: make(map[ledger.Kind]*seldom[waiting])}
	for _, rule := range c.Rules.Kinds {
		w.observer.waiting[rule.Kind] = &seldom[waiting]{}
	}
	return w, nil
}

// Run watches until ctx is done, and then returns nil. It goes on through outages of the database
// and of receivers, and returns an error only where it must not go on: [ledger.ErrNotMigrated].
func (w *Watcher) Run(ctx context.Context) error {
	return loop.Steps{
		Step: func(ctx context.Context) (time.Duration, error) {
			err := w.pass(ctx)
			return loop.Jitter(w.config.Look), err // not all watchers at once
		},
		Stop: pgerr.NotMigrated,
		Failed: func(ctx context.Context, err error, in time.Duration) {
			w.config.Logger.WarnContext(ctx, "alarms interrupted; trying again", "error", err, "in", in)
		},
		Backoff: loop.Backoff{Max: w.config.Look},
	}.Run(ctx)
}

// pass looks once, makes the alarms that are to be made, and delivers those that are due. The
// receivers do not wait for each other.
func (w *Watcher) pass(ctx context.Context) error {
	seen, installation, failed := w.observer.observe(ctx)
	for _, r := range w.config.Receivers {
		if failed == nil {
			failed = w.tell(ctx, r, seen, installation)
		}
	}
	// What was made before is delivered all the same.
	errs := make([]error, len(w.config.Receivers))
	var running sync.WaitGroup
	for i, r := range w.config.Receivers {
		running.Go(func() { errs[i] = w.deliver(ctx, r) })
	}
	running.Wait()
	return errors.Join(append(errs, failed)...)
}

// tell makes the next alarm of a receiver, if there is news, gathered for long enough, and the one
// before is finished and not too young.
func (w *Watcher) tell(ctx context.Context, r Receiver, seen observation, installation string) error {
	last, err := newest(ctx, w.config.DB, r.Name)
	if err != nil {
		return fmt.Errorf("receiver %s: %w", r.Name, err)
	}
	if last.exists() && !last.task.State.Finished() {
		return nil
	}
	before := last.known()
	items, after := before.news(seen, w.config.Rules)
	if len(items) == 0 {
		delete(w.found, r.Name)
		return nil
	}
	first, gathering := w.found[r.Name]
	if !gathering {
		first = time.Now()
		w.found[r.Name] = first
	}
	if time.Since(first) < time.Duration(w.config.Rules.Gather) {
		return nil
	}
	if last.exists() && !last.args.Test && seen.now.Sub(last.task.EnqueuedAt) < time.Duration(w.config.Rules.Every) {
		return nil
	}
	fault.Point(pointFound)
	made, err := last.add(ctx, w.config.DB, r.Name, args{Ledger: installation, Items: items, Before: before, After: after})
	if err != nil {
		return fmt.Errorf("receiver %s: %w", r.Name, err)
	}
	delete(w.found, r.Name)
	if made {
		w.config.Logger.WarnContext(ctx, "alarm", "receiver", r.Name, "subject", Message{Items: items}.Subject())
		fault.Point(pointMade)
	}
	return nil
}

func (w *Watcher) deliver(ctx context.Context, r Receiver) error {
	last, err := newest(ctx, w.config.DB, r.Name)
	if err != nil || !last.exists() || last.task.State.Finished() {
		return err
	}
	failure, err := deliverer{w.config.DB, r, *w.config.Retry}.deliver(ctx)
	if failure != nil && ctx.Err() == nil {
		w.config.Logger.WarnContext(ctx, "an alarm could not be delivered", "alarm", string(last.task.BizID), "error", failure)
	}
	if moved(err) { // by an operator
		return nil
	}
	return err
}
