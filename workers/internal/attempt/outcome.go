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

	"github.com/taskledger/taskledger/internal/eventdata"
	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/unexported"
	"github.com/taskledger/taskledger/ledger"
)

// Reasons for which a task is buried.
const (
	reasonUnsafe = "the handler did not mark its error as safe to retry"
	reasonEnded  = "the handler may have ended its transaction: its writes may be committed"
	reasonLost   = "its workers were lost one after the other"
)

// committed ends an attempt whose handler succeeded. err is the error of appending succeeded, otherwise e is the event.
func (a *Attempt) committed(e ledger.Event, err error) {
	switch {
	case err == nil:
		a.appended(e)
		a.record(OutcomeSucceeded, nil)
	case errors.Is(err, ledger.ErrTransactionEnded):
		ctx, cancel := a.kind.Operation()
		defer cancel()
		a.fail(ctx, err, reasonEnded)
	case errors.Is(err, ledger.ErrTransactionAborted), isRefused(err):
		a.conclude(nil, err)
	case ledger.IsConflict(err) || a.private: // fenced
		a.record(OutcomeSucceeded, err)
	default: // the outcome is unknown, and the head decides
		ctx, cancel := a.kind.Operation()
		defer cancel()
		if a.mayRepeat(ctx, err) {
			a.record(OutcomeSucceeded, err)
			return
		}
		a.fail(ctx, err, "")
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
	case d.HasNotBegun && (cause != nil || d.GivesBack):
		if !a.claimed && !a.hasPermit { // otherwise an event records it
			a.endWith(OutcomeInterrupted, nil)
		}
		a.GiveBack()
	case d.Action == Corrupt: // safe to retry: during a deploy another worker may decode them
		a.fail(ctx, err, "")
	case d.Action == Interrupt:
		a.recordAll(ctx, OutcomeInterrupted, a.afterStart(
			a.request(ledger.EventInterrupted, marshalReason(d.Reason, a.data())))...)
	case d.Action == Lose:
		a.lose(ctx, err)
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
	case !k.Once && !a.isElsewhere && isRepeatable(err): // an attempt that must not be repeated fails, or is buried
		if !a.mayRepeat(ctx, err) {
			a.fail(ctx, fmt.Errorf("repeated %d times in a row: %w", MaxRepeats, err), "")
			return
		}
		k.warn("attempt will be repeated", "biz_id", string(a.task.Message.BizID), "error", err)
		a.endWith(OutcomeRetried, nil)
		a.later(k.RepeatAfter(err))
	default:
		a.fail(ctx, err, "")
	}
}

// mayRepeat counts a repeat of the task and reports whether it needs no event yet. If it needs one, mayRepeat waits
// until the database is available, because the attempt itself may have ended its server processes.
func (a *Attempt) mayRepeat(ctx context.Context, err error) bool {
	k := a.kind
	if a.private || k.repeats.add(a.task.Message.BizID, err) <= MaxRepeats {
		return true
	}
	var delay loop.Backoff
	for ctx.Err() == nil {
		if k.db.Ping(ctx) == nil {
			break
		}
		_ = loop.Sleep(ctx, delay.Next())
	}
	a.isOverRepeated = true
	return false
}

// recorder alone appends the outcome of an attempt, calls the hooks, and ends the task or decides it again later. It
// is the part of an Attempt that stores the state of its task's events, and belongs to the attempt's owner.
type recorder struct {
	// Constant after New or NewPrivate.
	kind    *Kind
	task    *Task
	work    Work
	store   ledger.DB // where events of the task are read and appended
	private bool      // no other process can see the task: its first event is not committed

	// Owner, except version and claimed, which Attempt.mu guards until join.
	number     ledger.Attempt
	version    ledger.Version // the task's last event that this attempt has seen
	head       readHead
	claimed    bool // its start is recorded
	hasPermit  bool // it took the permits of its limits without an event
	wasRunning bool // the head was an event of a running attempt
	// isElsewhere: the handler's error did not come from its transaction, which is open and intact.
	isElsewhere bool
	// isOverRepeated: the outcome is recorded because the attempt was repeated too often; the count goes on.
	isOverRepeated bool
	beganAt        time.Time
	state          ledger.State   // after the last event that was appended here, or ""
	events         []ledger.Event // of the outcome, if they are committed and there are hooks
	err            error          // why it did not succeed
	outcome        Outcome
	outcomeErr     error
}

