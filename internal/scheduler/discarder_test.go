package scheduler_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/scheduler"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// setupLimit returns a fixture with a limit on kind Order that discards the oldest.
func setupLimit(t *testing.T, maxWaiting int64) *fixture {
	t.Helper()
	b := setup(t)
	b.SetLimit(maxWaiting, ledger.DiscardOldest)
	return b
}

// orderKey returns the key of a task of kind Order.
func orderKey(id ledger.BizID) ledger.Key {
	return ledger.Key{Kind: servicetest.Order.Name(), BizID: id}
}

// discard projects all events, and then has s discard the tasks above limits.
func (b *fixture) discard(s *scheduler.Scheduler) {
	b.T.Helper()
	b.Project()
	if err := s.Discard(b.Context()); err != nil {
		b.T.Fatal(err)
	}
}

// available returns the available tasks of kind Order, by name.
func (b *fixture) available() []string { return b.TasksIn(ledger.StateAvailable) }

// Every way of enqueueing is accepted above the limit. Then the oldest waiting tasks are discarded, by when they
// became available, until no more than the limit are left.
func TestDiscardOldest(t *testing.T) {
	t.Parallel()
	b := setupLimit(t, 4)
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
	o := &ledger.EnqueueOptions{StartBy: time.Now().Add(time.Hour)}
	timed := servicetest.Try(servicetest.Order.Enqueue(b.Context(), b.DB, "timed", servicetest.OrderArgs{}, o))(t)
	if !timed.New || timed.State != ledger.StateAvailable {
		t.Errorf("%+v", timed)
	}
	b.discard(s)
	if diff := difference.Of([]string{"again", "sql", "sql many", "timed"}, b.available()); diff != "" {
		t.Errorf("still waiting (-want +got):\n%s", diff)
	}
	want := []string{"o-0000", "o-0001", "o-0002", "o-0003", "o-0004"}
	if diff := difference.Of(want, b.TasksIn(ledger.StateDiscarded)); diff != "" {
		t.Errorf("discarded (-want +got):\n%s", diff)
	}
	history := b.History(orderKey("o-0000"))
	const reason = `{"reason":"too many tasks of its kind wait"}`
	if last := history[len(history)-1]; last.Actor != "scheduler" || string(last.Data) != reason {
		t.Errorf("%+v", last)
	}

	// A discarded task that is released is the youngest.
	ledgertest.Append(t, b.DB, orderKey("o-0000"), ledger.EventReleased)
	b.discard(s)
	if diff := difference.Of([]string{"o-0000", "sql", "sql many", "timed"}, b.available()); diff != "" {
		t.Errorf("still waiting (-want +got):\n%s", diff)
	}
	b.discard(s) // nothing more
	if n := len(b.available()); n != 4 {
		t.Errorf("%d wait, want 4", n)
	}
	ledgertest.Check(t, b.DB)
}

