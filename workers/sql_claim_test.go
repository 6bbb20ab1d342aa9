package workers_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
)

// claimer claims tasks of test.order by SQL, as a worker in another language may.
type claimer struct {
	*bundle
	db     *pgxpool.Pool
	worker string
}

func (b *bundle) claimer(worker string) *claimer {
	b.T.Helper()
	c := &claimer{b, b.As("worker"), worker}
	c.heartbeat()
	return c
}

func (c *claimer) heartbeat() {
	c.T.Helper()
	try(c.db.Exec(c.Context(), "select taskledger.heartbeat($1, '{test.order}')", c.worker))(c.T)
}

// claim returns the ids of at most n tasks that it claims.
func (c *claimer) claim(n int) string {
	c.T.Helper()
	return claimOn(c.T, c.db, c.worker, n)
}

func claimOn(tb testing.TB, db ledger.DB, worker string, n int) string {
	tb.Helper()
	rows, _ := db.Query(tb.Context(), "select biz_id from taskledger.claim_next('test.order', $1, $2)", worker, n)
	return strings.Join(try(pgx.CollectRows(rows, pgx.RowTo[string]))(tb), " ")
}

// finish lets a claimed task succeed.
func (c *claimer) finish(id string) {
	c.T.Helper()
	try(c.db.Exec(c.Context(), `select taskledger.finish('test.order', $1, max(e.version))
		from taskledger.event e where e.kind = 'test.order' and e.biz_id = $1`, id))(c.T)
}

// blocks returns how many blocks the next claim of a task reads.
func (c *claimer) blocks() int {
	c.T.Helper()
	return plantest.Blocks(c.T, c.db, nil,
		fmt.Sprintf("select * from taskledger.claim_next('test.order', '%s', 10)", c.worker))
}

// addHistory adds n tasks of a kind that have finished.
func (b *bundle) addHistory(kind, prefix string, n int) {
	b.T.Helper()
	b.Exec(`
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id, actor)
		select v.version, v.version - 1, 0, v.type::taskledger.event_type, $1, $2 || g, 'a'
		  from generate_series(1, $3::integer) g
		 cross join (values (1, 'enqueued'), (2, 'succeeded')) v(version, type)`, kind, prefix, n)
}

// addTasks adds n tasks of a kind with one event.
func (b *bundle) addTasks(kind, prefix string, n int, eventType ledger.EventType) {
	b.T.Helper()
	b.Exec(`
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id, actor)
		select 1, 0, 0, $4::text::taskledger.event_type, $1, $2 || g, 'a' from generate_series(1, $3::integer) g`,
		kind, prefix, n, string(eventType))
}

// list makes the projection list all unfinished tasks, up to the present.
func (b *bundle) list() {
	b.T.Helper()
	b.Project()
	ledgertest.ExecAsOwner(b.T, b.DB, `
		update taskledger.task t
		   set lingering = (
		     select max(e.position)
		       from taskledger.event e
		      where e.kind = t.kind and e.biz_id = t.biz_id and e.type in ('enqueued', 'released', 'interrupted'))
		 where t.state in ('available', 'running');
		insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, origin, mark)
		select 'projector', (select max(n) from taskledger.cursor where reader = 'projector') + 1, e.seen, e.top,
		       e.bound, taskledger_internal.origin(),
		       json_build_object('listed', json_build_object('seen',
		         json_build_object('snapshot', e.seen, 'top', e.top, 'bound', e.bound)))
		  from (select pg_current_snapshot() as seen, pg_current_xact_id() as bound,
		               pg_sequence_last_value('taskledger.event_position_seq'::regclass) as top) e`)
	ledgertest.ExecAsOwner(b.T, b.DB, "vacuum analyze taskledger.event, taskledger.task, taskledger.cursor")
}

// noteMoment records the visible events, as a feed does about every second.
func (b *bundle) noteMoment() {
	b.T.Helper()
	b.Forge(`
		insert into taskledger.moment (at, snapshot, top, bound)
		select clock_timestamp(), m.snapshot, m.top, pg_current_xact_id()
		  from (select pg_current_snapshot() as snapshot,
		               pg_sequence_last_value('taskledger.event_position_seq'::regclass) as top) m`)
}

