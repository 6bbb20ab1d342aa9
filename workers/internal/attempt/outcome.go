package attempt

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/atmostonce"
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

// fail records a failed attempt and when it is repeated, by the handler's choice or by the policy. It buries the task
// if buryReason is not "" or its attempts are used up.
func (a *Attempt) fail(ctx context.Context, err error, buryReason string) {
	k := a.kind
	history, readErr := a.History(ctx)
	if readErr != nil {
		a.record(OutcomeFailed, readErr)
		return
	}
	if last := history[len(history)-1]; last.Version != a.version {
		a.record(OutcomeFailed, &ledger.ConflictError{
			Key: last.Key, Expected: a.version, Found: last.Version, State: last.Type.State(),
		})
		return
	}
	policy, failures := k.policy(history[0]), FailuresIn(history)
	if buryReason == "" && len(failures)+1 >= policy.Limit() {
		buryReason = "attempts used up"
	}
	if buryReason != "" {
		failures = append(
			failures, Failure{Attempt: a.number, At: time.Now().UTC(), Message: shortMessage(err.Error())},
		)
		a.bury(ctx, burial{Reason: buryReason, Err: err, Errors: failures})
		return
	}
	k.Logger.WarnContext(
		ctx, "attempt failed", "biz_id", string(a.task.Message.BizID), "attempt", int(a.number), "error", err,
	)
	delay := policy.Delay(len(failures)+1, rand.Float64())
	d := k.Errors.Decide(err)
	if !d.HasRetry {
		a.record(OutcomeFailed, a.appendFailure(ctx, err, delay, time.Time{}))
		return
	}
	appendErr := a.appendFailure(ctx, err, d.In, d.At)
	if isInvalid(appendErr) { // the handler chose an invalid time
		appendErr = a.appendFailure(ctx, err, delay, time.Time{})
	}
	a.record(OutcomeFailed, appendErr)
}

