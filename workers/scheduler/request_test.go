package scheduler

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A loop makes no pass while polls find nothing to do for it. It makes one at once if they do, and within a second if
// the polls stop.
func TestRequestAwaitsPolls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRequest()
		poll := func(hasWork bool, n int) {
			for range n {
				time.Sleep(maxQuiet)
				r.report(hasWork)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		passed := make(chan time.Time)
		go func() {
			for {
				r.await(ctx)
				select {
				case passed <- time.Now():
				case <-ctx.Done():
					return
				}
			}
		}()
		begin := time.Now()
		if first := (<-passed).Sub(begin); first != unasked {
			t.Errorf("the first pass without polls after %s, want %s", first, unasked)
		}
		poll(false, 1000)
		select {
		case <-passed:
			t.Error("a pass without work")
		default:
		}
		poll(true, 1)
		if at := <-passed; !at.Equal(time.Now()) {
			t.Error("no pass at once although a poll has found work")
		}
		<-passed
		if since := time.Since(*r.polled.Load()); since != unasked {
			t.Errorf("a pass %s after the last poll, want %s", since, unasked)
		}
	})
}