// The first call claims the only waiting task, whatever else is in the ledger, and reads as little as in a small
// ledger. The waiting task is on the list, or is not yet.
func TestClaimNextPassesOverHistory(t *testing.T) {
	t.Parallel()
	b := setupDatabase(t)
	const n = 6_000
	b.addHistory("test.order", "a", n)
	b.addTasks("test.order", "old", 1, ledger.EventEnqueued)
	b.addTasks("test.order", "later", n, ledger.EventScheduled)
	b.addTasks("test.other", "o", n, ledger.EventEnqueued)
	b.addHistory("test.order", "z", n)
	b.list()
	c := b.claimer("sql")
	for _, w := range try(workers.ReadWorkers(b.Context(), b.DB, "", lists.All))(t) {
		if !w.Alive || len(w.Kinds) != 1 || w.Kinds[0].Guarantee != workers.ExactlyOnce {
			t.Errorf("worker in SQL: %+v", w)
		}
	}
	const most = 400
	if blocks := c.blocks(); blocks > most {
		t.Errorf("a claim of a listed task reads %d blocks", blocks)
	}
	if got := c.claim(1); got != "old1" {
		t.Errorf("the first call claims %q", got)
	}
	b.Enqueue("new")
	if blocks := c.blocks(); blocks > most {
		t.Errorf("a claim of a new task reads %d blocks", blocks)
	}
	if got := c.claim(2) + c.claim(2); got != "new" {
		t.Errorf("then two calls claim %q", got)
	}
	if blocks := c.blocks(); blocks > most {
		t.Errorf("a call that finds nothing reads %d blocks", blocks)
	}
}

// Each call claims a task of a partition that is not full, however many tasks of a full one come first.
func TestClaimNextPassesOverAFullPartition(t *testing.T) {
	t.Parallel()
	b := setupDatabase(t)
	b.Exec(`
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id, actor, partition)
		select 1, 0, 0, 'enqueued', 'test.order', coalesce(v.partition, 'none') || '-' || g, 'a', v.partition
		  from (values ('acme', 200), ('bit', 3), (null, 1)) v(partition, n)
		 cross join generate_series(1, v.n) g
		 order by v.n desc, g`)
	b.list()
	b.setStartLimit(ledger.StartLimit{Per: ledger.PerPartition, MaxRunning: new(1)})
	c := b.claimer("sql")
	var claimed []string
	for range 5 {
		id := c.claim(1)
		claimed = append(claimed, id)
		if strings.HasPrefix(id, "bit") {
			c.finish(id)
		}
	}
	slices.Sort(claimed)
	if diff := difference.Of([]string{"acme-1", "bit-1", "bit-2", "bit-3", "none-1"}, claimed); diff != "" {
		t.Errorf("claimed (-want +got):\n%s", diff)
	}
}

// However many full partitions or lines come first, a few calls reach a task that may start: each call passes over 50.
func TestClaimNextPassesOverManyFullValues(t *testing.T) {
	t.Parallel()
	for _, per := range []ledger.LimitPer{ledger.PerPartition, ledger.PerOrderKey} {
		t.Run(string(per), func(t *testing.T) {
			t.Parallel()
			b := setupDatabase(t)
			const full = 120
			b.setStartLimit(ledger.StartLimit{Per: per, MaxRunning: new(1)})
			c := b.claimer("sql")
			b.Forge(`
				insert into taskledger.event (version, attempt, shard, type, kind, biz_id, actor, partition, order_key)
				select v.version, v.version / 3, 0, v.type::taskledger.event_type, 'test.order', v.id || g, 'sql',
				       case when $2 = 'partition' then 'p' || g end, case when $2 = 'order_key' then 'p' || g end
				  from generate_series(1001, 1000 + $1::integer) g
				 cross join (values (1, 'enqueued', 'r'), (2, 'released', 'r'), (3, 'started', 'r'),
				                    (1, 'enqueued', 'w')) v(version, type, id)
				 order by g, v.id, v.version`, full, string(per))
			b.Forge(`
				insert into taskledger.event (version, attempt, shard, type, kind, biz_id, actor, partition, order_key)
				values (1, 0, 0, 'enqueued', 'test.order', 'free', 'a',
				        case when $1 = 'partition' then 'q' end, case when $1 = 'order_key' then 'q' end)`, string(per))
			b.list()
			for calls := 1; ; calls++ {
				got := c.claim(1)
				if got == "free" {
					break
				}
				if got != "" || calls > full/50+2 {
					t.Fatalf("call %d claims %q", calls, got)
				}
			}
		})
	}
}

