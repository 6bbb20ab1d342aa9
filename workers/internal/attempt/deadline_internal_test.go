package attempt

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Attempts that share a deadline get all of their time, and hardly more, even if others end before. The end of the
// pool ends them too.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const d = 10 * time.Second
		work, end := context.WithCancelCause(t.Context())
		enter := enterDeadlines()
		var attempts sync.WaitGroup
		for i := range 100 {
			attempts.Go(func() {
				time.Sleep(time.Duration(i) * 7 * time.Millisecond)
				begun := time.Now()
				ctx, leave := enter(work, d)
				defer leave()
				if i%3 == 0 { // a quick attempt
					time.Sleep(time.Millisecond)
					if ctx.Err() != nil {
						t.Errorf("%d: ended at once: %v", i, context.Cause(ctx))
					}
					return
				}
				child, cancel := context.WithCancel(ctx)
				defer cancel()
				<-child.Done()
				if took := time.Since(begun); took < d || took > d+d/100 {
					t.Errorf("%d: ended after %s", i, took)
				}
				if !errors.Is(child.Err(), context.DeadlineExceeded) || !errors.Is(context.Cause(child), ErrTimeout) {
					t.Errorf("%d: ended by %v, %v", i, child.Err(), context.Cause(child))
				}
			})
		}
		attempts.Wait()
		ctx, leave := enter(work, d)
		end(ErrStopping)
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), ErrStopping) {
			t.Errorf("ended by %v", context.Cause(ctx))
		}
		leave()
	})
}

// BenchmarkDeadlines measures the cost of a deadline for a quick attempt, shared and not.
func BenchmarkDeadlines(b *testing.B) {
	work, end := context.WithCancel(b.Context())
	defer end()
	enter := enterDeadlines()
	for _, shared := range []bool{true, false} {
		b.Run(fmt.Sprintf("shared=%t", shared), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var ctx context.Context
				var leave context.CancelFunc
				if shared {
					ctx, leave = enter(work, 15*time.Minute)
				} else {
					ctx, leave = context.WithDeadlineCause(work, time.Now().Add(15*time.Minute), ErrTimeout)
				}
				_, cancel := context.WithCancelCause(ctx)
				cancel(nil)
				leave()
			}
		})
	}
}

// enterDeadlines returns functions that enter and leave deadlines of one kind.
func enterDeadlines() func(work context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ds := &deadlines{}
	return func(work context.Context, d time.Duration) (context.Context, context.CancelFunc) {
		c := ds.enter(work, time.Now(), d)
		return c, func() { ds.leave(c) }
	}
}
