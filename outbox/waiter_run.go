package outbox

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/internal/unexported"
	"github.com/taskledger/taskledger/ledger"
)

// run reads the tasks in the queue until no wait is left for a PollEvery.
func (w *Waiter) run(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	connected, unsubscribe := w.subscribe(ctx)
	defer unsubscribe()
	poll := time.NewTicker(w.config.PollEvery)
	defer poll.Stop()
	renew := time.NewTicker(renewEvery)
	defer renew.Stop()
	backoff := loop.Backoff{Max: w.config.PollEvery}
	var asked time.Time
	for wasIdle := false; ctx.Err() == nil; {
		keys, batch := w.take()
		if len(keys) > 0 {
			wasIdle = false
			if time.Since(asked) >= renewEvery {
				asked = time.Now()
				w.askForWakes(ctx)
			}
			w.read(ctx, keys, batch, &backoff)
			continue
		}
		select {
		case <-ctx.Done():
		case <-w.signal:
		case _, isOpen := <-connected:
			if !isOpen { // the connection was closed
				connected = nil
			}
			w.flush() // the server knows the subscriptions again before the read
			w.enqueueAll()
		case <-renew.C:
			if w.hasWaits() {
				asked = time.Now()
				w.askForWakes(ctx)
			}
		case <-poll.C:
			w.enqueueAll()
			if w.rest(&wasIdle) {
				return
			}
		}
	}
}

// askForWakes requests that outcomes wake the relay, for longer than the time to the next call. Otherwise the relay
// publishes them after its next poll, within a quarter of a second.
func (w *Waiter) askForWakes(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, waiterTimeout)
	defer cancel()
	if err := feed.AwaitOutcomes(ctx, w.config.DB, awaitedFor); err != nil && ctx.Err() == nil {
		w.config.Logger.DebugContext(ctx, "outcomes do not wake the relay; waits take longer", "error", err)
	}
}

// hasWaits reports whether a wait is open.
func (w *Waiter) hasWaits() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.awaited) > 0
}

// rest reports whether no wait was open at two polls, so that the goroutine ends.
func (w *Waiter) rest(wasIdle *bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.awaited) > 0 || !*wasIdle {
		*wasIdle = len(w.awaited) == 0
		return false
	}
	w.stop()
	w.stop = nil
	return true
}

// subscribe subscribes to outcomes. It returns a channel that reports each reconnect, and a function that undoes it.
// Without rights or connection, the polls find the outcomes.
func (w *Waiter) subscribe(ctx context.Context) (connected chan nats.Status, undo func()) {
	nc := w.config.NATS
	if nc == nil {
		return nil, func() {}
	}
	var subscriptions []*nats.Subscription
	connected = nc.StatusChanged(nats.CONNECTED)
	for _, subject := range stream.PrefixOf(nc).OutcomeSubjects() {
		s, err := nc.Subscribe(subject, w.receive)
		if err != nil {
			w.config.Logger.WarnContext(ctx, "cannot subscribe to outcomes; waits poll", "error", err)
			continue
		}
		subscriptions = append(subscriptions, s)
	}
	w.flush()
	if err := nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) && slices.ContainsFunc(subscriptions,
		func(s *nats.Subscription) bool { return strings.Contains(err.Error(), s.Subject) }) {
		w.config.Logger.WarnContext(ctx, "cannot subscribe to outcomes; waits poll: connect with the key of the user "+
			"waiter of taskledger nats-config, or to the address of taskledger url nats waiter", "error", err)
	}
	return connected, func() {
		nc.RemoveStatusListener(connected)
		for _, s := range subscriptions {
			_ = s.Unsubscribe() // an error means that the connection is closed
		}
	}
}

// flush waits until the server has received the subscriptions. While it is unavailable, the reconnect sends them.
func (w *Waiter) flush() {
	if w.config.NATS.IsConnected() {
		_ = w.config.NATS.FlushTimeout(flushTimeout)
	}
}

var loadFinished = unexported.LoadFinished.(func(
	context.Context, ledger.DB, []ledger.Key) ([]ledger.Task, []error, error))

// read reads tasks and delivers them. After an outage it reads them again later.
func (w *Waiter) read(ctx context.Context, keys []ledger.Key, batch uint64, backoff *loop.Backoff) {
	timed, cancel := context.WithTimeout(ctx, waiterTimeout)
	defer cancel()
	tasks, errs, err := loadFinished(timed, w.config.DB, keys)
	switch {
	case err == nil:
		backoff.Reset()
		w.deliver(batch, tasks, errs)
	case ctx.Err() != nil: // closed
	case pgerr.IsPermanent(err), !retryable(err) && len(keys) == 1:
		tasks, errs = nil, nil
		for _, k := range keys {
			tasks, errs = append(tasks, ledger.Task{Key: k}), append(errs, err)
		}
		w.deliver(batch, tasks, errs)
	case !retryable(err): // one of the tasks cannot be read
		w.read(ctx, keys[:len(keys)/2], batch, backoff)
		w.read(ctx, keys[len(keys)/2:], batch, backoff)
	default:
		in := backoff.Next()
		w.config.Logger.WarnContext(
			ctx, "cannot read the tasks that are waited for; retrying", "retry_in", in, "error", err,
		)
		_ = loop.Sleep(ctx, in)
		w.enqueueAgain(keys)
	}
}

// retryable reports whether the same read may succeed later.
func retryable(err error) bool {
	return pgerr.IsRetryable(err) || errors.Is(err, context.DeadlineExceeded)
}

// enqueueAgain has tasks read again.
func (w *Waiter) enqueueAgain(keys []ledger.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range keys {
		if a := w.awaited[k]; a != nil {
			w.enqueue(k, a)
		}
	}
}
