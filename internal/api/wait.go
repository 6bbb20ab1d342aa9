package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// awaitFinished returns a task when it is finished, or as it is when the time is up or the server shuts down.
func (h *Handler) awaitFinished(r *http.Request, k ledger.Key, wait time.Duration) (ledger.Task, error) {
	if h.config.Waiter == nil {
		return h.await(r, k, wait, isFinished)
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	defer context.AfterFunc(h.draining, cancel)()
	tasks, err := h.config.Waiter.WaitFor(ctx, []ledger.Key{k}, ledger.UntilAll)
	switch {
	case err == nil && isFinished(tasks[0]) && tasks[0].ArchivedAt.IsZero():
		return tasks[0], nil
	case err != nil && ctx.Err() == nil && !errors.Is(err, context.Canceled):
		return ledger.Task{}, err
	case r.Context().Err() != nil:
		return ledger.Task{}, r.Context().Err()
	}
	return h.loadAny(r, k)
}

// await returns a task when it is done, or as it is when the time is up or the server shuts down.
func (h *Handler) await(
	r *http.Request, k ledger.Key, wait time.Duration, done func(ledger.Task) bool,
) (ledger.Task, error) {
	waiter := h.hub.watch(k) // before the read: no event is missed
	defer h.hub.unwatch(waiter)
	timeUp := time.NewTimer(wait)
	defer timeUp.Stop()
	for isLast := false; ; {
		t, err := h.loadAny(r, k)
		if err != nil || isLast || done(t) {
			return t, err
		}
		select {
		case <-waiter.wake:
		case <-timeUp.C:
			isLast = true
		case <-h.draining.Done():
			isLast = true
		case <-r.Context().Done():
			return t, r.Context().Err()
		}
	}
}
