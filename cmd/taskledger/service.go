package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/taskledger/taskledger/internal/loop"
)

// service is one part of serve. Its run blocks until ctx is done and retries through outages; it returns an
// error if it must not continue.
type service struct {
	name string
	run  func(ctx context.Context, log *slog.Logger) error
}

// restartAfter is the delay after which a service that failed is started again: an operator may have removed
// the cause.
const restartAfter = 5 * time.Second

// runServices runs services until ctx is done. They are independent: if one fails, the others continue, and
// the servers that an operator needs for the cure stay up.
func (a *app) runServices(ctx context.Context, services ...service) {
	var running sync.WaitGroup
	for _, s := range services {
		running.Go(func() { s.keep(ctx, a) })
	}
	running.Wait()
}

// keep runs a service again after each error. The same error is logged once.
func (s service) keep(ctx context.Context, a *app) {
	log, logged := a.log.With("service", s.name), ""
	for {
		err := s.run(ctx, log)
		if ctx.Err() != nil {
			return
		}
		f := a.describe(err)
		reason := f.message
		if f.hint != "" {
			reason += ": " + f.hint
		}
		if reason != logged {
			logged = reason
			log.ErrorContext(ctx, "service failed; it is started again every 5s", "error", reason)
		}
		if loop.Sleep(ctx, restartAfter) != nil {
			return
		}
	}
}
