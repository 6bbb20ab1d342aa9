package scheduler_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/scheduler"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
)

// At every moment the limit is exceeded by no more than the tasks enqueued since the last window that the projector
// had finished when the last finished pass began, and no fewer than the limit are left. Producers enqueue as fast as
// they can while a projector and a scheduler run, up to the number that one pass can discard.
func TestDiscardOldestOvershoot(t *testing.T) {
	t.Parallel()
	const limit, producers, passes, flood = 50, 6, 8, 3000 // a pass discards up to 10,000
	b := setupLimit(t, limit)
	b.Start(servicetest.Try(projector.New(projector.Config{DB: b.DB}))(t).Run)
	tracer := &passTracer{b: b}
	config := b.DB.Config()
	config.ConnConfig.Tracer = tracer
	db := servicetest.Try(pgxpool.NewWithConfig(b.Context(), config))(t)
	t.Cleanup(db.Close)
	scheduler := servicetest.Try(scheduler.New(scheduler.Config{DB: db, Logger: b.Logger(slog.LevelInfo)}))(t)
	b.Start(scheduler.Run)

	ctx, stop := context.WithCancel(b.Context())
	var begun atomic.Int64
	var writers sync.WaitGroup
	for w := range producers {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if begun.Load() > tracer.finished.Load()+flood {
					time.Sleep(time.Millisecond)
					continue
				}
				var entries []ledger.Entry
				for j := range 1 + i%20 {
					entries = append(
						entries, ledger.Entry{Key: orderKey(ledger.BizID(fmt.Sprintf("%d-%d-%d", w, i, j)))},
					)
				}
				begun.Add(int64(len(entries)))
				if _, err := ledger.EnqueueMany(ctx, b.DB, entries); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	defer writers.Wait()
	defer stop()
	var most, allowed, samples int64
	sample := func() (waiting int64) {
		projected := tracer.finished.Load() // before the snapshot, in which that pass is finished
		enqueued, discarded := b.flow()
		waiting = enqueued - discarded
		if over := waiting - limit; over > enqueued-projected {
			t.Errorf("%d wait beyond the limit, of %d that were enqueued since %d were projected",
				over, enqueued-projected, projected)
		} else if over > most {
			most, allowed = over, enqueued-projected
		}
		if discarded > 0 && waiting < limit {
			t.Errorf("only %d are left of %d", waiting, enqueued)
		}
		samples++
		return waiting
	}
	b.Await("passes", func() bool { sample(); return t.Failed() || tracer.passes.Load() > passes })
	stop()
	writers.Wait()
	b.Await("the limit to be kept", func() bool { return sample() <= limit || t.Failed() })
	t.Logf("%d samples; at most %d beyond the limit of %d, where %d were allowed", samples, most, limit, allowed)
	if most <= 0 {
		t.Error("the limit was never exceeded")
	}
}

// flow returns how many tasks of kind Order were enqueued and how many discarded, in one snapshot.
func (b *fixture) flow() (enqueued, discarded int64) {
	b.T.Helper()
	err := b.DB.QueryRow(b.Context(), `
		select count(*) filter (where e.version = 1), count(*) filter (where e.type = 'discarded')
		  from taskledger.event e where e.kind = $1`, string(servicetest.Order.Name())).Scan(&enqueued, &discarded)
	if err != nil {
		b.T.Fatal(err)
	}
	return enqueued, discarded
}

// passTracer records which tasks each pass of a scheduler can see. When a pass begins, the one before is finished.
type passTracer struct {
	b      *fixture
	passes atomic.Int64
	// finished is how many tasks the last finished pass could see, in the windows that the projector had finished.
	// pending is the same number for the current pass.
	finished atomic.Int64
	pending  int64
}

func (l *passTracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	isPass := func(q *pgx.QueuedQuery) bool { return q.SQL == scheduler.Statements["overloads.sql"] }
	if slices.ContainsFunc(data.Batch.QueuedQueries, isPass) {
		l.passes.Add(1)
		l.finished.Store(l.pending)
		l.pending = servicetest.One[int64](l.b, `select count(*) from taskledger.event e
			 where e.kind = $1 and e.version = 1 and pg_visible_in_snapshot(e.xid, (
			   select c.seen from taskledger.cursor c where c.reader = 'projector' order by c.n desc limit 1))`,
			string(servicetest.Order.Name()))
	}
	return ctx
}

func (*passTracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*passTracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}
func (*passTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (*passTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
