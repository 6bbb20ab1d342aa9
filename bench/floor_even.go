package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"
)

// floorPace is how the floor works at an even rate: as rarely as its latency allows.
type floorPace struct {
	// budget is the time from a notification to the window that reads its event, which then also reads others. The
	// relay is not notified of outcomes: it reads them with the next window, at the latest after floorOutcomes.
	budget      time.Duration
	outcomes    time.Duration // for which the worker gathers outcomes
	cursor      time.Duration // between two moves of the relay's cursor, which do not wait for the disk
	projections time.Duration // between two windows of the projection
}

// floorOutcomes is the longest time between two windows of the relay at an even rate.
const floorOutcomes = 100 * time.Millisecond

// evenPace returns a pace with a latency budget.
func evenPace(budget time.Duration) floorPace {
	return floorPace{
		budget: budget, outcomes: 50 * time.Millisecond, cursor: 100 * time.Millisecond,
		projections: 100 * time.Millisecond,
	}
}

// isEven reports whether the floor works at an even rate, not at a backlog.
func (p floorPace) isEven() bool { return p.budget > 0 }

// rest returns a function that waits until the next window of the relay. Behind a backlog without new events that is
// 2 ms. The caller must release what it uses.
func (f *floor) rest(ctx context.Context) (rest func(context.Context) error, release func(), err error) {
	if !f.pace.isEven() {
		return func(ctx context.Context) error { return sleep(ctx, 2*time.Millisecond) }, func() {}, nil
	}
	conn, err := f.db.Acquire(ctx)
	if err != nil {
		return nil, nil, err
	}
	if _, err := conn.Exec(ctx, "listen floor"); err != nil {
		conn.Release()
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	notified, done := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, err := conn.Conn().WaitForNotification(ctx); err != nil {
				return // the next window then follows floorOutcomes
			}
			select {
			case notified <- struct{}{}:
			default:
			}
		}
	}()
	rest = func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(floorOutcomes):
			return nil
		case <-notified:
			return sleep(ctx, f.pace.budget)
		}
	}
	return rest, func() { cancel(); <-done; conn.Release() }, nil
}

// floorEvenTransaction is floorTransaction with a notification of the relay.
func floorEvenTransaction(ctx context.Context, conn *pgx.Conn, id string) error {
	b := &pgx.Batch{}
	b.Queue("begin")
	b.Queue(statement("effect"), id)
	b.Queue(statement("floor_enqueue"), floorTask(id)...)
	b.Queue("notify floor")
	b.Queue("commit")
	return conn.SendBatch(ctx, b).Close()
}

// workEvenly handles each task by itself and records the outcomes together.
func (f *floor) workEvenly(ctx context.Context, arrived <-chan jetstream.Msg) error {
	finished, recorded := make(chan jetstream.Msg, floorBatch), make(chan error, 1)
	go func() {
		err := f.record(ctx, finished)
		for range finished { // after an error the tasks that are running still finish
		}
		recorded <- err
	}()
	err := f.handleEach(ctx, arrived, finished)
	close(finished)
	return errors.Join(err, <-recorded)
}

// handleEach reads the heads of the messages that have arrived together, and handles each task by itself. It returns
// when all that it has begun are finished.
func (f *floor) handleEach(ctx context.Context, arrived <-chan jetstream.Msg, finished chan<- jetstream.Msg) error {
	var running sync.WaitGroup
	defer running.Wait()
	for m := range arrived {
		batch := takeArrived([]jetstream.Msg{m}, arrived)
		ids, err := f.readHeads(ctx, batch)
		if err != nil {
			return err
		}
		for i, m := range batch {
			running.Go(func() {
				f.handle(ctx, ids[i])
				finished <- m
			})
		}
	}
	return nil
}

// record gathers outcomes and records each group in one statement, until finished is closed.
func (f *floor) record(ctx context.Context, finished <-chan jetstream.Msg) error {
	for m := range finished {
		batch := []jetstream.Msg{m}
		for full := time.After(f.pace.outcomes); len(batch) < floorBatch; {
			select {
			case m, ok := <-finished:
				if ok {
					batch = append(batch, m)
					continue
				}
			case <-full:
			}
			break
		}
		if _, err := f.db.Exec(ctx, statement("floor_succeed"), string(kind.Name()), bizIDs(batch)); err != nil {
			return err
		}
		if err := f.acknowledge(batch); err != nil {
			return err
		}
	}
	return nil
}
