package loop

import (
	"context"
	"errors"
	"time"
)

// Grace is how long a user's function may continue after its context is done.
const Grace = 5 * time.Second

// ErrAbandoned is the error of a function that has not returned in time after its context was done.
var ErrAbandoned = errors.New("the function has not returned in time after its context was done")

// Bound calls f in its own goroutine and returns the error of f, or [ErrGoexit]. If f has not returned within grace
// after ctx is done, Bound returns [ErrAbandoned], and f goes on without it.
func Bound(ctx context.Context, grace time.Duration, f func() error) error {
	returned := make(chan error, 1)
	go func() {
		err := ErrGoexit // unless f returns
		defer func() { returned <- err }()
		err = f()
	}()
	select {
	case err := <-returned:
		return err
	case <-ctx.Done():
	}
	timeout := time.NewTimer(grace)
	defer timeout.Stop()
	select {
	case err := <-returned:
		return err
	case <-timeout.C:
		return ErrAbandoned
	}
}
