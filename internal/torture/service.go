package main

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/dispatcher"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/scheduler"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/projector"
)

// streamBytes is the limit of the stream: more than a run publishes, so that only the fault fill fills it. It equals
// the relays' default: they would raise a lower limit.
const streamBytes = stream.DefaultMaxBytes

// relay is the program of a relay with a projector that takes its pages, as in serve.
func relay(ctx context.Context, p *part) error {
	db, err := p.pool(ctx, p.Database, 12)
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
		p.keepRunning(ctx, "relay", func() (runner, error) {
			return outbox.New(outbox.Config{
				DB: db, NATS: nc, Logger: p.log, CheckEvery: time.Second,
				Hooks:  []outbox.Hook{{EventsMissed: p.history.addMissed}},
				Stream: outbox.StreamConfig{Replicas: nodes},
			})
		})
	})
	services.Go(func() { keepProjecting(ctx, p, db) })
	services.Go(func() {
		p.keepRunning(ctx, "dispatcher", func() (runner, error) {
			return dispatcher.New(dispatcher.Config{DB: db, NATS: nc, Logger: p.log})
		})
	})
	services.Wait()
	return nil
}

// addMissed records that an audit has found events that the feed skipped.
func (h *history) addMissed(_ context.Context, events int) {
	h.add(entry{Op: opSkipped, Err: strconv.Itoa(events) + " events"})
}

// project is the program of a projector.
func project(ctx context.Context, p *part) error {
	db, err := p.pool(ctx, p.Database, 6)
	if err != nil {
		return err
	}
	defer db.Close()
	keepProjecting(ctx, p, db)
	return nil
}

// keepProjecting runs a projector, which follows the dispatcher of its process if there is one.
func keepProjecting(ctx context.Context, p *part, db *pgxpool.Pool) {
	p.keepRunning(ctx, "projector", func() (runner, error) {
		return projector.New(projector.Config{
			DB: db, Logger: p.log, Standby: time.Second,
		})
	})
}

// schedule is the program of a scheduler.
func schedule(ctx context.Context, p *part) error {
	db, err := p.pool(ctx, p.Database, 6)
	if err != nil {
		return err
	}
	defer db.Close()
	p.keepRunning(ctx, "scheduler", func() (runner, error) {
		return scheduler.New(scheduler.Config{DB: db, Logger: p.log})
	})
	return nil
}
