package workers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// atCommits are handlers with AtCommit, by the id of their task. The tasks in failing die of the error with that text,
// and have no effect.
var atCommits = map[string]func(ctx context.Context, tx pgx.Tx, job *workers.Job) error{
	"alone": func(context.Context, pgx.Tx, *workers.Job) error { return nil },
	"after another statement": func(ctx context.Context, tx pgx.Tx, job *workers.Job) error {
		err := workers.AtCommit(ctx, tx, "update copied set n = n * 2 where biz_id = $1", string(job.BizID))
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "insert into copied (biz_id, n) values ($1, 21)", string(job.BizID))
		return err
	},
	"in a savepoint": func(ctx context.Context, tx pgx.Tx, job *workers.Job) error {
		sp, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		if err := workers.AtCommit(ctx, sp, "insert into copied values ($1, 1)", string(job.BizID)); err != nil {
			return err
		}
		if err := workers.AtCommit(ctx, sp, "select 1 / $1::integer", 0); err == nil {
			return errors.New("no error of a statement in a savepoint")
		}
		return sp.Rollback(ctx)
	},
	"fails": func(ctx context.Context, tx pgx.Tx, _ *workers.Job) error {
		return workers.AtCommit(ctx, tx, "select 1 / $1::integer", 0)
	},
	"cannot be prepared": func(ctx context.Context, tx pgx.Tx, _ *workers.Job) error {
		return workers.AtCommit(ctx, tx, "insert into nowhere values ($1)", 1)
	},
	"cannot be encoded": func(ctx context.Context, tx pgx.Tx, _ *workers.Job) error {
		return workers.AtCommit(ctx, tx, "select $1::integer", struct{}{})
	},
	"returns an error": func(context.Context, pgx.Tx, *workers.Job) error { return errBoom },
}

var failing = map[string]string{
	"fails": "division by zero", "cannot be prepared": "does not exist", "returns an error": "boom",
	"cannot be encoded": "invalid statement 2 of AtCommit",
}

// Statements of AtCommit and the success are committed together, or neither is, whether tasks share a transaction or
// not.
func TestAtCommit(t *testing.T) {
	t.Parallel()
	for _, together := range []int{1, 5} {
		t.Run(fmt.Sprintf("together=%d", together), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.Exec("create table copied (biz_id text primary key, n integer)")
			b.Dispatch()
			handler := func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
				if err := insertEffectAtCommit(ctx, tx, job, args); err != nil {
					return err
				}
				if use, ok := atCommits[string(job.BizID)]; ok {
					return use(ctx, tx, job)
				}
				return nil
			}
			for id := range atCommits {
				b.Enqueue(id)
			}
			b.EnqueueMany(warmUp)
			b.Work(workers.Config{}, b.exactly(handler, &workers.KindConfig{
				Slots: 1, Together: together, Retry: ledger.RetryPolicy{Attempts: 1},
			}))
			for id := range atCommits {
				k := ledger.Key{Kind: order.Name(), BizID: ledger.BizID(id)}
				b.Await(id, func() bool { return b.Task(k).State.Finished() })
				task := b.Task(k)
				if why, fails := failing[id]; fails {
					if data := string(b.History(k)[1].Data); strings.Contains(data, "migrate") {
						t.Errorf("%s: %s", id, data)
					}
					if task.State != ledger.StateDead || !strings.Contains(string(b.History(k)[1].Data), why) {
						t.Errorf("%s: %s: %s", id, task.State, b.History(k)[1].Data)
					}
					if n := b.Effects(k); n != 0 {
						t.Errorf("%s: %d effects", id, n)
					}
					continue
				}
				if task.State != ledger.StateSucceeded {
					t.Errorf("%s: %s: %s", id, task.State, b.History(k)[1].Data)
				}
				b.WantOneEffect(k)
			}
			got := one[string](b, "select string_agg(biz_id || n, ',') from copied")
			if got != "after another statement42" {
				t.Errorf("copied: %s", got)
			}
		})
	}
}

// A statement that ends the transaction buries the task, as it does in the handler.
func TestAtCommitEndsTheTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	b.Work(workers.Config{}, b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		if err := insertEffectAtCommit(ctx, tx, job, args); err != nil {
			return err
		}
		return workers.AtCommit(ctx, tx, "rollback")
	}, nil))
	k := b.Enqueue("o-1")
	b.AwaitState(k, ledger.StateDead)
	if n := b.Effects(k); n != 0 {
		t.Errorf("%d effects", n)
	}
}

// Where a caller runs the task, in its own transaction, the statement is executed at once.
func TestAtCommitOfACaller(t *testing.T) {
	t.Parallel()
	b := full(t)
	c := b.caller(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		if err := insertEffectAtCommit(ctx, tx, job, args); err != nil {
			return err
		}
		var n int
		err := tx.QueryRow(ctx, "select count(*) from effect where biz_id = $1", string(job.BizID)).Scan(&n)
		if n != 1 {
			t.Errorf("%d effects before the end of the handler", n)
		}
		return err
	}, nil)
	if answer, err := b.buy(c, "o-1", true); err != nil || answer.State != ledger.StateSucceeded {
		t.Errorf("%+v, %v", answer, err)
	}
	b.WantOneEffect(ledger.Key{Kind: order.Name(), BizID: "o-1"})
}
