package services

import (
	"context"
	"log/slog"
	"sync"

	"github.com/taskledger/taskledger/internal/loop"
)

// service is one part of [Run]. Its run blocks until ctx is done and retries through outages; it returns an error if it
// must not continue.
type service struct {
	name string
	run  func(ctx context.Context, log *slog.Logger) error
}

// runAll runs services until ctx is done. They are independent: if one fails, the others continue, and the servers that
// an operator needs for the cure stay up.
func (c Config) runAll(ctx context.Context, services []service) {
	var running sync.WaitGroup
	for _, s := range services {
		running.Go(func() { c.keep(ctx, s) })
	}
	running.Wait()
}

// keep restarts a service after each error. The same error is logged once.
func (c Config) keep(ctx context.Context, s service) {
	log := c.Logger.With("service", s.name)
	loop.Keep(ctx, func(ctx context.Context) error { return s.run(ctx, log) }, func(err error) {
		log.ErrorContext(ctx, "service failed; it is started again every 5s", "error", c.reason(err))
	})
}

// reason returns the text of an error with its cure.
func (c Config) reason(err error) string {
	if err == nil {
		return "it has ended"
	}
	text, cure := c.Describe(err)
	if cure == "" {
		return text
	}
	return text + ": " + cure
}
