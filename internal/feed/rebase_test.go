package feed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/longtest"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// rebaseDatabase: the test binary rebases this database if it is set.
const rebaseDatabase = "FEED_TEST_REBASE"

func TestMain(m *testing.M) {
	url := os.Getenv(rebaseDatabase)
	if url == "" {
		os.Exit(longtest.Run(m))
	}
	pool, err := pgxpool.New(context.Background(), url)
	if err == nil {
		_, err = feed.Rebase(context.Background(), pool, nil)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// transplant makes the events and cursors look as if they came from a dump of a cluster far ahead of this one.
func (f *feedFixture) transplant() {
	f.t.Helper()
	for _, sql := range []string{
		"alter table taskledger.event disable trigger user",
		"update taskledger.event set xid = '9000000000'",
		"alter table taskledger.event enable trigger user",
		"update taskledger.cursor set origin = '1/1', xid = '9000000000'",
	} {
		f.exec(f.owner, sql)
	}
}

func numbers(from, to int) (ids []string) {
	for i := from; i < to; i++ {
		ids = append(ids, fmt.Sprint(i))
	}
	return ids
}

func (f *feedFixture) rebase() bool {
	f.t.Helper()
	needed, err := feed.Rebase(f.ctx, f.owner, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	return needed
}

func (f *feedFixture) plan() feed.RebasePlan {
	f.t.Helper()
	plan, err := feed.PlanRebase(f.ctx, f.owner)
	if err != nil {
		f.t.Fatal(err)
	}
	return plan
}

// rebaseKilled runs a rebase in a process that is killed at the n-th passage of a crash point.
func (f *feedFixture) rebaseKilled(point string, n int) {
	f.t.Helper()
	cmd := exec.CommandContext(f.ctx, os.Args[0])
	cmd.Env = append(os.Environ(), rebaseDatabase+"="+f.server.URL(ledgertest.Database),
		fmt.Sprintf("%s=%s:%d", fault.Variable, point, n))
	output, err := cmd.CombinedOutput()
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
		f.t.Fatalf("the process ended with %v, not by SIGKILL at %s: %s", err, point, output)
	}
}

func (f *feedFixture) expectRefusalOf(reader string) {
	f.t.Helper()
	var origin *feed.OriginError
	if _, err := feed.Open(f.ctx, f.pool, reader, nil); !errors.As(err, &origin) {
		f.t.Errorf("reader %s opened the feed: %v, want *OriginError", reader, err)
	}
}

// A database that was restored is rebased, although the command is killed before its commit and a producer goes on.
// Then readers get each event once, and no event was changed. A second call changes nothing.
func TestRebase(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	f.enqueue(f.pool, numbers(0, 55)...)
	f.drain(f.open(f.pool, nil))
	if plan := f.plan(); plan.Needed || f.rebase() {
		t.Errorf("in its own database: %+v", plan)
	}
	f.transplant()
	f.enqueue(f.pool, numbers(55, 60)...) // by a program that did not wait
	want := feed.RebasePlan{Needed: true, Readers: []string{"test"}, Last: 60}
	if diff := difference.Of(want, f.plan()); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	f.expectRefusalOf("test")
	f.rebaseKilled(fault.RebaseEnd, 1)
	f.expectRefusalOf("test")
	f.expectRefusalOf("new")
	f.enqueue(f.pool, numbers(60, 65)...)
	f.exec(f.owner, "insert into taskledger.moment (at, snapshot, top, bound) values (now(), '3:9000000000:', 60, '9')")
	if !f.rebase() {
		t.Error("the rebase was not needed")
	}
	var moments int
	const left = "select count(*) from taskledger.moment where top = 60"
	if err := f.pool.QueryRow(f.ctx, left).Scan(&moments); err != nil || moments > 0 {
		t.Errorf("%d moments of another database are left, %v", moments, err)
	}
	f.enqueue(f.pool, numbers(65, 70)...)
	if diff := difference.Of(numbers(0, 70), f.drain(f.open(f.pool, nil))); diff != "" {
		t.Errorf("the feed delivered (-want +got):\n%s", diff)
	}
	if plan := f.plan(); plan.Needed || f.rebase() {
		t.Errorf("a second time: %+v", plan)
	}
	if got := f.drain(f.open(f.pool, nil)); len(got) > 0 {
		t.Errorf("after the second rebase the feed delivered %v", got)
	}
	if got := f.count("select count(*) from taskledger.event where xid = '9000000000'"); got != 55 {
		t.Errorf("%d events have the transaction id that they were restored with, want 55", got)
	}
}

// Events up to the floor are neither late nor audited, although this database assigns their transaction ids itself:
// each one is delivered once.
func TestRestoredTransactionIDsMeanNothing(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	f.enqueue(f.pool, numbers(0, 50)...)
	f.drain(f.open(f.pool, nil))
	f.transplant()
	// The ids that the next transactions get, one after the other.
	f.exec(f.owner, "alter table taskledger.event disable trigger user")
	f.exec(f.owner, `update taskledger.event
	                    set xid = (pg_snapshot_xmax(pg_current_snapshot())::text::bigint + position)::text::xid8`)
	f.exec(f.owner, "alter table taskledger.event enable trigger user")
	f.rebase()
	want := numbers(0, 50)
	var logs bytes.Buffer
	reader := f.open(f.pool, &feed.Options{AuditEvery: 1, Logger: slog.New(slog.NewTextHandler(&logs, nil))})
	got := f.drain(reader)
	for i := 50; i < 150; i++ {
		open := f.begin()
		f.enqueue(open, fmt.Sprint("open", i))
		f.enqueue(f.pool, fmt.Sprint(i))
		got = append(got, f.drain(reader)...)
		f.commit(open)
		got = append(got, f.drain(reader)...)
		want = append(want, fmt.Sprint(i), fmt.Sprint("open", i))
	}
	if diff := difference.Of(want, got); diff != "" {
		t.Errorf("the feed delivered (-want +got):\n%s", diff)
	}
	if text := logs.String(); text != "" {
		t.Errorf("the feed logged: %s", text)
	}
	pending := f.count("select events from taskledger_internal.feed_lag('test', 1000)")
	passed := f.count(`
		select count(*) from taskledger.event e
		 cross join (select * from taskledger.cursors where reader = 'test' order by n desc limit 1) c
		 where taskledger_internal.feed_passed(e.xid, e.position, taskledger_internal.feed_floor(), c.seen, c.until,
		                                       c.after_position)`)
	if pending != 0 || passed != 250 {
		t.Errorf("%d events are pending and %d passed, want 0 and 250", pending, passed)
	}
}

// Events were restored without the cursor rows, in a cluster with lower transaction ids: whatever was written
// since, each reader refuses to pass them. Nothing but a rebase helps.
func TestEventsWithoutCursors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		prepare func(*feedFixture)
	}{
		{name: "their cursors were not in the dump", prepare: func(*feedFixture) {}},
		{
			name:    "producers have worked before the relay",
			prepare: func(f *feedFixture) { f.enqueue(f.pool, "local") },
		},
		{
			name: "they were restored after an earlier rebase",
			prepare: func(f *feedFixture) {
				f.rebase()
				f.enqueue(f.pool, "local")
				f.transplant()
				f.exec(f.owner, "truncate taskledger.cursor")
			},
		},
		{
			name: "the whole database was, with lower transaction ids",
			prepare: func(f *feedFixture) {
				f.exec(f.owner, "alter table taskledger.event disable trigger user")
				f.exec(f.owner, "update taskledger.event set xid = '700'")
				f.exec(f.owner, "update taskledger.floor set origin = '1/1', xid = '9000000000'")
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFeedFixture(t)
			f.enqueue(f.pool, numbers(0, 30)...)
			f.transplant()
			f.exec(f.owner, "truncate taskledger.cursor")
			test.prepare(f)
			f.expectRefusalOf("test")
			f.expectRefusalOf("new")
			var origin *feed.OriginError
			if err := feed.CheckOrigin(f.ctx, f.pool, "other"); !errors.As(err, &origin) {
				t.Errorf("CheckOrigin returned %v, want *OriginError", err)
			}
			want := f.count("select count(*) from taskledger.event")
			f.rebase()
			if got := f.drain(f.open(f.pool, nil)); len(got) != want {
				t.Errorf("after the rebase the feed delivered %d events, want %d", len(got), want)
			}
		})
	}
}

