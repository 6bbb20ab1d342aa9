package main

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// loop is one of the things that serve does until it is stopped. It waits by itself for what is
// away; an error means that it must not go on.
type loop struct {
	name string
	run  func(ctx context.Context, log *slog.Logger) error
}

// lookAgain is how long after a loop refused it is started anew: a person may have seen to what it
// refused because of.
const lookAgain = 5 * time.Second

// runLoops runs loops until ctx is done. Each stands alone: one that refuses to go on leaves the
// others at work, and the servers up that a person needs for the cure.
func (a *app) runLoops(ctx context.Context, loops ...loop) {
	var running sync.WaitGroup
	for _, l := range loops {
		running.Go(func() { l.keep(ctx, a.log.With("loop", l.name)) })
	}
	running.Wait()
}

// keep runs a loop again and again until ctx is done. The same refusal is told once.
func (l loop) keep(ctx context.Context, log *slog.Logger) {
	told := ""
	for {
		err := l.run(ctx, log)
		if ctx.Err() != nil {
			return
		}
		f := describe(err)
		reason := f.message
		if f.hint != "" {
			reason += ": " + f.hint
		}
		if reason != told {
			told = reason
			log.ErrorContext(ctx, "refuses to go on, and looks again now and then; the others go on", "error", reason)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookAgain):
		}
	}
}