// readHead is the last event as read before the attempt, in the space that an Attempt has left.
type readHead struct {
	read     *Read
	version  int32
	attempt  int32
	shard    int16
	priority int16
}

// last returns the last event as it was read before the attempt.
func (rec *recorder) last() unexported.LastEvent {
	if rec.head.read == nil {
		return unexported.LastEvent{}
	}
	r := unexported.LastEvent{
		Incarnation: rec.head.read.Incarnation, State: string(ledger.StateAvailable), Version: rec.head.version,
		Attempt: rec.head.attempt, Shard: rec.head.shard, Priority: rec.head.priority,
		Partition: rec.head.read.Partition, OrderKey: rec.head.read.OrderKey,
		Position: int64(rec.task.Message.Position),
	}
	if rec.wasRunning || rec.claimed {
		r.State = string(ledger.StateRunning)
	}
	return r
}

// Elapsed returns how long the attempt has taken; 0 if it has not begun.
func (rec *recorder) Elapsed() time.Duration {
	if rec.beganAt.IsZero() {
		return 0
	}
	return time.Since(rec.beganAt)
}

// Newest returns the newest events of the task, oldest first, as this attempt sees them.
func (rec *recorder) Newest(ctx context.Context, o ledger.NewestOptions) ([]ledger.Event, error) {
	return ledger.NewestOf(ctx, rec.store, rec.task.Message.Key, o)
}

// Predecessors returns the predecessors of the task.
func (rec *recorder) Predecessors(ctx context.Context) ([]ledger.Task, error) {
	return ledger.Predecessors(ctx, rec.store, rec.task.Message.Key)
}

// record ends an attempt after its outcome was appended, or was not because of err. It calls the hooks, and ends the
// task or decides it again later.
func (rec *recorder) record(o Outcome, err error) {
	k := rec.kind
	switch {
	case err == nil:
		fault.Point(pointCommitted)
		rec.endWith(o, nil)
		k.Tasks.End(rec.task)
	case ledger.IsConflict(err) && !rec.private:
		rec.endWith(OutcomeFenced, err)
		k.Again(rec.task)
	default:
		k.warn("cannot record an outcome", "biz_id", string(rec.task.Message.BizID), "outcome", string(o), "error", err)
		rec.endWith(OutcomeRetried, err)
		rec.later(k.leaseTTL / 2)
	}
}

// recordAll appends the events of an outcome and records it.
func (rec *recorder) recordAll(ctx context.Context, o Outcome, requests ...ledger.AppendRequest) {
	rec.record(o, rec.append(ctx, requests...))
}

// endWith stores the outcome and calls the hooks.
func (rec *recorder) endWith(o Outcome, err error) {
	if o != OutcomeRetried && !rec.isOverRepeated {
		rec.kind.repeats.forget(rec.task.Message.BizID)
	}
	rec.outcome, rec.outcomeErr = o, err
	rec.work.Ended(End{
		Outcome: o, State: rec.state, Err: cmp.Or(rec.err, err), Began: rec.beganAt, Duration: rec.Elapsed(),
		Events: rec.events,
	})
}

// appended stores the state after an event of the attempt's outcome, and the event for the hooks if it is committed.
func (rec *recorder) appended(e ledger.Event) {
	rec.state = e.Type.State()
	switch {
	case rec.private:
		rec.version = e.Version // the caller returns it
	case rec.kind.NotifiesHooks:
		rec.events = append(rec.events, e)
	}
}

// started stores the state after the start of the attempt was recorded, and calls the hooks.
func (rec *recorder) started(e ledger.Event) {
	rec.state = e.Type.State()
	rec.work.Started(e)
}

// request returns the append of an event that follows the attempt's version.
func (rec *recorder) request(t ledger.EventType, data json.RawMessage) ledger.AppendRequest {
	return ledger.AppendRequest{
		Key: rec.task.Message.Key, Expected: rec.version, Type: t, Actor: rec.kind.id, Data: data,
	}
}