// A reader that worked before a rebase is superseded, and nothing that it has passed is left out.
func TestRebaseSupersedesReaders(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	f.enqueue(f.pool, numbers(0, 30)...)
	opened := f.open(f.pool, nil)
	if diff := difference.Of(numbers(0, 30), f.drain(opened)); diff != "" {
		t.Fatalf("before the rebase (-want +got):\n%s", diff)
	}
	f.enqueue(f.pool, "later")
	page, ok, err := opened.Poll(f.ctx)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	f.transplant()
	f.exec(f.owner, "update taskledger.cursor set origin = taskledger_internal.origin()")
	f.rebase()
	if err := page.Advance(f.ctx, nil, nil); !errors.Is(err, feed.ErrSuperseded) {
		t.Errorf("the reader advanced: %v, want ErrSuperseded", err)
	}
	if diff := difference.Of(append(numbers(0, 30), "later"), f.drain(f.open(f.pool, nil))); diff != "" {
		t.Errorf("after the rebase (-want +got):\n%s", diff)
	}
}

// Logical replication copies no sequences: without the rebase, producers fail with a duplicate position.
func TestRebaseAdvancesSequences(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	f.enqueue(f.pool, numbers(0, 30)...)
	f.drain(f.open(f.pool, nil))
	f.transplant()
	f.exec(f.owner, "select setval('taskledger.event_position_seq', 1), setval('taskledger.login_id_seq', 1, false)")
	if _, err := ledger.Enqueue(f.ctx, f.pool, ledger.Key{Kind: "k", BizID: "new"}, nil, nil); err == nil {
		t.Fatal("the sequence is not behind")
	}
	f.rebase()
	f.enqueue(f.pool, "new")
	if diff := difference.Of(append(numbers(0, 30), "new"), f.drain(f.open(f.pool, nil))); diff != "" {
		t.Errorf("after the rebase (-want +got):\n%s", diff)
	}
	f.exec(f.owner, "insert into taskledger.login (name) values ('new')")
}

