package workers_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
	"github.com/taskledger/taskledger/workers"
)

// limitOldest is a bundle without a broker, with a limit on kind order whose oldest go.
func limitOldest(t *testing.T, most int64) *bundle {
	t.Helper()
	b := setupDatabase(t)
	b.SetLimit(most, ledger.DiscardOldest)
	return b
}

func (b *bundle) scheduler() *workers.Scheduler {
	b.T.Helper()
	return try(workers.NewScheduler(workers.SchedulerConfig{DB: b.DB}))(b.T)
}

// shed has what the ledger holds counted, and what is too much discarded.
func (b *bundle) shed(s *workers.Scheduler) {
	b.T.Helper()
	b.Project()
	if err := s.Shed(b.Context()); err != nil {
		b.T.Fatal(err)
	}
}

// available returns the tasks of kind order that wait, by name.
func (b *bundle) available() []string { return b.ofState(ledger.StateAvailable) }

func (b *bundle) ofState(s ledger.State) []string {
	b.T.Helper()
	rows := try(b.DB.Query(b.Context(), `select h.biz_id from (
		select distinct on (e.biz_id) e.biz_id, e.type from taskledger.event e where e.kind = $1 order by e.biz_id, e.version desc) h
		where taskledger.state_after(h.type)::text = $2 order by 1`, string(order.Name()), string(s)))(b.T)
	return try(pgx.CollectRows(rows, pgx.RowTo[string]))(b.T)
}

