package workers

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/atmostonce"
)

// reasonUnsafe is why a task whose handler may run once is buried after a failure.
const reasonUnsafe = "its handler did not say that trying again is safe"

// RegisterAtMostOnce adds a kind whose handler has effects outside of the database that must not
// happen twice, and that the outside system cannot recognize. The start of each attempt is
// committed before its handler runs. An attempt that vanishes, with its process or because its
// outcome cannot be recorded, or that is told to stop and does, may have had its effect: its task
// is buried with the reason "unknown outcome", for a person to look and to release.
//
// A handler that fails is buried too, unless it says that trying again is safe, by an error of
// [SafeToRetry], [RetryIn] or [RetryAt]; then the retry policy holds. [SnoozeFor] and
// [SnoozeUntil] say so as well. In everything else it is like [RegisterAtLeastOnce].
func RegisterAtMostOnce[A any](p *Pool, k ledger.TypedKind[A], handler func(ctx context.Context, job *Job, args A) error, c *KindConfig) error {
	return p.register(k.Name(), AtMostOnce, c, c.wrap(func(ctx context.Context, _ pgx.Tx, job *Job, payload []byte) error {
		args, err := k.Decode(payload)
		if err != nil {
			return &argsError{err}
		}
		return handler(ctx, job, args)
	}))
}

// onceOnly turns what is to be done about a task of an AtMostOnce kind: it runs when its start
// is on record, and one that has begun does not begin again.
func (v verdict) onceOnly() verdict {
	switch v {
	case run:
		return claimAndRun
	case resume, takeOver:
		return vanished
	}
	return v
}

// buryVanished records that nobody knows what an attempt did.
func (k *kind) buryVanished(a *attempt) {
	ctx, cancel := k.pool.operation()
	defer cancel()
	k.bury(ctx, a, buriedData{Reason: atmostonce.ReasonUnknown})
}

// saysOn reports whether a handler has said how its task goes on: that it may run again, or that
// it never needs to.
func saysOn(err error) bool {
	var (
		safe      *SafeToRetryError
		retry     *RetryError
		snooze    *SnoozeError
		discard   *DiscardError
		permanent *PermanentError
	)
	return errors.As(err, &safe) || errors.As(err, &retry) || errors.As(err, &snooze) || errors.As(err, &discard) || errors.As(err, &permanent)
}

// buryUnsafe records a failure that must not be repeated: cause is why the handler was told to
// stop, nil if it was not.
func (k *kind) buryUnsafe(ctx context.Context, a *attempt, cause, err error) {
	reason := reasonUnsafe
	if cause != nil {
		reason = atmostonce.ReasonUnknown
	}
	k.fail(ctx, a, err, reason)
}

// claimOnce records the start of an attempt that nobody may repeat. If the answer is lost, the
// request is sent once more: only who knows that its start is on record may run the handler.
func (k *kind) claimOnce(ctx context.Context, a *attempt) (ledger.Event, error) {
	r := a.request(ledger.EventStarted, atmostonce.StartedData)
	e, err := ledger.Append(ctx, k.pool.config.DB, r)
	if err != nil && !ledger.IsConflict(err) && !refused(err) {
		r.Resent = true // nobody else has this worker's name, and it has the task in hand once
		e, err = ledger.Append(ctx, k.pool.config.DB, r)
	}
	return e, err
}
