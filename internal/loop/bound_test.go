package loop_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/taskledger/taskledger/internal/loop"
)

// A function has all the time until its context is done, and its grace after that.
func TestBound(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for name, test := range map[string]struct {
		f       func(ctx context.Context) error
		want    error
		returns time.Duration // the context is done after an hour
	}{
		"returns before":  {f: func(context.Context) error { return failed }, want: failed},
		"ends by goexit":  {f: func(context.Context) error { runtime.Goexit(); return nil }, want: loop.ErrGoexit},
		"returns with it": {f: func(ctx context.Context) error { <-ctx.Done(); return nil }, returns: time.Hour},
		"returns in the grace": {
			f:       func(ctx context.Context) error { <-ctx.Done(); time.Sleep(time.Second); return failed },
			want:    failed,
			returns: time.Hour + time.Second,
		},
		"returns later": {
			f:       func(ctx context.Context) error { <-ctx.Done(); time.Sleep(time.Hour); return nil },
			want:    loop.ErrAbandoned,
			returns: time.Hour + loop.Grace,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				begun := time.Now()
				err := loop.Bound(ctx, loop.Grace, func() error { return test.f(ctx) })
				if !errors.Is(err, test.want) || time.Since(begun) != test.returns {
					t.Errorf("returned %v after %s", err, time.Since(begun))
				}
				time.Sleep(2 * time.Hour) // a function that goes on ends too
			})
		})
	}
}
