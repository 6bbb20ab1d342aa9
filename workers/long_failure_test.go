package workers_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// rowsTracer records the most rows that one statement returned.
type rowsTracer struct{ most atomic.Int64 }

func (*rowsTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (r *rowsTracer) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	for n := data.CommandTag.RowsAffected(); ; {
		if most := r.most.Load(); n <= most || r.most.CompareAndSwap(most, n) {
			return
		}
	}
}

// tracedPool returns a pool as the bundle's, with a tracer.
func (b *bundle) tracedPool(tracer pgx.QueryTracer) *pgxpool.Pool {
	b.T.Helper()
	config := b.DB.Config()
	config.ConnConfig.Tracer = tracer
	db := try(pgxpool.NewWithConfig(b.Context(), config))(b.T)
	b.T.Cleanup(db.Close)
	return db
}

// A task with 20,000 events whose worker was lost is taken over, resumed from its checkpoint and buried, and no
// statement reads its history.
func TestTakeOverOfALongHistory(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Forge(`
		insert into taskledger.event (kind, biz_id, version, attempt, shard, type, actor, data)
		select $1, 'o-1', i, least(i / 3 + case when i % 3 = 2 then 1 else 0 end, 301), 0,
		       (case when i = 1 then 'enqueued' when i > 902 then 'progressed'
		             else (array['released', 'started', 'failed'])[(i - 1) % 3 + 1] end)::taskledger.event_type, 'gone',
		       (case when i = 1 then '{}' when i = 903 then '{"checkpoint":7}' when i > 903 then '{"progress":1}'
		             when i % 3 = 0 then '{"error":{"message":"failure ' || i / 3 || '"}}' end)::json
		  from generate_series(1, 20000) i`, string(order.Name()))
	k := ledger.Key{Kind: order.Name(), BizID: "o-1"}
	if task := b.Task(k); task.State != ledger.StateRunning || task.Attempt != 301 || task.Failures != 300 {
		t.Fatalf("%v, %d failures", task, task.Failures)
	}
	b.Dispatch()
	rows := &rowsTracer{}
	var checkpoint int
	var errs []workers.PreviousError
	w := b.Work(workers.Config{DB: b.tracedPool(rows)}, b.atLeast(
		func(ctx context.Context, job *workers.Job, _ orderArgs) (err error) {
			if _, err = job.Resume(ctx, &checkpoint); err != nil {
				return err
			}
			if errs, err = job.PreviousErrors(ctx); err != nil {
				return err
			}
			return workers.Permanent(errBoom)
		}, &workers.KindConfig{}))
	b.AwaitState(k, ledger.StateDead)
	if n := w.KindStatus().TakenOver; n != 1 || checkpoint != 7 {
		t.Errorf("taken over %d times, resumed from %d", n, checkpoint)
	}
	if len(errs) != 100 || errs[0].Message != "failure 201" || errs[99].Attempt != 300 {
		t.Errorf("%d previous errors", len(errs))
	}
	if most := rows.most.Load(); most > 500 {
		t.Errorf("a statement of the worker returned %d rows", most)
	}
	var buried struct{ Errors []workers.PreviousError }
	data := one[string](b, "select data::text from taskledger.event where type = 'buried'")
	if err := json.Unmarshal([]byte(data), &buried); err != nil || len(buried.Errors) != 100 ||
		buried.Errors[99].Attempt != 302 {
		t.Errorf("%d errors in the last event, %v", len(buried.Errors), err)
	}
}