// Partitions get tasks in proportion to their weights, whether calls claim one task or many. Priorities come first.
func TestClaimNextByWeight(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 20} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			b := setupDatabase(t)
			b.Exec(`
				insert into taskledger.event (version, attempt, shard, type, kind, biz_id, actor, partition, priority)
				select 1, 0, 0, 'enqueued', 'test.order', v.partition || '-' || g, 'a', v.partition, v.priority
				  from (values ('heavy', 0, 150), ('light', 0, 150), ('plain', 0, 150), ('low', 4, 20), ('high', 1, 20))
				         v(partition, priority, n)
				 cross join generate_series(1, v.n) g`)
			b.list()
			for partition, weight := range map[string]float64{"heavy": 3, "light": 0.5} {
				if err := ledger.SetPartitionWeight(b.Context(), b.DB, partition, weight, "ada"); err != nil {
					t.Fatal(err)
				}
			}
			c := b.claimer("sql")
			got := map[string]int{}
			const urgent, others = 20, 100
			for claimed := 0; claimed < urgent+others; b.list() {
				c.heartbeat()
				for range max(1, 8/n) { // tasks that are not projected yet are passed over, up to a number
					for id := range strings.FieldsSeq(c.claim(n)) {
						partition, _, _ := strings.Cut(id, "-")
						if claimed++; (partition == "high") != (claimed <= urgent) {
							t.Fatalf("%s is the task %d", id, claimed)
						}
						got[partition]++
					}
				}
			}
			// Of 4.5 tasks, 3 are heavy, 1 plain and half a one light. Five standard deviations of a lottery.
			for partition, share := range map[string]float64{"heavy": 3 / 4.5, "plain": 1 / 4.5, "light": 0.5 / 4.5} {
				want, deviation := others*share, 5*math.Sqrt(others*share*(1-share))
				if d := float64(got[partition]) - want; math.Abs(d) > deviation {
					t.Errorf("%d tasks of %s, want %.0f: %v", got[partition], partition, want, got)
				}
			}
		})
	}
}

// Urgent tasks come first, though more urgent tasks run than a call reads of a partition.
func TestClaimNextPassesOverRunningUrgentTasks(t *testing.T) {
	t.Parallel()
	b := setupDatabase(t)
	b.claimer("other")
	b.Forge(`
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id, actor, partition, priority)
		select v.version, v.version - 1, 0, v.type::taskledger.event_type, 'test.order', v.id || g, 'other',
		       v.partition, v.priority
		  from (values (1, 'enqueued', 'runs', 'a', 1), (2, 'started', 'runs', 'a', 1),
		               (1, 'enqueued', 'urgent', 'a', 1), (1, 'enqueued', 'low', 'b', 4))
		         v(version, type, id, partition, priority)
		 cross join generate_series(1, case v.id when 'runs' then 40 else 2 end) g
		 order by v.id = 'urgent', v.id, g, v.version`)
	b.list()
	c := b.claimer("sql")
	if got := c.claim(1) + " " + c.claim(1) + " " + c.claim(1); got != "urgent1 urgent2 low1" {
		t.Errorf("claimed %s", got)
	}
}

// Without a list, as long as no projector runs, calls read the events from the first one on, each a bounded number.
// They keep their place, so that a new task is then found at once.
func TestClaimNextWithoutAList(t *testing.T) {
	t.Parallel()
	b := setupDatabase(t)
	const n = 10_000
	b.addHistory("test.order", "a", n)
	b.addTasks("test.order", "old", 1, ledger.EventEnqueued)
	b.addHistory("test.order", "z", n)
	b.noteMoment()
	c := b.claimer("sql")
	var calls int
	for got := ""; got != "old1"; got = c.claim(1) {
		if calls++; calls > 2*n/5000+1 {
			t.Fatalf("%d calls have not found the task", calls)
		}
	}
	for range 2*n/5000 + 1 {
		if got := c.claim(1); got != "" {
			t.Errorf("got %q", got)
		}
	}
	for i := range 3 {
		id := fmt.Sprint("new", i)
		b.Enqueue(id)
		if blocks := c.blocks(); blocks > 1000 {
			t.Errorf("a claim of a new task reads %d blocks", blocks)
		}
		if got := c.claim(1); got != id {
			t.Errorf("got %q, want %q", got, id)
		}
	}
}

