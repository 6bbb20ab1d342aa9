package loop_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/taskledger/taskledger/internal/loop"
)

// The first error ends the others, is the cause of their end, and is returned after their end.
func TestTogether(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for name, test := range map[string]struct {
		f    func(ctx context.Context) error // is the first that ends, after a second
		want error
		text string
	}{
		"an error":       {f: func(context.Context) error { return failed }, want: failed},
		"goexit":         {f: func(context.Context) error { runtime.Goexit(); return nil }, want: loop.ErrGoexit},
		"a panic":        {f: func(context.Context) error { panic("broken") }, text: "panic: broken\n"},
		"a nil function": {f: nil, text: "panic: runtime error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				var causes []error
				err := loop.Together(t.Context(),
					func(ctx context.Context) error { time.Sleep(time.Second); return test.f(ctx) },
					func(ctx context.Context) error {
						<-ctx.Done()
						causes = append(causes, context.Cause(ctx))
						time.Sleep(time.Hour)
						return errors.New("a later error")
					},
					func(context.Context) error { return nil },
				)
				if err == nil || test.want != nil && !errors.Is(err, test.want) ||
					!strings.HasPrefix(err.Error(), test.text) {
					t.Errorf("returned %v", err)
				}
				if !slices.Equal(causes, []error{err}) {
					t.Errorf("the context ended with %v", causes)
				}
				if after := time.Since(begun); after != time.Second+time.Hour {
					t.Errorf("returned after %s", after)
				}
			})
		})
	}
}

// Without an error, all functions return by themselves, and their context is done afterwards.
func TestTogetherWithoutErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		stopped := errors.New("stopped")
		time.AfterFunc(time.Hour, func() { cancel(stopped) })
		var inner context.Context
		err := loop.Together(ctx,
			func(ctx context.Context) error { return nil },
			func(ctx context.Context) error {
				time.Sleep(time.Minute)
				inner = ctx
				return ctx.Err() // the end of another function does not end it
			},
			func(ctx context.Context) error {
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), stopped) {
					t.Errorf("the context ended with %v", context.Cause(ctx))
				}
				return nil
			},
		)
		if err != nil || inner.Err() == nil {
			t.Errorf("returned %v; the context ended with %v", err, inner.Err())
		}
		if err := loop.Together(t.Context()); err != nil {
			t.Errorf("no function: %v", err)
		}
	})
}
