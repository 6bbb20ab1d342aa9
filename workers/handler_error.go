package workers

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/taskledger/taskledger/internal/remote"
	"github.com/taskledger/taskledger/workers/internal/attempt"
)

// retryError is the error of a handler that chooses when its task is tried again, see [RetryIn] and [RetryAt]. Like
// the other errors here it may be wrapped; the pool finds it with errors.As.
type retryError struct {
	Err error         // why the attempt failed; may be nil
	In  time.Duration // after the failure is recorded, by the database's clock, if At is zero
	At  time.Time
}

// RetryIn returns an error that fails an attempt and repeats it after d, overruling the delay of the retry policy. 0
// or less means at once. It uses an attempt, and the policy's limit applies.
func RetryIn(d time.Duration, err error) error { return &retryError{Err: err, In: d} }

// RetryAt is [RetryIn] for a point in time, for example from a Retry-After header. A past one means at once. From the
// last microsecond of the year 9998 on it is invalid, and the policy decides.
func RetryAt(t time.Time, err error) error { return &retryError{Err: err, At: t} }

func (e *retryError) Error() string { return messageOr(e.Err, "the handler requested a retry") }

// Unwrap returns Err.
func (e *retryError) Unwrap() error { return e.Err }

// permanentError is the error of a handler for which retrying is useless, see [Permanent].
type permanentError struct {
	Err error // why the attempt failed; may be nil
}

// Permanent returns an error that fails an attempt and buries its task, however many attempts are left.
func Permanent(err error) error { return &permanentError{Err: err} }

func (e *permanentError) Error() string { return messageOr(e.Err, "retrying is useless") }

// Unwrap returns Err.
func (e *permanentError) Unwrap() error { return e.Err }

// snoozeError is the error of a handler that postpones its task, see [SnoozeFor] and [SnoozeUntil].
type snoozeError struct {
	For   time.Duration // after the snooze is recorded, by the database's clock, if Until is zero
	Until time.Time
}

// SnoozeFor returns an error that postpones a task for d. It is not a failure and uses no attempt, however often it
// is returned. The handler's writes in its transaction are rolled back. 0 means at once; from the second time in a row
// on, the task waits as after a failure, at least a second. A negative d is invalid, and the attempt fails.
func SnoozeFor(d time.Duration) error { return &snoozeError{For: d} }

// SnoozeUntil is [SnoozeFor] for a point in time. A past one is as SnoozeFor(0). From the last microsecond of the year
// 9998 on it is invalid, and the attempt fails.
func SnoozeUntil(t time.Time) error { return &snoozeError{Until: t} }

func (e *snoozeError) Error() string {
	if !e.Until.IsZero() {
		return fmt.Sprintf("snoozed until %s", e.Until.UTC().Format(time.RFC3339Nano))
	}
	return fmt.Sprintf("snoozed for %s", e.For)
}

// discardError is the error of a handler whose task need not be done any more, see [Discard].
type discardError struct {
	Reason string
}

// Discard returns an error that ends a task with neither success nor failure, for example because its order was
// withdrawn. The handler's writes in its transaction are rolled back. The task is discarded; an operator may still
// release it.
func Discard(reason string) error { return &discardError{Reason: reason} }

func (e *discardError) Error() string {
	if e.Reason == "" {
		return "discarded by its handler"
	}
	return "discarded: " + e.Reason
}

// safeToRetryError is the error of an AtMostOnce handler that had no effect, see
// [SafeToRetry].
type safeToRetryError struct {
	Err error // why the attempt failed; may be nil
}

// SafeToRetry returns an error that fails an attempt that had no effect, so that its task may be tried again by its
// retry policy. It is for AtMostOnce kinds, whose tasks are buried otherwise; other kinds do not need it.
func SafeToRetry(err error) error { return &safeToRetryError{Err: err} }

func (e *safeToRetryError) Error() string { return messageOr(e.Err, "retrying is safe") }

// Unwrap returns Err.
func (e *safeToRetryError) Unwrap() error { return e.Err }

// invalidArgsError is the error of a handler that cannot decode its args, see [InvalidArgs].
type invalidArgsError struct {
	Err error
}

// InvalidArgs returns an error that fails an attempt, because its args do not decode. The retry policy applies, even
// to an AtMostOnce task, so the handler must not have had an effect. A kind whose args are of a Go type returns it
// automatically; it is for handlers and middleware that decode.
func InvalidArgs(err error) error { return &invalidArgsError{Err: err} }

func (e *invalidArgsError) Error() string { return messageOr(e.Err, "the args do not decode") }

// Unwrap returns Err.
func (e *invalidArgsError) Unwrap() error { return e.Err }

func messageOr(err error, otherwise string) string {
	if err == nil {
		return otherwise
	}
	return err.Error()
}

// vocabulary translates the errors of handlers for an attempt.
type vocabulary struct{}

// Decide implements [attempt.Errors].
func (vocabulary) Decide(err error) attempt.Decision {
	var (
		args      *invalidArgsError
		panicked  *PanicError
		snooze    *snoozeError
		discard   *discardError
		permanent *permanentError
		retry     *retryError
		safe      *safeToRetryError
		reported  *remote.Error
	)
	isSnooze, isDiscard, isPermanent := errors.As(err, &snooze), errors.As(err, &discard), errors.As(err, &permanent)
	d := attempt.Decision{
		Action: attempt.Fail, HasRetry: errors.As(err, &retry), HasNotBegun: errors.Is(err, ErrNotBegun),
	}
	d.IsExplicit = isSnooze || isDiscard || isPermanent || d.HasRetry || errors.As(err, &safe)
	if d.HasRetry {
		d.In, d.At = retry.In, retry.At
	}
	if errors.As(err, &reported) {
		d.Retry = reported.Retry
	}
	switch {
	case errors.Is(err, errNotTaken):
		d.HasNotBegun, d.GivesBack = true, true
	case errors.Is(err, errReleased):
		d.Action, d.Reason = attempt.Interrupt, "shutdown"
	case errors.Is(err, errLost):
		d.Action = attempt.Lose
	case errors.As(err, &args):
		d.Action = attempt.Corrupt
	case errors.As(err, &panicked):
		d.Action = attempt.Panic
	case isSnooze:
		d.Action, d.In, d.At = attempt.Snooze, snooze.For, snooze.Until
	case isDiscard:
		d.Action, d.Reason = attempt.Discard, discard.Reason
	case isPermanent:
		d.Action = attempt.Bury
	}
	return d
}

// Describe implements [attempt.Errors]. It returns the type of the outermost error that is not a mere wrapper, so
// wrapping does not change an error's type.
func (vocabulary) Describe(err error) (errorType, stack string) {
	var panicked *PanicError
	if errors.As(err, &panicked) {
		return fmt.Sprintf("panic(%T)", panicked.Value), string(panicked.Stack)
	}
	var reported *remote.Error
	if errors.As(err, &reported) {
		return reported.Type, reported.Stack
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return reflect.TypeOf(err).String(), ""
		}
		switch err.(type) { //nolint:errorlint // the loop unwraps, and each error of the chain counts for itself
		case *retryError, *permanentError, *safeToRetryError, *invalidArgsError:
		default:
			if reflect.TypeOf(err).String() != "*fmt.wrapError" {
				return reflect.TypeOf(err).String(), ""
			}
		}
		err = inner
	}
}
