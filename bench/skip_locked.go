package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The task table of textbooks: workers claim rows with FOR UPDATE SKIP LOCKED and update a status column.
// It has no history, retries, leases or dead letters.

func migrateSkipLocked(ctx context.Context, t *trial) error {
	if _, err := t.db.Exec(ctx, statement("skip_locked_table")); err != nil {
		return err
	}
	return createEffectTable(ctx, t)
}

func enqueueSkipLocked(ctx context.Context, t *trial, connections int) error {
	if err := migrateSkipLocked(ctx, t); err != nil {
		return err
	}
	return measureEnqueue(ctx, t, connections, func(ctx context.Context, conn *pgx.Conn, id string) error {
		return inOneRoundTrip(ctx, conn, id, statement("skip_locked_enqueue"), string(kind.Name()), id, string(args))
	})
}

// fillSkipLocked inserts by COPY.
func fillSkipLocked(ctx context.Context, t *trial, n int) error {
	return batches(n, 5000, func(from, to int) error {
		rows := pgx.CopyFromSlice(to-from, func(i int) ([]any, error) {
			return []any{string(kind.Name()), taskID(from + i), string(args)}, nil
		})
		_, err := t.db.CopyFrom(ctx, pgx.Identifier{"task"}, []string{"kind", "biz_id", "args"}, rows)
		return err
	})
}

// drainSkipLocked claims and finishes tasks in batches. The setting names the workers and the batch size.
func drainSkipLocked(ctx context.Context, t *trial, tasks int) error {
	var workers, batch int
	if _, err := fmt.Sscanf(t.tuning, "%d workers, batches of %d", &workers, &batch); err != nil {
		return err
	}
	return workSkipLocked(ctx, t, tasks, workers, func(ctx context.Context, conn *pgxpool.Conn) (int, error) {
		rows, err := conn.Query(ctx, statement("skip_locked_claim"), batch)
		if err != nil {
			return 0, err
		}
		ids, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (id int64, err error) {
			var bizID, args string
			return id, row.Scan(&id, &bizID, &args)
		})
		if err != nil || len(ids) == 0 {
			return 0, err
		}
		_, err = conn.Exec(ctx, statement("skip_locked_finish"), ids)
		return len(ids), err
	})
}

// drainSkipLockedTx locks a task, inserts its row and finishes it, in one transaction for each task.
func drainSkipLockedTx(ctx context.Context, t *trial, tasks int) error {
	var workers int
	if _, err := fmt.Sscanf(t.tuning, "%d workers", &workers); err != nil {
		return err
	}
	return workSkipLocked(ctx, t, tasks, workers, func(ctx context.Context, conn *pgxpool.Conn) (done int, err error) {
		err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			var id int64
			var bizID, args string
			err := tx.QueryRow(ctx, statement("skip_locked_lock")).Scan(&id, &bizID, &args)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, statement("effect"), bizID); err != nil {
				return err
			}
			done = 1
			_, err = tx.Exec(ctx, statement("skip_locked_finish"), []int64{id})
			return err
		})
		return done, err
	})
}

// workSkipLocked fills the table and runs workers until all tasks are done. step does some tasks and
// returns their number.
func workSkipLocked(
	ctx context.Context, t *trial, tasks, workers int, step func(context.Context, *pgxpool.Conn) (int, error),
) error {
	if err := migrateSkipLocked(ctx, t); err != nil {
		return err
	}
	before, err := fillBacklog(ctx, t, tasks, fillSkipLocked)
	if err != nil {
		return err
	}
	var left atomic.Int64
	left.Store(int64(tasks))
	begin := time.Now()
	err = concurrently(workers, func(int) error {
		conn, err := t.db.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		for left.Load() > 0 {
			n, err := step(ctx, conn)
			if err != nil {
				return err
			}
			left.Add(-int64(n))
		}
		return nil
	})
	if err != nil {
		return err
	}
	t.add(rate, float64(tasks)/time.Since(begin).Seconds(), "tasks/s")
	if err := before.add(ctx, t, tasks); err != nil {
		return err
	}
	var done int
	if err := t.db.QueryRow(ctx, "select count(*) from task where status = 'done'").Scan(&done); err != nil {
		return err
	}
	if done != tasks {
		return fmt.Errorf("%d of %d tasks are done", done, tasks)
	}
	return nil
}
