package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
)

// conclude ends an attempt that did not succeed: err is what its handler returned (nil if it
// returned nil too late), cause why its context was cancelled, nil if it was not.
func (k *kind) conclude(a *attempt, cause, err error) {
	ctx, cancel := k.pool.operation()
	defer cancel()
	if err == nil {
		err = cause
	}
	a.err = err
	var (
		args      *argsError
		panicked  *PanicError
		snooze    *SnoozeError
		discard   *DiscardError
		permanent *PermanentError
	)
	switch {
	case a.lost || errors.Is(cause, ErrFenced):
		k.ended(a, OutcomeFenced, ErrFenced)
		k.again(a.held)
	case errors.Is(err, errNotReceived):
		if !a.claimed { // else its outcome is recorded
			a.after(OutcomeInterrupted, nil)
		}
		k.giveBack(a)
	case errors.As(err, &args):
		k.fail(ctx, a, args.err, "its args do not decode")
	case k.guarantee == AtMostOnce && a.entered.Load() && !saysOn(err):
		k.buryUnsafe(ctx, a, cause, err)
	case errors.As(err, &panicked):
		k.fail(ctx, a, err, "")
	case errors.As(err, &snooze):
		k.snooze(ctx, a, snooze)
	case errors.As(err, &discard):
		k.discard(ctx, a, discard)
	case errors.As(err, &permanent) && !errors.Is(err, errConnectionLost): // which it may have taken for the task's fault
		k.fail(ctx, a, err, "its handler says that trying again is useless")
	case errors.Is(cause, ErrStopping):
		k.interrupt(ctx, a)
	case errors.Is(cause, ErrExpired):
		k.failedTooLate(ctx, a, err)
	case errors.Is(cause, ErrTimeout):
		k.fail(ctx, a, fmt.Errorf("timed out after %s: %w", k.config.Timeout, err), "")
	case k.guarantee != AtMostOnce && repeatable(err): // what has begun once fails, or is buried
		k.warn("attempt will be repeated", "biz_id", string(a.job.BizID), "error", err)
		k.ended(a, OutcomeRetried, nil)
		k.settle(a.held, nakAfter(k.retryDelay(a.held)))
	default:
		k.fail(ctx, a, err, "")
	}
}

// repeatable reports whether an attempt ended through the ledger's database and not through its
// handler: nobody's fault, and no attempt used. A network error as such proves nothing: it may be
// the partner's who refuses the connection, and that is a failure.
func repeatable(err error) bool {
	var pg *pgconn.PgError
	return errors.Is(err, errConnectionLost) || errors.Is(err, ledger.ErrRetryTransaction) || errors.Is(err, ledger.ErrUnavailable) ||
		errors.As(err, &pg) && ledger.Retryable(err)
}

// reasonData is the data of an outcome that is neither success nor failure.
type reasonData struct {
	Reason string `json:"reason,omitempty"`
	outcomeData
}

func (a *attempt) reason(text string) json.RawMessage {
	data, _ := json.Marshal(reasonData{printable.Storable(text, maxMessage), a.data()}) // strings, a time and a finite number
	return data
}

// interrupt records that the attempt was given back. It is not a failure.
func (k *kind) interrupt(ctx context.Context, a *attempt) {
	k.recorded(a, OutcomeInterrupted, a.appendAll(ctx, a.request(ledger.EventInterrupted, a.reason("shutdown"))))
}

// snooze records that the task is put off. It is not a failure, unless it is for ever.
func (k *kind) snooze(ctx context.Context, a *attempt, s *SnoozeError) {
	r := a.request(ledger.EventSnoozed, a.reason(""))
	if r.At = s.Until; r.At.IsZero() {
		r.After = max(s.For, time.Microsecond)
	}
	err := a.appendAll(ctx, r)
	if isInvalid(err) {
		k.fail(ctx, a, fmt.Errorf("the handler put its task off: %w", err), "")
		return
	}
	k.recorded(a, OutcomeSnoozed, err)
}

// discard records that the task need not be done.
func (k *kind) discard(ctx context.Context, a *attempt, d *DiscardError) {
	k.recorded(a, OutcomeDiscarded, a.appendAll(ctx, a.startedBefore(a.request(ledger.EventDiscarded, a.reason(d.Reason)))...))
}

// startedBefore returns an event that counts no attempt, with the start of this one before it
// unless that is on record: else its number would be given out again after a release.
func (a *attempt) startedBefore(r ledger.AppendRequest) []ledger.AppendRequest {
	if a.claimed {
		return []ledger.AppendRequest{r}
	}
	return []ledger.AppendRequest{a.request(ledger.EventStarted, nil), r}
}

// appendAll appends events that follow each other, in one transaction.
func (a *attempt) appendAll(ctx context.Context, requests ...ledger.AppendRequest) (err error) {
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
	if db := a.db(); len(requests) == 1 || a.caller != nil {
		err = each(db)
	} else {
		err = pgx.BeginTxFunc(ctx, a.kind.pool.config.DB, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error { return each(tx) })
	}
	if err != nil {
		return err
	}
	for _, e := range events {
		a.appended(e)
	}
	return nil
}

func isInvalid(err error) bool {
	var invalid *ledger.InvalidError
	return errors.As(err, &invalid)
}