// succeeded returns the append of the succeeded event.
func (rec *recorder) succeeded() ledger.AppendRequest {
	return rec.request(ledger.EventSucceeded, rec.succeededData())
}

// succeededData returns the data of the succeeded event.
func (rec *recorder) succeededData() json.RawMessage {
	return marshalSucceeded(rec.kind.quotedID, rec.beganAt, rec.work.Result())
}

// failed returns the append of a failed event.
func (rec *recorder) failed(err error) ledger.AppendRequest {
	return rec.request(ledger.EventFailed, marshalFailed(rec.kind.describe(err), rec.data()))
}

// data returns the common data of all outcomes.
func (rec *recorder) data() eventdata.Outcome {
	return eventdata.Outcome{
		Worker: rec.kind.id, StartedAt: micros(rec.beganAt), DurationMS: float64(rec.Elapsed().Microseconds()) / 1000,
	}
}

// afterStart returns the append of an event that counts no attempt, preceded by this attempt's start unless it is
// recorded. Otherwise a release would use the attempt's number again.
func (rec *recorder) afterStart(r ledger.AppendRequest) []ledger.AppendRequest {
	if rec.claimed {
		return []ledger.AppendRequest{r}
	}
	return []ledger.AppendRequest{rec.request(ledger.EventStarted, rec.startData(nil)), r}
}

// append appends successive events in one transaction.
func (rec *recorder) append(ctx context.Context, requests ...ledger.AppendRequest) (err error) {
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
	if len(requests) == 1 || rec.private {
		err = each(rec.store)
	} else {
		err = pgx.BeginTxFunc(ctx, rec.kind.db, pgquery.Brief, func(tx pgx.Tx) error { return each(tx) })
	}
	if err != nil {
		return err
	}
	for _, e := range events {
		rec.appended(e)
	}
	return nil
}

// appendStart records the start, in a group with other attempts. If the answer is lost, it sends the request again
// alone. It does not wait for a transaction that has locked the task: many such starts would take all connections.
func (rec *recorder) appendStart(ctx context.Context) (ledger.Event, error) {
	r := rec.request(ledger.EventStarted, nil)
	if rec.kind.Once {
		r.Data = startedOnce
	}
	e, err := rec.kind.express.record(r, rec.last())
	if err != nil && !ledger.IsConflict(err) && !isRefused(err) && !pgerr.Is(err, pgerr.LockNotAvailable) {
		unexported.SetResent(&r) // worker IDs are unique, and a task is in flight once per worker
		e, err = ledger.Append(ctx, rec.kind.db, r)
	}
	return e, err
}

// unclaimed decides a task again whose start could not be recorded.
func (rec *recorder) unclaimed(err error) {
	k := rec.kind
	switch {
	case ledger.IsConflict(err): // another worker was first
		k.Again(rec.task)
		return
	case errors.Is(err, ledger.ErrStartLimit): // the dispatcher did not know of all that run
		k.returnLater(rec.task)
		return
	}
	k.warn("cannot record a start", "biz_id", string(rec.task.Message.BizID), "error", err)
	rec.later(k.leaseTTL / 2)
}

// later is [Kind.Later] for the task. A caller itself decides whether to try again.
func (rec *recorder) later(most time.Duration) {
	if rec.private {
		rec.kind.Tasks.End(rec.task)
		return
	}
	rec.kind.Later(rec.task, most)
}

// Later decides a task again, after a delay that grows each time, up to most. The task stays in flight: if its start is
// recorded here, no other worker continues it while this one lives.
func (k *Kind) Later(t *Task, most time.Duration) {
	delay := k.Tasks.Hold(t, most)
	go func() {
		_ = loop.Sleep(k.stopping, delay) // a worker that is stopping gives it back
		k.Again(t)
	}()
}

// returnLater gives back, after a delay that grows each time, a task that cannot start.
func (k *Kind) returnLater(t *Task) {
	delay := k.Tasks.Hold(t, maxReturnDelay)
	go func() {
		_ = loop.Sleep(k.stopping, delay)
		k.Tasks.GiveBack(t)
	}()
}

