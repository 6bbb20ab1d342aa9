package workers_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// uses are ways to begin a handler's transaction. Each inserts the effect of the task $1 once.
var uses = map[string]func(ctx context.Context, tx pgx.Tx, id string) error{
	"nothing first": func(context.Context, pgx.Tx, string) error { return nil },
	"exec":          useExec,
	"exec, no arguments": func(ctx context.Context, tx pgx.Tx, id string) error {
		_, err := tx.Exec(ctx, "select 1; select 2")
		return err
	},
	"exec, options": func(ctx context.Context, tx pgx.Tx, id string) error {
		_, err := tx.Exec(ctx, "select $1::text", pgx.QueryExecModeSimpleProtocol, id)
		return err
	},
	"exec, named": func(ctx context.Context, tx pgx.Tx, id string) error {
		_, err := tx.Exec(ctx, "select @id::text", pgx.NamedArgs{"id": id})
		return err
	},
	"query": func(ctx context.Context, tx pgx.Tx, id string) error {
		rows, err := tx.Query(ctx, "select g from generate_series(1, $1::integer) g", 3)
		if err != nil {
			return err
		}
		got, err := pgx.CollectRows(rows, pgx.RowTo[int])
		if err == nil && fmt.Sprint(got) != "[1 2 3]" {
			err = fmt.Errorf("rows %v", got)
		}
		return err
	},
	"query, closed early": func(ctx context.Context, tx pgx.Tx, id string) error {
		rows, err := tx.Query(ctx, "select g from generate_series(1, $1::integer) g", 3)
		if err != nil {
			return err
		}
		rows.Next()
		rows.Close()
		return rows.Err()
	},
	"query row": func(ctx context.Context, tx pgx.Tx, id string) error {
		var got string
		err := tx.QueryRow(ctx, "select $1::text", id).Scan(&got)
		if err == nil && got != id {
			err = fmt.Errorf("got %q", got)
		}
		return err
	},
	"query row, none": func(ctx context.Context, tx pgx.Tx, id string) error {
		if err := tx.QueryRow(ctx, "select 1 where $1 = ''", id).Scan(new(int)); !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	},
	"query row, scan fails": func(ctx context.Context, tx pgx.Tx, id string) error {
		if tx.QueryRow(ctx, "select $1::text", id).Scan(new(int)) == nil {
			return fmt.Errorf("a text was scanned as an integer")
		}
		return nil
	},
	"batch": func(ctx context.Context, tx pgx.Tx, id string) error {
		b := &pgx.Batch{}
		called := false
		b.Queue("select $1::text", id).QueryRow(func(row pgx.Row) error { called = true; return row.Scan(new(string)) })
		b.Queue("select 2")
		if err := tx.SendBatch(ctx, b).Close(); err != nil || !called {
			return fmt.Errorf("called %t: %w", called, err)
		}
		return nil
	},
	"copy": func(ctx context.Context, tx pgx.Tx, id string) error {
		n, err := tx.CopyFrom(ctx, pgx.Identifier{"copied"}, []string{"biz_id"}, pgx.CopyFromRows([][]any{{id}}))
		if err == nil && n != 1 {
			err = fmt.Errorf("%d rows", n)
		}
		return err
	},
	"prepare": func(ctx context.Context, tx pgx.Tx, id string) error {
		if _, err := tx.Prepare(ctx, "mine", "select $1::text"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "mine", id)
		return err
	},
	"savepoint": func(ctx context.Context, tx pgx.Tx, id string) error {
		for _, end := range []func(pgx.Tx, context.Context) error{pgx.Tx.Rollback, pgx.Tx.Commit} {
			sp, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			if _, err := sp.Exec(ctx, "insert into copied values ($1)", id); err != nil {
				return err
			}
			if err := end(sp, ctx); err != nil {
				return err
			}
		}
		return nil
	},
	"conn": func(ctx context.Context, tx pgx.Tx, id string) error {
		if status := tx.Conn().PgConn().TxStatus(); status != 'T' {
			return fmt.Errorf("transaction status %q", status)
		}
		return nil
	},
	"large object": func(ctx context.Context, tx pgx.Tx, id string) error {
		objects := tx.LargeObjects()
		_, err := objects.Create(ctx, 0)
		return err
	},
}

func useExec(ctx context.Context, tx pgx.Tx, id string) error {
	_, err := tx.Exec(ctx, "insert into copied values ($1)", id)
	return err
}

