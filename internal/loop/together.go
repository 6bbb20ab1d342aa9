package loop

import (
	"context"
	"sync"
)

// Together runs functions at the same time, each in its own goroutine, and returns after all of them have returned.
// The first error is the result and the cause with which the others' context is done. A panic and runtime.Goexit are
// errors, as for [Guard].
func Together(ctx context.Context, fns ...func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var first error
	var once sync.Once
	var group sync.WaitGroup
	for _, f := range fns {
		group.Add(1)
		start(func() error { return f(ctx) }, func(err error) {
			defer group.Done()
			if err != nil {
				once.Do(func() { first = err; cancel(err) })
			}
		})
	}
	group.Wait()
	return first
}