const maxReturnDelay = time.Second

// fail records a failed attempt and when it is repeated, by the handler's choice or by the policy. It buries the task
// if buryReason is not "" or its attempts are used up.
func (rec *recorder) fail(ctx context.Context, err error, buryReason string) {
	k := rec.kind
	task, readErr := rec.load(ctx)
	if readErr == nil && task.Version != rec.version {
		readErr = &ledger.ConflictError{
			Key: task.Key, Expected: rec.version, Found: task.Version, State: task.State,
		}
	}
	if readErr != nil {
		rec.record(OutcomeFailed, readErr)
		return
	}
	d := k.Errors.Decide(err)
	policy, number := k.policy(task, d.Retry), task.Failures+1
	if buryReason == "" && number >= policy.Limit() {
		buryReason = "attempts used up"
	}
	if buryReason != "" {
		failures, readErr := rec.Failures(ctx)
		if readErr != nil {
			rec.record(OutcomeFailed, readErr)
			return
		}
		failures = append(failures,
			eventdata.Failure{Attempt: rec.number, At: time.Now().UTC(), Message: shortMessage(err.Error())})
		failures = failures[max(0, len(failures)-MaxFailures):]
		rec.bury(ctx, burial{Reason: buryReason, Err: err, Errors: failures})
		return
	}
	k.Logger.WarnContext(
		ctx, "attempt failed", "biz_id", string(rec.task.Message.BizID), "attempt", int(rec.number), "error", err,
	)
	delay := policy.Delay(number, rand.Float64())
	if !d.HasRetry {
		rec.record(OutcomeFailed, rec.appendFailure(ctx, err, delay, time.Time{}))
		return
	}
	appendErr := rec.appendFailure(ctx, err, d.In, d.At)
	if isInvalid(appendErr) { // the handler chose an invalid time
		appendErr = rec.appendFailure(ctx, err, delay, time.Time{})
	}
	rec.record(OutcomeFailed, appendErr)
}

// load returns the task, at little cost however long its history is. If an event does not fold, the task has only the
// fields that a failure needs.
func (rec *recorder) load(ctx context.Context) (ledger.Task, error) {
	task, err := ledger.Load(ctx, rec.store, rec.task.Message.Key)
	var illegal *ledger.IllegalError
	if !errors.As(err, &illegal) {
		return task, err
	}
	first, err := ledger.ArgsEvent(ctx, rec.store, rec.task.Message.Key)
	if err != nil {
		return ledger.Task{}, err
	}
	last, err := rec.Newest(ctx, ledger.NewestOptions{Limit: 1})
	if err != nil {
		return ledger.Task{}, err
	}
	failures, err := rec.Failures(ctx)
	if err != nil {
		return ledger.Task{}, err
	}
	first.Version, first.Run = 1, 0 // a fold begins with version 1
	task, _ = ledger.Fold([]ledger.Event{first})
	task.Version, task.State, task.Failures = last[0].Version, last[0].Type.State(), len(failures)
	return task, nil
}

// appendFailure appends failed, to be released after a delay by the database's clock or at a point in time. Without
// either it is released in the same transaction.
func (rec *recorder) appendFailure(ctx context.Context, err error, delay time.Duration, at time.Time) error {
	r := rec.failed(err)
	switch {
	case !at.IsZero():
		r.At = at
	case delay > 0:
		r.In = delay
	default:
		return rec.append(ctx, r, rec.request(ledger.EventReleased, json.RawMessage(`{"reason":"retry"}`)))
	}
	return rec.append(ctx, r)
}

// bury records that a task is dead, after the failure that caused it.
func (rec *recorder) bury(ctx context.Context, b burial) {
	var requests []ledger.AppendRequest
	var e *eventdata.Error
	message := ""
	if b.Err != nil {
		described := rec.kind.describe(b.Err)
		e, message = &described, b.Err.Error()
		requests = append(requests, rec.failed(b.Err))
	}
	err := rec.append(ctx, append(requests, rec.request(ledger.EventBuried, marshalBuried(b, e, rec.data())))...)
	if err == nil {
		rec.kind.Logger.WarnContext(ctx, "task buried",
			"biz_id", string(rec.task.Message.BizID), "reason", b.Reason, "error", message)
	}
	rec.record(OutcomeBuried, err)
}

