package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/taskledger/taskledger/internal/loop"
)

// service is one part of serve. Its run blocks until ctx is done and survives outages; an error means
// that it must not go on.
type service struct {
	name string
	run  func(ctx context.Context, log *slog.Logger) error
}

// restartAfter is how long after a service refused to go on it is started again: an operator may have
// removed the cause.
const restartAfter = 5 * time.Second

// runServices runs services until ctx is done. Each stands alone: one that refuses to go on leaves the
// others at work, and the servers up that an operator needs for the cure.
func (a *app) runServices(ctx context.Context, services ...service) {
	var running sync.WaitGroup
	for _, s := range services {
		running.Go(func() { s.keep(ctx, a.log.With("service", s.name)) })
	}
	running.Wait()
}

// keep runs a service again and again until ctx is done. The same refusal is logged once.
func (s service) keep(ctx context.Context, log *slog.Logger) {
	logged := ""
	for {
		err := s.run(ctx, log)
		if ctx.Err() != nil {
			return
		}
		f := describe(err)
		reason := f.message
		if f.hint != "" {
			reason += ": " + f.hint
		}
		if reason != logged {
			logged = reason
			log.ErrorContext(ctx, "service refuses to go on; it is started again every 5s", "error", reason)
		}
		if loop.Sleep(ctx, restartAfter) != nil {
			return
		}
	}
}
