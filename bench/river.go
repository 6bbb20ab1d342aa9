package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverArgs are our args with the biz_id of the task.
type riverArgs struct {
	BizID    string `json:"biz_id"`
	Customer string `json:"customer"`
	Cents    int    `json:"cents"`
	Reason   string `json:"reason"`
}

func (riverArgs) Kind() string { return "bench.task" }

func newRiverArgs(id string) riverArgs {
	return riverArgs{BizID: id, Customer: "customer-4711", Cents: 500, Reason: "returning"}
}

// migrateRiver creates River's schema and the business table.
func migrateRiver(ctx context.Context, t *trial) error {
	m, err := rivermigrate.New(riverpgxv5.New(t.db), nil)
	if err != nil {
		return err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	return createEffectTable(ctx, t)
}

// riverProducer returns a client that only inserts, and notifies workers at most once per cooldown of the pace. The
// zero pace is River's default, 100 ms.
func riverProducer(db *pgxpool.Pool, pace riverPace) (*river.Client[pgx.Tx], error) {
	return river.NewClient(riverpgxv5.New(db), &river.Config{
		FetchCooldown:     pace.cooldown,
		FetchPollInterval: pace.poll,
		Logger:            slog.New(slog.DiscardHandler),
	})
}

// fillRiver inserts n jobs by COPY, River's fastest way.
func fillRiver(ctx context.Context, t *trial, n int) error {
	c, err := riverProducer(t.db, riverPace{})
	if err != nil {
		return err
	}
	return batches(n, 5000, func(from, to int) error { // as in River's own benchmark
		params := make([]river.InsertManyParams, 0, to-from)
		for i := from; i < to; i++ {
			params = append(params, river.InsertManyParams{Args: newRiverArgs(taskID(i))})
		}
		_, err := c.InsertManyFast(ctx, params)
		return err
	})
}

// benchPace is the pace of River's own benchmark.
const benchPace = "2ms, polls 20ms"

// Paces at everyday rates. River's documentation calls the poll a fallback for lost notifications; its default is one
// second. The inserting client's cooldown limits how often it notifies workers.
const (
	everydayPace = "5ms, of the producer too, polls 1s"
	pollingPace  = "5ms, of the producer 100ms, polls 5ms"
)

// riverPace contains the intervals of River's fetches.
type riverPace struct{ cooldown, poll time.Duration }

var riverPaces = map[string]riverPace{
	benchPace:    {2 * time.Millisecond, 20 * time.Millisecond},
	everydayPace: {5 * time.Millisecond, time.Second},
	pollingPace:  {5 * time.Millisecond, 5 * time.Millisecond},
}

// newRiver returns a client with a worker. The caller must start it.
func newRiver(
	db *pgxpool.Pool, maxWorkers int, pace riverPace, worker river.Worker[riverArgs],
) (*river.Client[pgx.Tx], error) {
	set := river.NewWorkers()
	river.AddWorker(set, worker)
	return river.NewClient(riverpgxv5.New(db), &river.Config{
		FetchCooldown:     pace.cooldown,
		FetchPollInterval: pace.poll,
		Logger:            slog.New(slog.DiscardHandler),
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: maxWorkers}},
		Workers:           set,
	})
}

// startRiver runs a client until the end of the trial.
func startRiver(ctx context.Context, t *trial, c *river.Client[pgx.Tx]) error {
	if err := c.Start(ctx); err != nil {
		return err
	}
	t.atEnd(func() error {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		return c.StopAndCancel(stopping)
	})
	return nil
}

// riverNoop is a worker that does nothing.
type riverNoop struct {
	river.WorkerDefaults[riverArgs]
}

func (riverNoop) Work(context.Context, *river.Job[riverArgs]) error { return nil }

// riverInsert is a worker that inserts a business row and completes the job in one transaction, like the
// example in River's documentation of JobCompleteTx.
type riverInsert struct {
	river.WorkerDefaults[riverArgs]
	db   *pgxpool.Pool
	done func()
}

func (w *riverInsert) Work(ctx context.Context, job *river.Job[riverArgs]) error {
	err := pgx.BeginFunc(ctx, w.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, statement("effect"), job.Args.BizID); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
	if err == nil {
		w.done()
	}
	return err
}

// checkRiverFinished returns an error unless n jobs are completed.
func checkRiverFinished(ctx context.Context, t *trial, n int) error {
	var done int
	err := t.db.QueryRow(ctx, "select count(*) from river_job where state = 'completed'").Scan(&done)
	if err != nil {
		return err
	}
	if done != n {
		return fmt.Errorf("%d of %d jobs are completed", done, n)
	}
	return nil
}
