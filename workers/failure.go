package workers

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
)

// fail records a failed attempt, and when it is repeated, by its handler's word or by the policy;
// or that the task is buried, if there is a reason to (not "") or the attempts are used up.
func (k *kind) fail(ctx context.Context, a *attempt, cause error, buried string) {
	history, err := ledger.History(ctx, a.db(), a.job.Key)
	if err != nil {
		k.recorded(a, OutcomeFailed, err)
		return
	}
	if last := history[len(history)-1]; last.Version != a.version {
		k.recorded(a, OutcomeFailed, &ledger.ConflictError{Key: a.job.Key, Expected: a.version, Found: last.Version, State: last.Type.State()})
		return
	}
	policy, failures := k.policy(history[0]), failuresIn(history)
	if buried == "" && len(failures)+1 >= policy.Limit() {
		buried = "attempts used up"
	}
	if buried != "" {
		failures = append(failures, PreviousError{Attempt: a.job.Attempt, At: time.Now().UTC(), Message: printable.Storable(cause.Error(), maxMessage/8)})
		k.bury(ctx, a, buriedData{Reason: buried, Err: cause, Errors: failures})
		return
	}
	delay, at := policy.Delay(len(failures)+1, rand.Float64()), time.Time{}
	var word *RetryError
	if errors.As(cause, &word) {
		delay, at = word.In, word.At
	}
	k.logger.WarnContext(ctx, "attempt failed", "biz_id", string(a.job.BizID), "attempt", int(a.job.Attempt), "error", cause)
	err = a.appendFailure(ctx, cause, delay, at)
	if isInvalid(err) && word != nil {
		err = a.appendFailure(ctx, cause, policy.Delay(len(failures)+1, rand.Float64()), time.Time{})
	}
	k.recorded(a, OutcomeFailed, err)
}

// policy returns the retry policy of a task: its own, or else that of its kind. A producer that
// writes SQL may have left one that cannot be read.
func (k *kind) policy(first ledger.Event) ledger.RetryPolicy {
	meta, err := ledger.ParseMeta(first.Meta)
	if err == nil && meta.Retry == "" {
		return k.config.Retry
	}
	p, err2 := ledger.ParseRetryPolicy(meta.Retry)
	if err := errors.Join(err, err2); err != nil {
		k.logger.Warn("the task's own retry policy cannot be read: that of its kind holds", "biz_id", string(first.BizID), "error", err)
		return k.config.Retry
	}
	return p
}

// appendFailure appends failed, to be released after a delay by the database's clock or at a
// moment; without either it is released in the same transaction.
func (a *attempt) appendFailure(ctx context.Context, cause error, delay time.Duration, at time.Time) error {
	r := a.request(ledger.EventFailed, failedJSON(a, cause))
	if !at.IsZero() {
		r.At = at
		return a.appendAll(ctx, r)
	}
	if delay > 0 {
		r.After = delay
		return a.appendAll(ctx, r)
	}
	return a.appendAll(ctx, r, a.request(ledger.EventReleased, json.RawMessage(`{"reason":"retry"}`)))
}

// bury records that a task needs a person; before that, the failure that made it so.
func (k *kind) bury(ctx context.Context, a *attempt, data buriedData) {
	requests := []ledger.AppendRequest{a.request(ledger.EventBuried, data.json(a))}
	if data.Err != nil {
		requests = []ledger.AppendRequest{a.request(ledger.EventFailed, failedJSON(a, data.Err)), requests[0]}
	}
	err := a.appendAll(ctx, requests...)
	if err == nil {
		k.logger.WarnContext(ctx, "task buried", "biz_id", string(a.job.BizID), "reason", data.Reason, "error", data.message())
	}
	k.recorded(a, OutcomeBuried, err)
}

// PreviousError is one failed attempt of a task.
type PreviousError struct {
	Attempt ledger.Attempt `json:"attempt"`
	At      time.Time      `json:"at"`
	Message string         `json:"message"` // shortened
}

// failuresIn returns the failed attempts of a task since it was last released from a finished
// state, oldest first: what counts against the limit, as in the fold (ledger.Task.Failures).
func failuresIn(history []ledger.Event) []PreviousError {
	var all []PreviousError
	for i, e := range history {
		switch {
		case e.Type == ledger.EventFailed:
			all = append(all, PreviousError{e.Attempt, e.RecordedAt, printable.Storable(e.ErrorText(), maxMessage/8)})
		case e.Type == ledger.EventReleased && history[i-1].Type.State().Finished():
			all = nil
		}
	}
	return all
}