// The sequence is set back by a careless restore: enqueues fail. Readers that begin report it, a rebase advances the
// sequence alone, and nothing is delivered again.
func TestSequenceBehindTheEvents(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	f.open(f.pool, nil) // with no event
	f.enqueue(f.pool, numbers(0, 30)...)
	f.drain(f.open(f.pool, nil))
	for _, back := range []string{
		"select setval('taskledger.event_position_seq', 7)",
		"alter sequence taskledger.event_position_seq restart with 30",
	} {
		f.exec(f.owner, back)
		var sequence *feed.SequenceError
		err := feed.CheckOrigin(f.ctx, f.pool, "test")
		if !errors.As(err, &sequence) || sequence.Behind < 30 ||
			!strings.Contains(err.Error(), "taskledger rebase --yes") {
			t.Errorf("%s: error %v, want *SequenceError with the newest position and the cure", back, err)
		}
		if _, err := feed.Open(f.ctx, f.pool, "test", nil); !errors.As(err, &sequence) || !feed.IsRefusal(err) {
			t.Errorf("%s: error %v, want *SequenceError", back, err)
		}
		finish := func(context.Context, pgx.Tx) error { t.Error("the cursors are moved"); return nil }
		done, err := feed.Rebase(f.ctx, f.owner, &feed.RebaseOptions{Finish: finish})
		if err != nil || !done {
			t.Fatal(done, err)
		}
		f.enqueue(f.pool, back)
		if diff := difference.Of([]string{back}, f.drain(f.open(f.pool, nil))); diff != "" {
			t.Errorf("delivered (-want +got):\n%s", diff)
		}
	}
	f.exec(f.owner, "alter sequence taskledger.event_position_seq restart with 1000")
	f.open(f.pool, nil)
}

// An open transaction of a producer delays the rebase, and the rebase delays other producers by little.
func TestRebaseBesideAnOpenTransaction(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	f.enqueue(f.pool, numbers(0, 30)...)
	f.drain(f.open(f.pool, nil))
	f.transplant()
	tx := f.begin()
	f.enqueue(tx, "open")
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := feed.Rebase(f.ctx, f.owner, nil); err != nil {
			t.Error(err)
		}
	})
	await(t, "the rebase to wait for the lock", func() bool {
		var waits bool
		row := f.pool.QueryRow(f.ctx, `select exists (select from pg_locks where not granted)`)
		return row.Scan(&waits) == nil && waits
	})
	began := time.Now()
	f.enqueue(f.pool, "beside")
	waited := time.Since(began)
	f.commit(tx)
	wg.Wait()
	if waited > 10*time.Second {
		t.Errorf("a producer waited for %s", waited)
	}
	got := f.drain(f.open(f.pool, nil))
	slices.Sort(got)
	want := append(numbers(0, 30), "open", "beside")
	slices.Sort(want)
	if diff := difference.Of(want, got); diff != "" {
		t.Errorf("after the rebase (-want +got):\n%s", diff)
	}
}

