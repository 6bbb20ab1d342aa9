package workers_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
	"github.com/taskledger/taskledger/workers"
)

// The limit is passed, at every moment, by no more than what was enqueued since the last window that
// the projector had finished when the last finished look began; and never are so many discarded that fewer than the limit are left. Enqueuers
// go as fast as they can, beside a projector and a scheduler, but for what one look cannot discard.
func TestDiscardOldestOvershoot(t *testing.T) {
	t.Parallel()
	const limit, enqueuers, looks, flood = 50, 6, 8, 3000 // a look discards up to 10,000
	b := limitOldest(t, limit)
	b.Start(try(projector.New(projector.Config{DB: b.DB}))(t).Run)
	tracer := &lookTracer{b: b}
	config := b.DB.Config()
	config.ConnConfig.Tracer = tracer
	db := try(pgxpool.NewWithConfig(b.Context(), config))(t)
	t.Cleanup(db.Close)
	scheduler := try(workers.NewScheduler(workers.SchedulerConfig{DB: db, Logger: b.Logger(slog.LevelInfo)}))(t)
	b.Start(scheduler.Run)

	ctx, stop := context.WithCancel(b.Context())
	var begun atomic.Int64
	var writers sync.WaitGroup
	for w := range enqueuers {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if begun.Load() > tracer.finished.Load()+flood {
					time.Sleep(time.Millisecond)
					continue
				}
				var entries []ledger.Entry
				for j := range 1 + i%20 {
					entries = append(entries, ledger.Entry{Key: ledger.Key{Kind: order.Name(), BizID: ledger.BizID(fmt.Sprintf("%d-%d-%d", w, i, j))}})
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
		known := tracer.finished.Load() // before the snapshot, in which that look is done
		enqueued, discarded := b.flow()
		waiting = enqueued - discarded
		if over := waiting - limit; over > enqueued-known {
			t.Errorf("%d wait beyond the limit, of %d that were enqueued since %d were projected", over, enqueued-known, known)
		} else if over > most {
			most, allowed = over, enqueued-known
		}
		if discarded > 0 && waiting < limit {
			t.Errorf("only %d are left of %d", waiting, enqueued)
		}
		samples++
		return waiting
	}
	b.Await("looks", func() bool { sample(); return t.Failed() || tracer.looks.Load() > looks })
	stop()
	writers.Wait()
	b.Await("the limit to be kept", func() bool { return sample() <= limit || t.Failed() })
	t.Logf("%d samples; at most %d beyond the limit of %d, where %d were allowed", samples, most, limit, allowed)
	if most <= 0 {
		t.Error("the limit was never passed")
	}
}

// flow returns how many tasks of kind order were enqueued, and how many discarded, as of one moment.
func (b *bundle) flow() (enqueued, discarded int64) {
	b.T.Helper()
	err := b.DB.QueryRow(b.Context(), `select count(*) filter (where e.version = 1), count(*) filter (where e.type = 'discarded')
		from taskledger.event e where e.kind = $1`, string(order.Name())).Scan(&enqueued, &discarded)
	if err != nil {
		b.T.Fatal(err)
	}
	return enqueued, discarded
}

// lookTracer knows what the looks of a scheduler know. When one begins, the one before is finished.
type lookTracer struct {
	b        *bundle
	looks    atomic.Int64
	finished atomic.Int64 // how many tasks the last finished look knew of: those of the windows that the projector had finished
	pending  int64        // and the one that goes on
}

func (l *lookTracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	if slices.ContainsFunc(data.Batch.QueuedQueries, func(q *pgx.QueuedQuery) bool { return q.SQL == workers.Statements["overload_look.sql"] }) {
		l.looks.Add(1)
		l.finished.Store(l.pending)
		l.pending = one[int64](l.b, `select count(*) from taskledger.event e
			 where e.kind = $1 and e.version = 1 and pg_visible_in_snapshot(e.xid, (
			   select c.seen from taskledger.cursor c where c.reader = 'projector' order by c.n desc limit 1))`, string(order.Name()))
	}
	return ctx
}

func (*lookTracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*lookTracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}
func (*lookTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (*lookTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Discarded is told what the scheduler itself has discarded, kind by kind, and of nothing else.
func TestDiscardedIsTold(t *testing.T) {
	t.Parallel()
	b := limitOldest(t, 3)
	other := ledger.Kind("test.other")
	if err := ledger.SetLimit(b.Context(), b.DB, ledger.Limit{Kind: other, MaxWaiting: 1, Policy: ledger.DiscardOldest}, ""); err != nil {
		t.Fatal(err)
	}
	told := map[ledger.Kind][]int{}
	s := try(workers.NewScheduler(workers.SchedulerConfig{DB: b.DB, Discarded: func(k ledger.Kind, tasks int) {
		told[k] = append(told[k], tasks)
	}}))(t)
	want := map[ledger.Kind][]int{}
	step := func(what string) {
		t.Helper()
		if err := s.Shed(b.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Errorf("%s (-want +told):\n%s", what, diff)
		}
	}
	b.EnqueueMany(3)
	b.Project()
	step("as many wait as may")

	b.EnqueueRound("p", 5)
	for i := range 3 {
		try(ledger.Enqueue(b.Context(), b.DB, ledger.Key{Kind: other, BizID: ledger.BizID(fmt.Sprint(i))}, nil, nil))(t)
	}
	b.Project()
	want[order.Name()], want[other] = []int{5}, []int{2}
	step("two kinds over their limits")
	step("what is discarded, and not counted yet")

	b.EnqueueRound("q", 4)
	b.Project()
	try(ledger.Append(b.Context(), b.DB, ledger.AppendRequest{ // somebody else is quicker
		Key: ledger.Key{Kind: order.Name(), BizID: "p-0002"}, Expected: 1, Type: ledger.EventCancelled}))(t)
	want[order.Name()] = []int{5, 3}
	step("one was cancelled meanwhile")

	b.EnqueueRound("r", 2)
	b.shed(b.scheduler())
	b.Project()
	step("another scheduler did it")
}