// No more tasks are discarded than were too many, however late the projector is, however many schedulers run,
// and although workers take tasks meanwhile.
func TestDiscardOldestNotTooMany(t *testing.T) {
	t.Parallel()
	b := setupLimit(t, 10)
	b.EnqueueMany(30)
	b.Project()
	ledgertest.Append(t, b.DB, orderKey("o-0003"), ledger.EventSucceeded) // not counted yet
	b.EnqueueRound("p", 5)                                                // nor are these
	var schedulers sync.WaitGroup
	for range 4 {
		s := b.scheduler()
		schedulers.Go(func() {
			for range 3 {
				if err := s.Discard(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	schedulers.Wait()
	if n := len(b.TasksIn(ledger.StateDiscarded)); n != 19 {
		t.Errorf("%d were discarded, want 19", n)
	}
	b.discard(b.scheduler())
	var want []string
	for i := 25; i < 30; i++ {
		want = append(want, fmt.Sprintf("o-%04d", i))
	}
	for i := range 5 {
		want = append(want, fmt.Sprintf("p-%04d", i))
	}
	if diff := difference.Of(want, b.available()); diff != "" {
		t.Errorf("still waiting (-want +got):\n%s", diff)
	}
	ledgertest.Check(t, b.DB)
}

// The age of a task that becomes visible late, after others with higher positions, counts from that moment, and
// the task is not missed. After a crash of the database the backlog is found again.
func TestDiscardOldestThatCommitsLate(t *testing.T) {
	t.Parallel()
	b := setupLimit(t, 2)
	s := b.scheduler()
	tx := servicetest.Try(b.DB.Begin(b.Context()))(t)
	defer func() { _ = tx.Rollback(b.Context()) }()
	ledgertest.Enqueue(t, tx, orderKey("late"), "")
	b.EnqueueMany(5)
	b.discard(s)
	if err := tx.Commit(b.Context()); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		more string
		want []string
	}{
		{more: "a", want: []string{"a-0000", "late"}},
		{more: "b", want: []string{"a-0000", "b-0000"}},
		{more: "c", want: []string{"b-0000", "c-0000"}},
	} {
		b.EnqueueRound(step.more, 1)
		b.discard(s)
		if diff := difference.Of(step.want, b.available()); diff != "" {
			t.Errorf("still waiting after %s (-want +got):\n%s", step.more, diff)
		}
		if step.more == "b" { // as if the database had crashed
			b.Forge("delete from taskledger.incarnation")
			if err := s.Discard(b.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// With projector and schedulers running, the limit holds soon after the last enqueue, and the newest are left.
func TestDiscardOldestConverges(t *testing.T) {
	t.Parallel()
	b := setupLimit(t, 20)
	b.Start(servicetest.Try(projector.New(projector.Config{DB: b.DB}))(t).Run)
	b.Schedule()
	b.Schedule()
	for i := range 10 {
		b.EnqueueRound(fmt.Sprint("r", i), 50)
	}
	b.Await("the rest to be discarded", func() bool { return len(b.available()) == 20 })
	if left := b.available(); left[0] != "r9-0030" {
		t.Errorf("the oldest that is left is %s", left[0])
	}
	if n := len(b.TasksIn(ledger.StateDiscarded)); n != 480 {
		t.Errorf("%d were discarded, want 480", n)
	}
}

// One of several schedulers discards. If it is lost, another continues once the lease has expired; if it stops, at
// once.
func TestOneSchedulerDiscards(t *testing.T) {
	t.Parallel()
	b := setupLimit(t, 10)
	first, second := b.scheduler(), b.scheduler()
	inTurn := func(s *scheduler.Scheduler, round string, want int) {
		t.Helper()
		b.EnqueueRound(round, 20)
		b.Project()
		if err := s.DiscardInTurn(b.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(b.TasksIn(ledger.StateDiscarded)); n != want {
			t.Errorf("%d are discarded after round %s, want %d", n, round, want)
		}
	}
	inTurn(first, "a", 10)
	inTurn(second, "b", 10)
	b.Forge("update taskledger.lease set alive_until = clock_timestamp() where name = 'discarder'")
	inTurn(second, "c", 50)

	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- second.Run(ctx) }()
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	inTurn(b.scheduler(), "d", 70)
}

// When a scheduler is killed in the middle, the next one discards the rest and no more.
func TestDiscardOldestKilled(t *testing.T) {
	t.Parallel()
	b := setupLimit(t, 100)
	b.EnqueueMany(2600)
	b.Project()
	b.SpawnAs("relay", "scheduler", "scheduler.discarding").AwaitKilled(t)
	gone := len(b.TasksIn(ledger.StateDiscarded))
	if gone == 0 || gone >= 2500 {
		t.Fatalf("%d were discarded when it was killed", gone)
	}
	s := b.scheduler()
	if err := s.Discard(b.Context()); err != nil { // with the same count
		t.Fatal(err)
	}
	b.discard(s)
	available := b.available()
	if len(available) != 100 || available[0] != "o-2500" {
		t.Errorf("%d wait, the first is %s", len(available), available[0])
	}
	ledgertest.Check(t, b.DB)
}

// Finished tasks cost nothing: with 100,000 finished tasks of the kind before the waiting ones a pass reads as
// many pages as without them. A task that has waited for long is found once, and later passes start there.
func TestDiscardOldestCost(t *testing.T) {
	t.Parallel()
	b := setupLimit(t, 10)
	counting := &countingTracer{pages: make(map[string]int)}
	c := b.DB.Config()
	c.ConnConfig.Tracer = counting
	pool := servicetest.Try(pgxpool.NewWithConfig(b.Context(), c))(t)
	defer pool.Close()
	cost := func(s *scheduler.Scheduler) map[string]int {
		b.EnqueueRound(fmt.Sprint("w", servicetest.One[int64](b, "select max(position) from taskledger.event")), 40)
		b.Project()
		clear(counting.pages)
		if err := s.Discard(b.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(b.available()); n != 10 {
			t.Fatalf("%d wait", n)
		}
		return maps.Clone(counting.pages)
	}
	finish := func() {
		for _, id := range b.available() {
			ledgertest.Append(t, b.DB, orderKey(ledger.BizID(id)), ledger.EventSucceeded)
		}
	}
	scheduler := func() *scheduler.Scheduler { return servicetest.Try(scheduler.New(scheduler.Config{DB: pool}))(t) }
	history := func(kind, prefix string, tasks int) {
		b.Forge(`insert into taskledger.event (version, attempt, shard, type, kind, biz_id)
			select v, v - 1, 0, case v when 1 then 'enqueued' else 'succeeded' end::taskledger.event_type, $1, $2 || i
			  from generate_series(1, $3) i, generate_series(1, 2) v`, kind, prefix, tasks)
	}
	b.EnqueueMany(1)
	few := cost(scheduler())
	finish()
	history("test.order", "f-", 100_000)
	b.Exec("vacuum analyze taskledger.event")
	if diff := difference.Of(few, cost(scheduler())); diff != "" {
		t.Errorf("statements of a pass (-want +with 100,000 finished tasks before):\n%s", diff)
	}
	finish()
	b.EnqueueRound("straggler", 1)
	history("test.other", "g-", 20_000)
	s := scheduler()
	far := cost(s)
	t.Logf("with a task that has waited for 40,000 events: %v", far)
	if far["backlog_start.sql"] < 20 {
		t.Errorf("it was found with too few statements: %v", far)
	}
	cost(s) // reads the events before the discarded tasks
	if next := cost(s); next["backlog_start.sql"] != 0 || next["backlog_page.sql"] > 3 {
		t.Errorf("then: %v", next)
	}

	seen := servicetest.One[string](b,
		"select seen::text from taskledger.cursor where reader = 'projector' order by n desc limit 1")
	const page = 2000
	if n := b.blocks("backlog_start.sql", "test.order", int64(math.MaxInt64), page, seen, "", 0); n > 5*page {
		t.Errorf("a page of %d events backwards reads %d blocks", page, n)
	} else {
		t.Logf("a page of %d events backwards reads %d blocks", page, n)
	}
	top := servicetest.One[ledger.Position](b, "select max(position) from taskledger.event")
	incarnation := servicetest.One[string](b, "select taskledger_internal.incarnation()")
	window := feed.Window{Seen: feed.Beginning(), Until: feed.Edge{Snapshot: seen, Top: top}}
	args := append([]any{"test.order"}, window.PageArgs(top-2*page, page)...)
	if n := b.blocks("backlog_page.sql", append(args, 30, seen, "", 0, incarnation)...); n > 5*page {
		t.Errorf("a page of %d events forwards reads %d blocks", page, n)
	} else {
		t.Logf("a page of %d events forwards reads %d blocks", page, n)
	}
}

// countingTracer counts the statements that read overloads and backlogs.
type countingTracer struct{ pages map[string]int }

func (c *countingTracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (c *countingTracer) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	for name, text := range scheduler.Statements {
		if text == d.SQL && strings.HasPrefix(name, "backlog_") || name == "overloads.sql" {
			c.pages[name]++
		}
	}
}

func (c *countingTracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
func (c *countingTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (c *countingTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