// Enqueueing always goes through, by every way. Then the oldest of those that wait are discarded,
// counted from when they became available, until no more than the limit are left.
func TestDiscardOldest(t *testing.T) {
	t.Parallel()
	b := limitOldest(t, 4)
	s := b.scheduler()
	again := b.Enqueue("again")
	ledgertest.Append(t, b.DB, b.Enqueue("done"), ledger.EventSucceeded)
	ledgertest.Append(t, b.DB, b.Enqueue("running"), ledger.EventStarted)
	ledgertest.Append(t, b.DB, again, ledger.EventBuried)
	b.EnqueueMany(5)
	ledgertest.Append(t, b.DB, again, ledger.EventReleased)
	b.Project()
	for _, statement := range []string{
		`select * from taskledger.enqueue('test.order', 'sql')`,
		`select * from taskledger.enqueue_many('[{"kind":"test.order","biz_id":"sql many"}]')`,
	} {
		b.Exec(statement)
	}
	timed := try(order.Enqueue(b.Context(), b.DB, "timed", orderArgs{}, &ledger.EnqueueOptions{StartBy: time.Now().Add(time.Hour)}))(t)
	if !timed.New || timed.State != ledger.StateAvailable {
		t.Errorf("%+v", timed)
	}
	b.shed(s)
	if diff := cmp.Diff([]string{"again", "sql", "sql many", "timed"}, b.available()); diff != "" {
		t.Errorf("still waiting (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"o-0000", "o-0001", "o-0002", "o-0003", "o-0004"}, b.ofState(ledger.StateDiscarded)); diff != "" {
		t.Errorf("discarded (-want +got):\n%s", diff)
	}
	history := b.History(ledger.Key{Kind: order.Name(), BizID: "o-0000"})
	if last := history[len(history)-1]; last.Actor != "scheduler" || string(last.Data) != `{"reason":"too many tasks of its kind wait"}` {
		t.Errorf("%+v", last)
	}

	// What was discarded and is released is the youngest.
	ledgertest.Append(t, b.DB, ledger.Key{Kind: order.Name(), BizID: "o-0000"}, ledger.EventReleased)
	b.shed(s)
	if diff := cmp.Diff([]string{"o-0000", "sql", "sql many", "timed"}, b.available()); diff != "" {
		t.Errorf("still waiting (-want +got):\n%s", diff)
	}
	b.shed(s) // nothing more
	if n := len(b.available()); n != 4 {
		t.Errorf("%d wait, want 4", n)
	}
	ledgertest.Check(t, b.DB)
}

// However late the projector is, however many discard, and whoever else takes the tasks meanwhile,
// no more are discarded than were too many.
func TestDiscardOldestNotTooMany(t *testing.T) {
	t.Parallel()
	b := limitOldest(t, 10)
	b.EnqueueMany(30)
	b.Project()
	ledgertest.Append(t, b.DB, ledger.Key{Kind: order.Name(), BizID: "o-0003"}, ledger.EventSucceeded) // not counted yet
	b.EnqueueRound("p", 5)                                                                             // nor are these
	var shedders sync.WaitGroup
	for range 4 {
		s := b.scheduler()
		shedders.Go(func() {
			for range 3 {
				if err := s.Shed(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	shedders.Wait()
	if n := len(b.ofState(ledger.StateDiscarded)); n != 19 {
		t.Errorf("%d were discarded, want 19", n)
	}
	b.shed(b.scheduler())
	var want []string
	for i := 25; i < 30; i++ {
		want = append(want, fmt.Sprintf("o-%04d", i))
	}
	for i := range 5 {
		want = append(want, fmt.Sprintf("p-%04d", i))
	}
	if diff := cmp.Diff(want, b.available()); diff != "" {
		t.Errorf("still waiting (-want +got):\n%s", diff)
	}
	ledgertest.Check(t, b.DB)
}

// A task that becomes visible late, after others with higher positions, is as young as it became
// visible, and is not missed. After a crash of the database the place is found anew.
func TestDiscardOldestThatCommitsLate(t *testing.T) {
	t.Parallel()
	b := limitOldest(t, 2)
	s := b.scheduler()
	tx := try(b.DB.Begin(b.Context()))(t)
	defer func() { _ = tx.Rollback(b.Context()) }()
	ledgertest.Enqueue(t, tx, ledger.Key{Kind: order.Name(), BizID: "late"}, "")
	b.EnqueueMany(5)
	b.shed(s)
	if err := tx.Commit(b.Context()); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		more string
		want []string
	}{
		{"a", []string{"a-0000", "late"}},
		{"b", []string{"a-0000", "b-0000"}},
		{"c", []string{"b-0000", "c-0000"}},
	} {
		b.EnqueueRound(step.more, 1)
		b.shed(s)
		if diff := cmp.Diff(step.want, b.available()); diff != "" {
			t.Errorf("still waiting after %s (-want +got):\n%s", step.more, diff)
		}
		if step.more == "b" { // as if it had crashed
			b.Exec("delete from taskledger.incarnation")
			if err := s.Shed(b.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Everybody at once: producers, workers, two schedulers. Each task is done once, or discarded and
// not done. What has begun is not discarded, or nothing would ever be done.
func TestDiscardOldestBesideWorkers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.SetLimit(20, ledger.DiscardOldest)
	b.Relay()
	b.Start(try(projector.New(projector.Config{DB: b.DB}))(t).Run)
	b.schedule(nil)
	b.schedule(nil)
	w := b.Work(workers.Config{}, exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		if _, err := tx.Exec(ctx, "select pg_sleep(0.05)"); err != nil {
			return err
		}
		return insertEffect(ctx, tx, job, args)
	}, &workers.KindConfig{Slots: 2}))
	const tasks = 1500
	for i := range tasks / 100 {
		b.EnqueueRound(fmt.Sprint("r", i), 100)
	}
	finished := func(s ledger.State) int {
		return one[int](b, "select count(*)::integer from taskledger.event where taskledger.state_after(type) = $1::text::taskledger.task_state", string(s))
	}
	b.Await("all to be done or discarded", func() bool {
		return finished(ledger.StateSucceeded)+finished(ledger.StateDiscarded) == tasks
	})
	done, discarded := finished(ledger.StateSucceeded), finished(ledger.StateDiscarded)
	t.Logf("%d done, %d discarded; %+v", done, discarded, w.KindStatus().Attempts)
	if done < 20 || discarded < tasks/2 {
		t.Errorf("%d done, %d discarded", done, discarded)
	}
	b.WantOneEffectEach(done)
	if n := one[int](b, "select count(*)::integer from effect f join taskledger.event e on e.biz_id = f.biz_id where e.type = 'discarded'"); n > 0 {
		t.Errorf("%d of the discarded had effects", n)
	}
	ledgertest.Check(t, b.DB)
}

// A handler that is at work while its kind is over the limit goes on, and succeeds.
func TestDiscardOldestLeavesWhatHasBegun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.SetLimit(1, ledger.DiscardOldest)
	b.Relay()
	b.EnqueueMany(1)
	b.Project()
	begun, goOn := make(chan struct{}), make(chan struct{})
	b.Work(workers.Config{AckWait: forEver}, exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		if job.BizID == "o-0000" {
			close(begun)
		}
		<-goOn
		return insertEffect(ctx, tx, job, args)
	}, &workers.KindConfig{Slots: 1, StartedAfter: forEver / 2}))
	<-begun
	b.EnqueueRound("p", 3)
	b.shed(b.scheduler())
	if diff := cmp.Diff([]string{"p-0002"}, b.available()); diff != "" {
		t.Errorf("still waiting (-want +got):\n%s", diff)
	}
	close(goOn)
	b.AwaitState(ledger.Key{Kind: order.Name(), BizID: "o-0000"}, ledger.StateSucceeded)
}

// With everything at work the limit is passed while somebody enqueues, and soon afterwards no more: the
// newest are left.
func TestDiscardOldestSettles(t *testing.T) {
	t.Parallel()
	b := limitOldest(t, 20)
	b.Start(try(projector.New(projector.Config{DB: b.DB}))(t).Run)
	b.schedule(nil)
	b.schedule(nil)
	for i := range 10 {
		b.EnqueueRound(fmt.Sprint("r", i), 50)
	}
	b.Await("the rest to be discarded", func() bool { return len(b.available()) == 20 })
	if left := b.available(); left[0] != "r9-0030" {
		t.Errorf("the oldest that is left is %s", left[0])
	}
	if n := len(b.ofState(ledger.StateDiscarded)); n != 480 {
		t.Errorf("%d were discarded, want 480", n)
	}
}

// A scheduler that is killed in the middle leaves the rest to the next one, which goes no further.
func TestDiscardOldestKilled(t *testing.T) {
	t.Parallel()
	b := limitOldest(t, 100)
	b.EnqueueMany(2600)
	b.Project()
	b.Spawn("scheduler", "scheduler.shedding").AwaitKilled(t)
	gone := len(b.ofState(ledger.StateDiscarded))
	if gone == 0 || gone >= 2500 {
		t.Fatalf("%d were gone when it was killed", gone)
	}
	s := b.scheduler()
	if err := s.Shed(b.Context()); err != nil { // with the same count
		t.Fatal(err)
	}
	b.shed(s)
	available := b.available()
	if len(available) != 100 || available[0] != "o-2500" {
		t.Errorf("%d wait, the first is %s", len(available), available[0])
	}
	ledgertest.Check(t, b.DB)
}

// What is finished costs nothing: with 100,000 finished tasks of the kind before those that wait a look
// reads as many pages as without them. A task that has waited for long is found once; later looks go
// on from there.
func TestDiscardOldestCost(t *testing.T) {
	t.Parallel()
	b := limitOldest(t, 10)
	counting := &countingTracer{pages: make(map[string]int)}
	c := b.DB.Config()
	c.ConnConfig.Tracer = counting
	pool := try(pgxpool.NewWithConfig(b.Context(), c))(t)
	defer pool.Close()
	cost := func(s *workers.Scheduler) map[string]int {
		b.EnqueueRound(fmt.Sprint("w", one[int64](b, "select max(position) from taskledger.event")), 40)
		b.Project()
		clear(counting.pages)
		if err := s.Shed(b.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(b.available()); n != 10 {
			t.Fatalf("%d wait", n)
		}
		return maps.Clone(counting.pages)
	}
	finish := func() {
		for _, id := range b.available() {
			ledgertest.Append(t, b.DB, ledger.Key{Kind: order.Name(), BizID: ledger.BizID(id)}, ledger.EventSucceeded)
		}
	}
	scheduler := func() *workers.Scheduler { return try(workers.NewScheduler(workers.SchedulerConfig{DB: pool}))(t) }
	history := func(kind, prefix string, tasks int) {
		b.Exec(`insert into taskledger.event (version, attempt, shard, type, kind, biz_id)
			select v, v - 1, 0, case v when 1 then 'enqueued' else 'succeeded' end::taskledger.event_type, $1, $2 || i
			  from generate_series(1, $3) i, generate_series(1, 2) v`, kind, prefix, tasks)
	}
	b.EnqueueMany(1)
	few := cost(scheduler())
	finish()
	history("test.order", "f-", 100_000)
	b.Exec("vacuum analyze taskledger.event")
	if diff := cmp.Diff(few, cost(scheduler())); diff != "" {
		t.Errorf("statements of a look (-want +with 100,000 finished tasks before):\n%s", diff)
	}
	finish()
	b.EnqueueRound("straggler", 1)
	history("test.other", "g-", 20_000)
	s := scheduler()
	far := cost(s)
	t.Logf("with a task that has waited for 40,000 events: %v", far)
	if far["overload_back.sql"] < 20 {
		t.Errorf("it cannot have been found: %v", far)
	}
	cost(s) // passes what was before those that went
	if next := cost(s); next["overload_back.sql"] != 0 || next["overload_page.sql"] > 3 {
		t.Errorf("then: %v", next)
	}

	seen := one[string](b, "select seen::text from taskledger.cursor where reader = 'projector' order by n desc limit 1")
	const page = 2000
	if n := b.blocks("overload_back.sql", "test.order", int64(math.MaxInt64), page, seen, "", 0); n > 5*page {
		t.Errorf("a page of %d events backwards touches %d blocks", page, n)
	} else {
		t.Logf("a page of %d events backwards touches %d blocks", page, n)
	}
	top := one[int64](b, "select max(position) from taskledger.event")
	incarnation := one[string](b, "select taskledger.incarnation()")
	if n := b.blocks("overload_page.sql", "test.order", "3:3:", 0, "3", seen, top, top-2*page, page, 30, seen, "", 0, incarnation); n > 5*page {
		t.Errorf("a page of %d events forwards touches %d blocks", page, n)
	} else {
		t.Logf("a page of %d events forwards touches %d blocks", page, n)
	}
}

// countingTracer counts the statements that look for waiting tasks.
type countingTracer struct{ pages map[string]int }

func (c *countingTracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (c *countingTracer) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	for name, text := range workers.Statements {
		if text == d.SQL && strings.HasPrefix(name, "overload_") {
			c.pages[name]++
		}
	}
}

func (c *countingTracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
func (c *countingTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (c *countingTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