// A task whose transaction commits when the worker has passed its event is claimed all the same, before it is listed.
func TestClaimNextFindsWhatCommitsLate(t *testing.T) {
	t.Parallel()
	b := setupDatabase(t)
	c := b.claimer("sql")
	b.addHistory("test.other", "a", 4_000)
	late := try(b.As("producer").Begin(b.Context()))(t)
	defer func() { _ = late.Rollback(context.Background()) }()
	try(order.Enqueue(b.Context(), late, "late", orderArgs{Amount: 1}, nil))(t)
	b.addHistory("test.other", "b", 4_000)
	b.noteMoment()
	for range 4 { // to the end, and once from there
		if got := c.claim(1); got != "" {
			t.Fatalf("got %q", got)
		}
	}
	if blocks := c.blocks(); blocks > 400 {
		t.Errorf("the worker has not passed the events: a call reads %d blocks", blocks)
	}
	// In the middle of the next pass, which takes two calls, as well.
	b.addHistory("test.other", "c", 4_000)
	if got := c.claim(1); got != "" {
		t.Fatalf("got %q", got)
	}
	if err := late.Commit(b.Context()); err != nil {
		t.Fatal(err)
	}
	if got := c.claim(1) + c.claim(1) + c.claim(1); got != "late" { // that pass has two calls, the next one as well
		t.Errorf("got %q, want the task that was committed late", got)
	}
}

// Tasks are claimed in the order in which they became available, listed or not. Tasks of live workers are passed over,
// and tasks of lost workers are taken over in their turn.
func TestClaimNextInOrder(t *testing.T) {
	t.Parallel()
	b := setupDatabase(t)
	const running = 3_000
	b.Exec(`
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id, actor)
		select v.version, v.version - 1, 0, v.type::taskledger.event_type, 'test.order', 'r' || g, 'other'
		  from generate_series(1, $1::integer) g
		 cross join (values (1, 'enqueued'), (2, 'started')) v(version, type)`, running)
	other := b.claimer("other")
	for _, id := range []string{"c", "a", "b"} {
		b.Enqueue(id)
	}
	b.list()
	for _, id := range []string{"z", "x", "y"} {
		b.Enqueue(id)
	}
	c := b.claimer("sql")
	var got []string
	for range 6 {
		if id := c.claim(1); id != "" {
			got = append(got, id)
		}
	}
	if want := "c a b z x y"; strings.Join(got, " ") != want {
		t.Errorf("claimed %q, want %q", got, want)
	}
	b.Enqueue("last")
	try(other.db.Exec(b.Context(), "select taskledger.heartbeat('other', '{test.order}', '0')"))(t)
	if id := c.claim(2); id != "r1 r2" {
		t.Errorf("of the tasks of a lost worker %q are taken over, want the first two", id)
	}
}

// A kind that is paused has nothing to claim.
func TestClaimNextOfAPausedKind(t *testing.T) {
	t.Parallel()
	b := setupDatabase(t)
	c := b.claimer("sql")
	b.Exec("insert into taskledger.pause (kind, actor, reason) values ('test.order', 'a', '')")
	k := b.Enqueue("paused")
	if got := c.claim(1); got != "" || b.Task(k).State != ledger.StateAvailable {
		t.Fatalf("a paused kind: %q is claimed", got)
	}
	_, err := c.db.Exec(b.Context(), "select * from taskledger.claim('test.order', 'paused', 'sql')")
	if !pgerr.Is(err, "TL003") {
		t.Errorf("a claim of a paused kind: %v", err)
	}
	b.Forge("delete from taskledger.pause")
	if got := c.claim(1); got != "paused" {
		t.Errorf("got %q", got)
	}
}