// buryVanished records that the outcome of an attempt is unknown.
func (rec *recorder) buryVanished() {
	ctx, cancel := rec.kind.Operation()
	defer cancel()
	reason := reasonUnknown
	if rec.version < rec.task.Started {
		reason = reasonUndone
	}
	rec.bury(ctx, burial{Reason: reason})
}

// buryUnsafe records a failure that must not be repeated. cause is the cause of the end of the handler's context, or
// nil.
func (rec *recorder) buryUnsafe(ctx context.Context, cause, err error) {
	reason := reasonUnsafe
	if cause != nil || errors.Is(err, ErrTimeout) {
		reason = reasonUnknown
	}
	rec.fail(ctx, err, reason)
}

// expire records that the deadline of a task has passed before this attempt began. A task that a lost worker had
// begun is given back first: a running task cannot expire.
func (rec *recorder) expire() {
	ctx, cancel := rec.kind.Operation()
	defer cancel()
	requests := []ledger.AppendRequest{rec.request(ledger.EventExpired, expiredData)}
	if rec.wasRunning {
		requests = append([]ledger.AppendRequest{rec.request(ledger.EventInterrupted, expiredData)}, requests...)
	}
	rec.recordAll(ctx, OutcomeExpired, requests...)
}

// interrupt records that the attempt was given back, which is not a failure.
func (rec *recorder) interrupt(ctx context.Context) {
	rec.recordAll(ctx, OutcomeInterrupted, rec.request(ledger.EventInterrupted, marshalReason("shutdown", rec.data())))
}

// lose records that the process that did the work of the attempt was lost. The task is buried after MaxLost such
// attempts in a row, or if the attempt must not be repeated.
func (rec *recorder) lose(ctx context.Context, err error) {
	if rec.kind.Once {
		rec.fail(ctx, err, reasonUnknown)
		return
	}
	o := ledger.NewestOptions{Types: interruptTypes, Limit: 1}
	newest, readErr := rec.Newest(ctx, o)
	if readErr != nil {
		rec.record(OutcomeInterrupted, readErr)
		return
	}
	lost := 1
	if len(newest) > 0 && newest[0].Type == ledger.EventInterrupted && newest[0].Attempt == rec.number-1 {
		var data eventdata.Interrupted
		if json.Unmarshal(newest[0].Data, &data) == nil { // else another program has written it
			lost += max(0, data.LostInARow)
		}
	}
	if lost >= rec.kind.MaxLost {
		rec.bury(ctx, burial{Reason: reasonLost, Lost: lost})
		return
	}
	rec.kind.Logger.WarnContext(ctx, "an attempt is lost; the task is given back",
		"biz_id", string(rec.task.Message.BizID), "attempt", int(rec.number), "error", err)
	outcome := rec.data()
	text, _ := json.Marshal(eventdata.Interrupted{ // strings, times and finite numbers
		Reason:     eventdata.Reason{Reason: printable.Storable(err.Error(), MaxMessage), Outcome: &outcome},
		LostInARow: lost,
	})
	rec.recordAll(ctx, OutcomeInterrupted, rec.afterStart(rec.request(ledger.EventInterrupted, text))...)
}

// interruptTypes are the types of interruptions, and of the events before the release or the next run of a finished
// task, whose attempts may have the same numbers.
var interruptTypes = []ledger.EventType{
	ledger.EventInterrupted, ledger.EventSucceeded, ledger.EventBuried, ledger.EventCancelled, ledger.EventExpired,
	ledger.EventDiscarded,
}

