package attempt

import (
	"context"
	"errors"
	"fmt"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// nakAnswer requests an immediate redelivery of a message.
var nakAnswer = stream.NakAnswer

// Reasons for which a task is buried.
const (
	reasonUnsafe = "the handler did not mark its error as safe to retry"
	reasonEnded  = "the handler ended its transaction: its writes may be committed"
)

// committed ends an attempt whose handler succeeded. err is the error of appending succeeded, otherwise e is the event.
func (a *Attempt) committed(ctx context.Context, e ledger.Event, err error) {
	switch {
	case err == nil:
		a.appended(e)
		a.record(OutcomeSucceeded, nil)
	case errors.Is(err, ledger.ErrTransactionEnded):
		a.fail(ctx, err, reasonEnded)
	case errors.Is(err, ledger.ErrTransactionAborted), isRefused(err):
		a.conclude(nil, err)
	default: // fenced; or the outcome is unknown, and the next delivery of the message decides
		a.record(OutcomeSucceeded, err)
	}
}

// conclude ends an attempt whose handler did not succeed. err is the handler's error (nil if it returned nil too
// late), cause is the cause of the end of its context, or nil.
func (a *Attempt) conclude(cause, err error) {
	k := a.kind
	ctx, cancel := k.Operation()
	defer cancel()
	if err == nil {
		err = cause
	}
	a.err = err
	d := k.Errors.Decide(err)
	switch {
	case a.isFenced || errors.Is(cause, ErrFenced):
		a.endWith(OutcomeFenced, ErrFenced)
		k.Again(a.task)
	case d.HasNotBegun && cause != nil:
		if !a.claimed { // otherwise an event records it
			a.endWith(OutcomeInterrupted, nil)
		}
		a.GiveBack(nakAnswer)
	case d.Action == Corrupt:
		a.fail(ctx, err, "its args do not decode")
	case k.Once && a.isEntered.Load() && !d.IsExplicit:
		a.buryUnsafe(ctx, cause, err)
	case d.Action == Panic:
		a.fail(ctx, err, "")
	case d.Action == Snooze:
		a.snooze(ctx, d)
	case d.Action == Discard:
		discarded := a.request(ledger.EventDiscarded, marshalReason(d.Reason, a.data()))
		a.recordAll(ctx, OutcomeDiscarded, a.afterStart(discarded)...)
	case d.Action == Bury && !errors.Is(err, ErrConnectionLost): // the handler may have mistaken a lost connection
		a.fail(ctx, err, "the handler returned a permanent error")
	case errors.Is(cause, ErrStopping):
		a.interrupt(ctx)
	case errors.Is(cause, ErrExpired):
		a.recordAll(ctx, OutcomeExpired, a.failed(err), a.request(ledger.EventExpired, expiredData))
	case errors.Is(cause, ErrTimeout):
		a.fail(ctx, fmt.Errorf("timed out after %s: %w", k.Timeout, err), "")
	case !k.Once && isRepeatable(err): // an attempt that must not be repeated fails, or is buried
		k.warn("attempt will be repeated", "biz_id", string(a.task.Message.BizID), "error", err)
		a.endWith(OutcomeRetried, nil)
		k.Tasks.Redeliver(a.task, k.ackWait/2)
	default:
		a.fail(ctx, err, "")
	}
}

// policy returns the retry policy of a task: its own, or that of its kind.
func (k *Kind) policy(first ledger.Event) ledger.RetryPolicy {
	meta, err := ledger.ParseMeta(first.Meta)
	if err == nil && len(meta.Retry) == 0 {
		return k.Retry
	}
	var p ledger.RetryPolicy
	if err == nil {
		p, err = ledger.ParseRetryPolicy(meta.Retry)
	}
	if err != nil { // stored by a producer in SQL
		k.Logger.Warn(
			"invalid retry policy of a task; using that of its kind", "biz_id", string(first.BizID), "error", err,
		)
		return k.Retry
	}
	return p
}

// isRepeatable reports whether an attempt failed because of the ledger's database and not of its handler, so that it
// uses no attempt. A network error alone does not prove that: another system may have refused the connection.
func isRepeatable(err error) bool {
	return errors.Is(err, ErrConnectionLost) || errors.Is(err, ledger.ErrRetryTransaction) ||
		errors.Is(err, ledger.ErrUnavailable) || pgerr.Code(err) != "" && ledger.Retryable(err)
}
