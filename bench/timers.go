package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/scheduler"
	"github.com/taskledger/taskledger/ledger"
)

// Conditions of the measure of timers.
const (
	timersEnqueue  = "taskledger, enqueue"
	timersWaiting  = "taskledger, timers waiting"
	timersSnapshot = "taskledger, timers waiting, snapshot held"
)

// dueRate is how many timers become due in a second.
const dueRate = 10_000

// timersMeasure: what waiting timers cost an enqueue, and how late and how fast schedulers fire.
func timersMeasure() measure {
	return measure{
		name: "timers", onceQuick: true, notQuick: true,
		title: "1,000,000 timers waiting: enqueue beside them, lateness at 10,000 due a second, 100,000 due at once",
		contenders: []contender{
			{system: timersEnqueue, run: enqueueBesideTimers},
			{system: timersWaiting, run: func(ctx context.Context, t *trial) error { return fireTimers(ctx, t, nil) }},
			{system: timersSnapshot, run: func(ctx context.Context, t *trial) error {
				return fireTimers(ctx, t, holdSnapshot)
			}},
		},
	}
}

// addWaiting inserts the timers that are waiting. They are due in more than an hour.
func addWaiting(ctx context.Context, t *trial) error {
	if _, err := t.db.Exec(ctx, statement("timers_waiting"), t.size(1_000_000, 100_000)); err != nil {
		return err
	}
	_, err := t.db.Exec(ctx, "vacuum analyze taskledger.timer")
	return err
}

// enqueueBesideTimers enqueues by one connection into two ledgers in turns, so that both use the same machine. Timers
// wait in one of them.
func enqueueBesideTimers(ctx context.Context, t *trial) error {
	if err := migrate(ctx, t); err != nil {
		return err
	}
	full, err := t.another(ctx)
	if err != nil {
		return err
	}
	if err := migrate(ctx, full); err != nil {
		return err
	}
	if err := addWaiting(ctx, full); err != nil {
		return err
	}
	undelayed, delayed := &ledger.EnqueueOptions{}, &ledger.EnqueueOptions{RunIn: 2 * time.Hour}
	return errors.Join(
		enqueueInTurns(ctx, t, full, "undelayed", undelayed),
		enqueueInTurns(ctx, t, full, "delayed", delayed),
	)
}

// enqueueInTurns adds the mean duration of an enqueue into each of two ledgers.
func enqueueInTurns(ctx context.Context, empty, full *trial, name string, o *ledger.EnqueueOptions) error {
	const batch = 200
	sides := []struct {
		condition string
		db        *pgxpool.Pool
		spent     time.Duration
		enqueued  int
	}{{condition: "no timers waiting", db: empty.db}, {condition: "timers waiting", db: full.db}}
	for round, until := 0, time.Now().Add(empty.duration()); round < len(sides) || time.Now().Before(until); round++ {
		side := &sides[round%len(sides)]
		begin := time.Now()
		for i := range batch {
			id := ledger.BizID(fmt.Sprintf("%s-%d-%d", name, round, i))
			if _, err := kind.Enqueue(ctx, side.db, id, args, o); err != nil {
				return err
			}
		}
		side.spent += time.Since(begin)
		side.enqueued += batch
	}
	for _, side := range sides {
		each := float64(side.spent.Microseconds()) / float64(side.enqueued)
		empty.add(fmt.Sprintf("enqueue, %s, %s", name, side.condition), each, "µs")
	}
	return nil
}

// fireTimers measures schedulers while other timers wait. If hold is given, it lasts for the
// whole trial, so that dead index entries of one part are in the way of the next.
func fireTimers(ctx context.Context, t *trial, hold func(context.Context, *trial) (func() error, error)) error {
	if err := migrate(ctx, t); err != nil {
		return err
	}
	if err := addWaiting(ctx, t); err != nil {
		return err
	}
	if hold != nil {
		release, err := hold(ctx, t)
		if err != nil {
			return err
		}
		t.atEnd(release)
	}
	for _, part := range []string{"late", "late again"} {
		if err := fireAtRate(ctx, t, part); err != nil {
			return err
		}
	}
	for schedulers := 1; schedulers <= 2; schedulers++ {
		if err := fireBacklog(ctx, t, schedulers); err != nil {
			return err
		}
	}
	return nil
}

