package main

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/projector"
	"github.com/taskledger/taskledger/workers/reconciler"
	"github.com/taskledger/taskledger/workers/scheduler"
)

// streamBytes is the limit of the stream: more than a run publishes, so that only the fault fill fills it. It is the
// default of relays, which they do not restore: they would raise a lower one to a limit of their own settings.
const streamBytes = stream.DefaultMaxBytes

// relay is the program of a relay.
func relay(ctx context.Context, p *part) error {
	db, err := p.pool(ctx, p.Database, 6)
	if err != nil {
		return err
	}
	defer db.Close()
	nc, err := outbox.Connect(p.NATS[natsconfig.Relay])
	if err != nil {
		return err
	}
	defer nc.Close()
	p.keepRunning(ctx, "relay", func() (runner, error) {
		return outbox.New(outbox.Config{
			DB: db, NATS: nc, Logger: p.log, CheckEvery: time.Second,
			Hooks:  []outbox.Hook{&audits{history: p.history}},
			Stream: outbox.StreamConfig{Replicas: nodes},
		})
	})
	return nil
}

// audits records what audits of the feed find.
type audits struct {
	outbox.HookDefaults
	history *history
}

// EventsMissed records that the feed skipped events.
func (a *audits) EventsMissed(_ context.Context, events int) {
	a.history.add(entry{Op: opSkipped, Err: strconv.Itoa(events) + " events"})
}

// project is the program of a projector.
func project(ctx context.Context, p *part) error {
	db, err := p.pool(ctx, p.Database, 6)
	if err != nil {
		return err
	}
	defer db.Close()
	p.keepRunning(ctx, "projector", func() (runner, error) {
		return projector.New(projector.Config{DB: db, Logger: p.log, Standby: time.Second, RetryFailed: time.Second})
	})
	return nil
}

// schedule is the program of a scheduler with a reconciler.
func schedule(ctx context.Context, p *part) error {
	db, err := p.pool(ctx, p.Database, 6)
	if err != nil {
		return err
	}
	defer db.Close()
	nc, err := outbox.Connect(p.NATS[natsconfig.Relay])
	if err != nil {
		return err
	}
	defer nc.Close()
	var services sync.WaitGroup
	services.Go(func() {
		p.keepRunning(ctx, "scheduler", func() (runner, error) {
			return scheduler.New(scheduler.Config{DB: db, Logger: p.log})
		})
	})
	services.Go(func() {
		p.keepRunning(ctx, "reconciler", func() (runner, error) {
			return reconciler.New(reconciler.Config{DB: db, NATS: nc, Logger: p.log})
		})
	})
	services.Wait()
	return nil
}