// snooze records that the task is postponed, which is not a failure. A negative duration and a time after the year
// 9998 are invalid, and count as failures.
//
// A snooze that is due within a second counts with those in a row before it. The first in a row may be due at once;
// each further one waits by the policy, because the handler would otherwise be called without end. taskledger.snooze
// applies the same rules.
func (rec *recorder) snooze(ctx context.Context, d Decision) {
	if d.At.IsZero() && d.In < 0 {
		rec.fail(ctx, fmt.Errorf("SnoozeFor must not be negative, got %s", d.In), "")
		return
	}
	wait := d.In
	if !d.At.IsZero() {
		wait = time.Until(d.At)
	}
	var before int
	outcome := rec.data()
	data := eventdata.Postponed{Reason: eventdata.Reason{Outcome: &outcome}}
	if wait < shortSnooze {
		var err error
		if before, err = rec.shortSnoozes(ctx); err != nil {
			rec.record(OutcomeSnoozed, err)
			return
		}
		data.ShortInARow = before + 1
	}
	if before > 0 && wait <= 0 {
		task, err := rec.load(ctx)
		if err != nil {
			rec.record(OutcomeSnoozed, err)
			return
		}
		d.In, d.At = max(shortSnooze, rec.kind.policy(task, nil).Delay(before, rand.Float64())), time.Time{}
		rec.kind.warn("a handler snoozes its task repeatedly until a time that is not in the future; it waits",
			"biz_id", string(rec.task.Message.BizID), "delay", d.In)
	}
	text, _ := json.Marshal(data) // strings, times and finite numbers
	r := rec.request(ledger.EventSnoozed, text)
	if r.At = d.At; r.At.IsZero() {
		r.In = max(d.In, time.Microsecond)
	}
	err := rec.append(ctx, r)
	if isInvalid(err) {
		rec.fail(ctx, fmt.Errorf("snooze: %w", err), "")
		return
	}
	rec.record(OutcomeSnoozed, err)
}

// shortSnooze is the duration below which snoozes in a row are counted.
const shortSnooze = time.Second

// snoozeTypes are the types of snoozes, and of the events before the release or the next run of a finished task, whose
// attempts may have the same numbers.
var snoozeTypes = []ledger.EventType{
	ledger.EventSnoozed, ledger.EventSucceeded, ledger.EventBuried, ledger.EventCancelled, ledger.EventExpired,
	ledger.EventDiscarded,
}

// shortSnoozes returns how many attempts in a row before this one ended with a short snooze.
func (rec *recorder) shortSnoozes(ctx context.Context) (int, error) {
	o := ledger.NewestOptions{Types: snoozeTypes, Limit: 1}
	newest, err := rec.Newest(ctx, o)
	if err != nil || len(newest) == 0 || newest[0].Type != ledger.EventSnoozed || newest[0].Attempt != rec.number-1 {
		return 0, err
	}
	var data eventdata.Postponed
	if json.Unmarshal(newest[0].Data, &data) != nil { // written by another program
		return 0, nil
	}
	return max(0, data.ShortInARow), nil
}

// policy returns the retry policy of a task: its own, or else the attempt's (nil: none), or else its kind's.
func (k *Kind) policy(t ledger.Task, attempts *ledger.RetryPolicy) ledger.RetryPolicy {
	if len(t.Retry) == 0 {
		if attempts != nil {
			return *attempts
		}
		return k.Retry
	}
	p, err := ledger.ParseRetryPolicy(t.Retry)
	if err != nil { // stored by a producer in SQL
		k.Logger.Warn(
			"invalid retry policy of a task; using its kind's policy", "biz_id", string(t.BizID), "error", err,
		)
		return k.Retry
	}
	return p
}

// RepeatAfter returns the delay after an error of the ledger's database: a short one if other connections may work.
func (k *Kind) RepeatAfter(err error) time.Duration {
	if k.LeaveStandby(err) {
		return reconnectEvery
	}
	k.LeavePolicies(err)
	return k.leaseTTL / 2
}

// isRepeatable reports whether an attempt failed because of the ledger's database and not of its handler, so that it
// uses no attempt. A network error alone is no proof: another system may have refused the connection.
func isRepeatable(err error) bool {
	return errors.Is(err, ErrConnectionLost) || errors.Is(err, ledger.ErrRetryTransaction) ||
		errors.Is(err, ledger.ErrUnavailable) || pgerr.Code(err) != "" && ledger.Retryable(err)
}