// appendFailure appends failed, to be released after a delay by the database's clock or at a point in time. Without
// either it is released in the same transaction.
func (a *Attempt) appendFailure(ctx context.Context, err error, delay time.Duration, at time.Time) error {
	r := a.failed(err)
	switch {
	case !at.IsZero():
		r.At = at
	case delay > 0:
		r.After = delay
	default:
		return a.append(ctx, r, a.request(ledger.EventReleased, json.RawMessage(`{"reason":"retry"}`)))
	}
	return a.append(ctx, r)
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

// bury records that a task is dead, after the failure that caused it.
func (a *Attempt) bury(ctx context.Context, b burial) {
	var requests []ledger.AppendRequest
	var e *errorData
	message := ""
	if b.Err != nil {
		described := a.kind.describe(b.Err)
		e, message = &described, b.Err.Error()
		requests = append(requests, a.failed(b.Err))
	}
	err := a.append(ctx, append(requests, a.request(ledger.EventBuried, marshalBuried(b, e, a.data())))...)
	if err == nil {
		a.kind.Logger.WarnContext(ctx, "task buried",
			"biz_id", string(a.task.Message.BizID), "reason", b.Reason, "error", message)
	}
	a.record(OutcomeBuried, err)
}

// buryVanished records that the outcome of an attempt is unknown.
func (a *Attempt) buryVanished() {
	ctx, cancel := a.kind.Operation()
	defer cancel()
	a.bury(ctx, burial{Reason: atmostonce.ReasonUnknown})
}

// buryUnsafe records a failure that must not be repeated. cause is the cause of the end of the handler's context, or
// nil.
func (a *Attempt) buryUnsafe(ctx context.Context, cause, err error) {
	reason := reasonUnsafe
	if cause != nil {
		reason = atmostonce.ReasonUnknown
	}
	a.fail(ctx, err, reason)
}

// expire records that the deadline of a task has passed before this attempt began. A task that a lost worker had
// begun is given back first: a running task cannot expire.
func (a *Attempt) expire() {
	ctx, cancel := a.kind.Operation()
	defer cancel()
	requests := []ledger.AppendRequest{a.request(ledger.EventExpired, expiredData)}
	if a.wasRunning {
		requests = append([]ledger.AppendRequest{a.request(ledger.EventInterrupted, expiredData)}, requests...)
	}
	a.recordAll(ctx, OutcomeExpired, requests...)
}

// interrupt records that the attempt was given back, which is not a failure.
func (a *Attempt) interrupt(ctx context.Context) {
	a.recordAll(ctx, OutcomeInterrupted, a.request(ledger.EventInterrupted, marshalReason("shutdown", a.data())))
}

// snooze records that the task is postponed, which is not a failure. A time after the year 9998 is invalid, and
// counts as a failure.
func (a *Attempt) snooze(ctx context.Context, d Decision) {
	r := a.request(ledger.EventSnoozed, marshalReason("", a.data()))
	if r.At = d.At; r.At.IsZero() {
		r.After = max(d.In, time.Microsecond)
	}
	err := a.append(ctx, r)
	if isInvalid(err) {
		a.fail(ctx, fmt.Errorf("snooze: %w", err), "")
		return
	}
	a.record(OutcomeSnoozed, err)
}

// recordAll appends the events of an outcome and records it.
func (a *Attempt) recordAll(ctx context.Context, o Outcome, requests ...ledger.AppendRequest) {
	a.record(o, a.append(ctx, requests...))
}

// record ends an attempt after its outcome was appended, or not because of err. It calls the hooks and answers the
// message.
func (a *Attempt) record(o Outcome, err error) {
	k := a.kind
	switch {
	case err == nil:
		fault.Point(pointCommitted)
		a.endWith(o, nil)
		k.Tasks.Answer(a.task, stream.AckAnswer)
	case ledger.IsConflict(err) && !a.private:
		a.endWith(OutcomeFenced, err)
		k.Again(a.task)
	default:
		k.warn("cannot record an outcome", "biz_id", string(a.task.Message.BizID), "outcome", string(o), "error", err)
		a.endWith(OutcomeRetried, err)
		k.Tasks.Redeliver(a.task, k.ackWait/2)
	}
}

// endWith stores the outcome and calls the hooks.
func (a *Attempt) endWith(o Outcome, err error) {
	a.outcome, a.outcomeErr = o, err
	a.work.Ended(End{Outcome: o, State: a.state, Err: cmp.Or(a.err, err), Began: a.beganAt, Duration: a.Elapsed()})
}

// appended stores the state after an event of the attempt, and calls the hooks if it is committed.
func (a *Attempt) appended(e ledger.Event) {
	a.state = e.Type.State()
	if a.private {
		a.version = e.Version // the caller returns it
		return
	}
	a.work.Appended(e)
}

// data returns the common data of all outcomes.
func (a *Attempt) data() outcomeData {
	return outcomeData{
		Worker: a.kind.id, StartedAt: a.beganAt.UTC(), DurationMS: float64(a.Elapsed().Microseconds()) / 1000,
	}
}

// succeeded returns the append of the succeeded event.
func (a *Attempt) succeeded() ledger.AppendRequest {
	return a.request(ledger.EventSucceeded, marshalSucceeded(a.kind.quotedID, a.beganAt, a.work.Result()))
}

// failed returns the append of a failed event.
func (a *Attempt) failed(err error) ledger.AppendRequest {
	return a.request(ledger.EventFailed, marshalFailed(a.kind.describe(err), a.data()))
}

// request returns the append of an event that follows the attempt's version.
func (a *Attempt) request(t ledger.EventType, data json.RawMessage) ledger.AppendRequest {
	return ledger.AppendRequest{Key: a.task.Message.Key, Expected: a.version, Type: t, Actor: a.kind.id, Data: data}
}

// afterStart returns the append of an event that counts no attempt, preceded by the start of this attempt unless that
// is recorded. Otherwise a release would use its number again.
func (a *Attempt) afterStart(r ledger.AppendRequest) []ledger.AppendRequest {
	if a.claimed {
		return []ledger.AppendRequest{r}
	}
	return []ledger.AppendRequest{a.request(ledger.EventStarted, nil), r}
}

// append appends successive events in one transaction.
func (a *Attempt) append(ctx context.Context, requests ...ledger.AppendRequest) (err error) {
	events := make([]ledger.Event, len(requests))
	each := func(db ledger.DB) (err error) {
		for i, r := range requests {
			r.Expected += ledger.Version(i)
			if events[i], err = ledger.Append(ctx, db, r); err != nil {
				return err
			}
		}
		return nil
	}
	if len(requests) == 1 || a.private {
		err = each(a.store)
	} else {
		options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted}
		err = pgx.BeginTxFunc(ctx, a.kind.db, options, func(tx pgx.Tx) error { return each(tx) })
	}
	if err != nil {
		return err
	}
	for _, e := range events {
		a.appended(e)
	}
	return nil
}