// A handler's first statement, of whatever form, runs in the transaction, and the effect after it commits once, in
// every query mode of pgx.
func TestTransactionBeginsWithItsFirstStatement(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Exec("create table copied (biz_id text)")
	b.Dispatch()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			config := b.As(ledgertest.App).Config()
			config.ConnConfig.DefaultQueryExecMode = mode
			db := try(pgxpool.NewWithConfig(t.Context(), config))(t)
			t.Cleanup(db.Close)
			b.Work(
				workers.Config{DB: db},
				b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
					use, ok := uses[string(job.BizID)]
					if !ok {
						return fmt.Errorf("no use %q", job.BizID)
					}
					if err := use(ctx, tx, string(job.BizID)); err != nil {
						return fmt.Errorf("%s: %w", job.BizID, err)
					}
					if status := tx.Conn().PgConn().TxStatus(); status != 'T' {
						return fmt.Errorf("%s: transaction status %q", job.BizID, status)
					}
					return insertEffect(ctx, tx, job, args)
				}, &workers.KindConfig{Retry: ledger.RetryPolicy{Attempts: 1}}),
			)
			for name := range uses {
				b.Enqueue(name)
			}
			for name := range uses {
				k := ledger.Key{Kind: b.Kind().Name(), BizID: ledger.BizID(name)}
				b.Await(name, func() bool { return b.Task(k).State.Finished() })
				if task := b.Task(k); task.State != ledger.StateSucceeded {
					t.Errorf("%s: %s: %s", name, task.State, b.History(k)[1].Data)
					continue
				}
				b.WantOneEffect(k)
			}
		})
	}
}

// A first statement that fails aborts the transaction, even if it could not be prepared, and a handler that ignores
// the error has failed.
func TestFirstStatementFails(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Exec("create table copied (biz_id text primary key)")
	b.Dispatch()
	swallow := map[string]func(ctx context.Context, tx pgx.Tx){
		"prepare": func(ctx context.Context, tx pgx.Tx) { _, _ = tx.Exec(ctx, "insert into nowhere values ($1)", 1) },
		"run":     func(ctx context.Context, tx pgx.Tx) { _, _ = tx.Exec(ctx, "select 1 / $1::integer", 0) },
		"query": func(ctx context.Context, tx pgx.Tx) {
			//nolint:sqlclosecheck // the query fails and returns no rows
			_, _ = tx.Query(ctx, "select nothing from nowhere where $1", 1)
		},
		"query row": func(ctx context.Context, tx pgx.Tx) {
			_ = tx.QueryRow(ctx, "select 1 / $1::integer", 0).Scan(new(int))
		},
		"batch": func(ctx context.Context, tx pgx.Tx) {
			batch := &pgx.Batch{}
			batch.Queue("insert into copied values ($1)", "batch")
			batch.Queue("insert into nowhere values ($1)", 1)
			_ = tx.SendBatch(ctx, batch).Close()
		},
		"savepoint": func(ctx context.Context, tx pgx.Tx) {
			_, _ = tx.Exec(ctx, "select 1 / $1::integer", 0)
			_, _ = tx.Begin(ctx)
		},
	}
	b.Work(workers.Config{}, b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, _ orderArgs) error {
		swallow[string(job.BizID)](ctx, tx)
		_, _ = tx.Exec(ctx, "insert into copied values ($1)", string(job.BizID))
		return nil
	}, &workers.KindConfig{Retry: ledger.RetryPolicy{Attempts: 1}}))
	for name := range swallow {
		b.AwaitState(b.Enqueue(name), ledger.StateDead)
	}
	if n := one[int](b, "select count(*)::integer from copied"); n != 0 {
		t.Errorf("%d rows of transactions that failed", n)
	}
}

// A task whose handler runs one statement takes two round trips: begin and statement, append
// and commit.
func TestQuickTaskTakesTwoRoundTrips(t *testing.T) {
	t.Parallel()
	config := servicetest.Pool(t).Config()
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &countedConn{Conn: conn}, err
	}
	db := try(pgxpool.NewWithConfig(t.Context(), config))(t)
	t.Cleanup(db.Close)
	b := setupOn(t, db)
	b.Dispatch()
	last := make(map[*countedConn]int64) // after the handler of the previous task on this connection
	fewest := int64(math.MaxInt64)
	b.Work(workers.Config{}, b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		if err := insertEffect(ctx, tx, job, args); err != nil {
			return err
		}
		conn := tx.Conn().PgConn().Conn().(*countedConn)
		n := conn.writes.Load()
		if before, ok := last[conn]; ok {
			fewest = min(fewest, n-before)
		}
		last[conn] = n
		return nil
	}, &workers.KindConfig{Slots: 1}))
	b.EnqueueMany(50)
	b.AwaitSucceeded(50)
	if fewest != 2 {
		t.Errorf("%d round trips a task", fewest)
	}
}

// countedConn counts the batches that are sent, each of which waits for its answer.
type countedConn struct {
	net.Conn
	writes atomic.Int64
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}