// claim_next finds a task even if a role that may only connect holds an advisory lock of it, and passes over a task
// that another claimer holds in an open transaction.
func TestClaimNextPassesOverClaimedTasksOnly(t *testing.T) {
	t.Parallel()
	b := setupDatabase(t)
	for i, isListed := range []bool{false, true} {
		ids := []string{fmt.Sprint(2*i + 1), fmt.Sprint(2*i + 2)}
		for _, id := range ids {
			b.Enqueue(id)
		}
		if isListed {
			b.list()
		}
		for _, id := range ids {
			ledgertest.HoldAdvisoryLocks(t, b.DB, "taskledger.claim/test.order/"+id)
		}
		one, two := b.claimer("one"), b.claimer("two")
		first := try(one.db.Begin(b.Context()))(t)
		second := try(two.db.Begin(b.Context()))(t)
		got := claimOn(t, first, "one", 1) + " " + claimOn(t, second, "two", 1)
		if want := strings.Join(ids, " "); got != want {
			t.Errorf("listed %t: got the tasks %q, want %q", isListed, got, want)
		}
		for _, tx := range []pgx.Tx{first, second} {
			if err := tx.Commit(b.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

// A worker in SQL that begins while a worker in Go runs claims no task that the other has begun without a record, or
// begins meanwhile: no handler begins twice. When it has gone, the other no longer records each start.
func TestFirstClaimBesideAPool(t *testing.T) {
	t.Parallel()
	b := &bundle{servicetest.NewServed(t, outbox.StreamConfig{})}
	var mu sync.Mutex
	begun := make(map[string]int)
	begin := func(id string) {
		mu.Lock()
		defer mu.Unlock()
		begun[id]++
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(begun)
	}
	goOn := make(chan struct{})
	const slots, n = 10, 60
	b.Work(workers.Config{LeaseTTL: time.Minute}, b.atLeast(
		func(_ context.Context, job *workers.Job, _ orderArgs) error {
			begin(string(job.BizID))
			<-goOn
			return nil
		}, workers.SetStartedAfter(3*time.Second, workers.KindConfig{Slots: slots})))
	b.EnqueueMany(n)
	b.Await("the first tasks to begin", func() bool { return count() == slots })
	c := b.claimer("sql")
	claim := func() bool {
		id := c.claim(1)
		if id != "" {
			begin(id)
			c.finish(id)
		}
		return id != ""
	}
	b.Await("the first claim", claim)
	close(goOn)
	b.Await("all tasks to succeed", func() bool {
		claim()
		return one[int](b, "select count(*)::integer from taskledger.event where type = 'succeeded'") == n
	})
	for id, times := range begun {
		if times != 1 {
			t.Errorf("%s has begun %d times", id, times)
		}
	}
	if len(begun) != n {
		t.Errorf("%d of %d tasks have begun", len(begun), n)
	}
	try(c.db.Exec(b.Context(), "select taskledger.heartbeat('sql', '{test.order}', '0')"))(t)
	round := 0
	b.Await("a task without a recorded start", func() bool {
		round++
		k := b.Enqueue(fmt.Sprint("after", round))
		b.AwaitState(k, ledger.StateSucceeded)
		return len(b.History(k)) == 2
	})
}

// A worker in SQL begins a task, and is started again for other kinds under its name. A worker in Go takes over.
func TestATaskOfASQLWorkerThatNoLongerHasItsKind(t *testing.T) {
	t.Parallel()
	b := &bundle{servicetest.NewServed(t, outbox.StreamConfig{})}
	k := b.Enqueue("x")
	c := b.claimer("sql")
	if id := c.claim(1); id != "x" {
		t.Fatalf("claimed %q", id)
	}
	b.Work(workers.Config{}, b.exactly(insertEffect, nil))
	b.AwaitState(b.Enqueue("y"), ledger.StateSucceeded)
	if s := b.Task(k).State; s != ledger.StateRunning {
		t.Errorf("while the lease contains the kind: %s", s)
	}
	try(c.db.Exec(b.Context(), "select taskledger.heartbeat('sql', '{test.other}', '1 day')"))(t)
	b.AwaitState(k, ledger.StateSucceeded)
}