// fireAtRate fires timers that become due at a steady rate, and adds how late they were.
func fireAtRate(ctx context.Context, t *trial, name string) error {
	d := newDueTimers(t, name)
	n := max(1, int(t.duration().Seconds()*dueRate))
	if err := d.fill(ctx, n); err != nil {
		return err
	}
	// The timers get their times after the fill, whose duration varies. This update takes time too.
	lead := t.duration()/4 + 500*time.Millisecond
	if _, err := t.db.Exec(ctx, statement("timers_spread"), string(d.kind), dueRate, lead.Milliseconds()); err != nil {
		return err
	}
	if err := d.fire(ctx, n, 1); err != nil {
		return err
	}
	var p50, p99, longest float64
	if err := t.db.QueryRow(ctx, statement("timers_late"), string(d.kind)).Scan(&p50, &p99, &longest); err != nil {
		return err
	}
	t.add(name+", p50", p50, "ms")
	t.add(name+", p99", p99, "ms")
	t.add(name+", max", longest, "ms")
	return nil
}

// fireBacklog fires timers that are all due, by several schedulers at once.
func fireBacklog(ctx context.Context, t *trial, schedulers int) error {
	d := newDueTimers(t, fmt.Sprintf("backlog-%d", schedulers))
	n := t.size(100_000, 10_000)
	if err := d.fill(ctx, n); err != nil {
		return err
	}
	if _, err := t.db.Exec(ctx, statement("timers_due"), string(d.kind)); err != nil {
		return err
	}
	begin := time.Now()
	if err := d.fire(ctx, n, schedulers); err != nil {
		return err
	}
	t.add(fmt.Sprintf("backlog, schedulers: %d", schedulers), float64(n)/time.Since(begin).Seconds(), "timers/s")
	return nil
}

// dueTimers are the timers of one part of a trial: the tasks of one kind.
type dueTimers struct {
	t        *trial
	kind     ledger.Kind
	released atomic.Int64 // by the schedulers
}

func newDueTimers(t *trial, name string) *dueTimers {
	return &dueTimers{t: t, kind: ledger.Kind("bench." + strings.ReplaceAll(name, " ", "-"))}
}

// fill enqueues n tasks whose timers are due later than the fill lasts.
func (d *dueTimers) fill(ctx context.Context, n int) error {
	later := &ledger.EnqueueOptions{RunIn: time.Hour / 2}
	return batches(n, 2000, func(from, to int) error {
		entries := make([]ledger.Entry, 0, to-from)
		for i := from; i < to; i++ {
			key := ledger.Key{Kind: d.kind, BizID: ledger.BizID(taskID(i))}
			entries = append(entries, ledger.Entry{Key: key, Args: args, Options: later})
		}
		_, err := ledger.EnqueueMany(ctx, d.t.db, entries)
		return err
	})
}

// fire runs schedulers until all n tasks are released. It returns an error if the ledger has another
// number of them.
func (d *dueTimers) fire(ctx context.Context, n, schedulers int) (err error) {
	for range schedulers {
		s, failed := scheduler.New(scheduler.Config{DB: d.t.db, Hook: scheduler.Hook{
			AfterBatch: func(_ context.Context, b scheduler.Batch) { d.released.Add(int64(b.Released)) },
		}})
		if failed != nil {
			return failed
		}
		stop := background(ctx, s.Run)
		defer func() { err = errors.Join(err, stop()) }()
	}
	// A scheduler that was stopped may release timers of this part without a call of its hook: the server works on the
	// statement of a cancelled context until it learns of the cancellation. So the ledger is asked too, once a second.
	var released int
	askAt := time.Now().Add(time.Second)
	err = await(ctx, func() (bool, error) {
		if d.released.Load() < int64(n) && time.Now().Before(askAt) {
			return false, nil
		}
		askAt = time.Now().Add(time.Second)
		err := d.t.db.QueryRow(ctx, statement("released"), string(d.kind)).Scan(&released)
		return released >= n, err
	})
	if err != nil {
		return err
	}
	if released != n {
		return fmt.Errorf("%d of %d tasks were released", released, n)
	}
	return nil
}