// A subscription that still writes events is refused.
func TestRebaseRefusesASubscription(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	conn, err := f.owner.Acquire(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, sql := range []string{
		"create subscription replica connection 'host=127.0.0.1 port=1' publication p with (connect = false)",
		"set allow_system_table_mods = on",
		`insert into pg_subscription_rel (srsubid, srrelid, srsubstate)
		 select oid, 'taskledger.event'::regclass, 'r' from pg_subscription`,
		"update pg_subscription set subenabled = true",
	} {
		if _, err := conn.Exec(f.ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	_, err = feed.Rebase(f.ctx, f.owner, nil)
	var subscribed *feed.SubscribedError
	if !errors.As(err, &subscribed) || subscribed.Subscription != "replica" {
		t.Errorf("error %v, want *SubscribedError", err)
	}
}

// Every statement of a rebase works in every query mode, with unusual settings of the role.
func TestRebaseInEveryQueryMode(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	plantest.Settings(t, f.server.URL(ledgertest.Database))
	for i, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		config, err := pgxpool.ParseConfig(f.server.URL(ledgertest.Database))
		if err != nil {
			t.Fatal(err)
		}
		config.ConnConfig.DefaultQueryExecMode = mode
		pool, err := pgxpool.NewWithConfig(f.ctx, config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		f.enqueue(f.pool, numbers(10*i, 10*i+10)...)
		f.drain(f.open(f.pool, nil))
		f.transplant()
		if plan, err := feed.PlanRebase(f.ctx, pool); err != nil || !plan.Needed {
			t.Errorf("%s: %+v, %v", mode, plan, err)
		}
		if needed, err := feed.Rebase(f.ctx, pool, nil); err != nil || !needed {
			t.Errorf("%s: needed %v, %v", mode, needed, err)
		}
		if diff := difference.Of(numbers(0, 10*i+10), f.drain(f.open(f.pool, nil))); diff != "" {
			t.Errorf("%s: after the rebase (-want +got):\n%s", mode, diff)
		}
	}
}

// Tables are restored in a younger cluster, as pg_dump and pg_restore do it. The cursors are not among them.
func TestRebaseOfADump(t *testing.T) {
	t.Parallel()
	original, restored := newFeedFixture(t), newFeedFixture(t)
	original.enqueue(original.pool, numbers(0, 40)...)
	original.drain(original.open(original.pool, nil))
	original.enqueue(original.pool, numbers(40, 50)...)
	for _, table := range []string{"login", "event"} {
		dump := original.copyOut(table)
		restored.exec(restored.owner, "alter table taskledger."+table+" disable trigger user")
		restored.copyIn(table, dump)
		restored.exec(restored.owner, "alter table taskledger."+table+" enable trigger user")
	}
	restored.expectRefusalOf("test")
	if !restored.rebase() {
		t.Error("the rebase was not needed")
	}
	restored.enqueue(restored.pool, numbers(50, 60)...)
	if diff := difference.Of(numbers(0, 60), restored.drain(restored.open(restored.pool, nil))); diff != "" {
		t.Errorf("after the rebase (-want +got):\n%s", diff)
	}
}

func (f *feedFixture) copyOut(table string) *bytes.Buffer {
	f.t.Helper()
	var b bytes.Buffer
	f.onConnection(func(c *pgconn.PgConn) error {
		_, err := c.CopyTo(f.ctx, &b, "copy taskledger."+table+" to stdout")
		return err
	})
	return &b
}

func (f *feedFixture) copyIn(table string, dump *bytes.Buffer) {
	f.t.Helper()
	f.onConnection(func(c *pgconn.PgConn) error {
		_, err := c.CopyFrom(f.ctx, dump, "copy taskledger."+table+" from stdin")
		return err
	})
}

func (f *feedFixture) onConnection(call func(*pgconn.PgConn) error) {
	f.t.Helper()
	conn, err := f.owner.Acquire(f.ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	defer conn.Release()
	if err := call(conn.Conn().PgConn()); err != nil {
		f.t.Fatal(err)
	}
}

// A subscriber continues after a rebase with the first event that it had not passed, stays paused, and keeps its login.
// An event of a transaction that was open is not missed; those recorded after it come again.
func TestRebaseLeavesSubscribers(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	subscriber := f.connect(ledgertest.Database, "subscriber")
	f.enqueue(f.pool, numbers(0, 20)...)
	open, err := f.pool.Begin(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	f.enqueue(open, "late")
	f.enqueue(f.pool, numbers(20, 30)...)
	read := func(name string, n int) (ids []string) {
		t.Helper()
		for n > 0 {
			page, err := readFeed(f.ctx, subscriber, name, n)
			if err != nil {
				t.Fatal(err)
			}
			if len(page.events) == 0 {
				return ids
			}
			for _, e := range page.events {
				ids = append(ids, string(e.BizID))
			}
			n -= len(page.events)
			last := page.events[len(page.events)-1].Position
			if _, err := advanceFeed(f.ctx, subscriber, name, page.page, last); err != nil {
				t.Fatal(err)
			}
		}
		return ids
	}
	read("half", 7)
	read("whole", 30)
	read("paused", 30)
	if _, err := readFeed(f.ctx, subscriber, "begun", 5); err != nil { // its window is open
		t.Fatal(err)
	}
	if err := open.Commit(f.ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := feed.Pause(f.ctx, f.owner, "paused", true); err != nil {
		t.Fatal(err)
	}
	// Events and cursors contain the transaction IDs of one database, which is not this one.
	f.exec(f.owner, "update taskledger.cursor set origin = '1/1', xid = '9000000000'")
	f.enqueue(f.pool, "after")
	if !f.rebase() {
		t.Error("the rebase was not needed")
	}
	f.enqueue(f.pool, "new")
	rest := append(append([]string{"late"}, numbers(20, 30)...), "after", "new")
	for name, want := range map[string][]string{
		"half":  append(numbers(7, 20), rest...),
		"whole": rest,
		"begun": append(numbers(0, 20), rest...),
	} {
		if diff := difference.Of(want, read(name, 100)); diff != "" {
			t.Errorf("subscriber %s (-want +got):\n%s", name, diff)
		}
	}
	all, err := feed.Subscribers(f.ctx, subscriber, "paused")
	if err != nil || len(all) != 1 || !all[0].IsPaused || all[0].Lag != 13 || all[0].Login == "" {
		t.Errorf("the paused one: %+v, %v", all, err)
	}
}

// The events are restored from an older backup than the cursors, and new ones get positions that the cursors have
// passed. A feed that is open ends, new ones refuse, in Go and in SQL, and after a rebase each gets every event.
func TestCursorsAheadOfTheEvents(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	f.enqueue(f.pool, numbers(0, 100)...)
	open := f.open(f.pool, nil)
	f.drain(open)
	f.exec(f.owner, `select from taskledger.read_feed('program', 1000)`)
	f.exec(f.owner, `set session_replication_role = replica; delete from taskledger.event where position > 50;
		set session_replication_role = origin; select setval('taskledger.event_position_seq', 50)`)
	f.enqueue(f.pool, "new")
	if _, _, err := open.Poll(f.ctx); !errors.Is(err, feed.ErrCrashed) {
		t.Errorf("an open feed returned %v, want ErrCrashed", err)
	}
	f.expectRefusalOf("test")
	_, err := f.owner.Exec(f.ctx, `select from taskledger.read_feed('program', 1000)`)
	if pgerr.Code(err) != "55000" {
		t.Errorf("read_feed returned %v, want a refusal", err)
	}
	f.rebase()
	want := f.count("select count(*) from taskledger.event")
	if got := f.drain(f.open(f.pool, nil)); len(got) != want {
		t.Errorf("after the rebase the feed delivered %d events, want %d", len(got), want)
	}
	if got := f.count("select count(*) from taskledger.read_feed('program', 1000)"); got != want {
		t.Errorf("after the rebase the program in SQL read %d events, want %d", got, want)
	}
}
