package projector_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// start runs a projector; stop ends it and waits until Run has returned.
func start(tb testing.TB, c projector.Config) (stop func()) {
	tb.Helper()
	p, err := projector.New(c)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Errorf("projector: %v", err)
		}
	})
}

// check compares the tables with the events in three ways: Verify, the fold of each task, and plain counting.
func check(tb testing.TB, pool *pgxpool.Pool) {
	tb.Helper()
	report, err := projector.Verify(tb.Context(), pool, nil)
	if err != nil {
		tb.Fatal(err)
	}
	for _, d := range report.Differences {
		tb.Error(d)
	}
	var events int64
	if err := pool.QueryRow(tb.Context(), `select count(*) from taskledger.event`).Scan(&events); err != nil {
		tb.Fatal(err)
	}
	if report.Events != events {
		tb.Errorf("%d events were verified of %d", report.Events, events)
	}
	listed, _, err := projector.ReadTasks(tb.Context(), pool, projector.TaskFilter{Limit: projector.MaxList})
	if err != nil {
		tb.Fatal(err)
	}
	if int64(len(listed)) != report.Tasks {
		tb.Errorf("%d tasks are listed of %d", len(listed), report.Tasks)
	}
	for _, have := range listed {
		want, err := ledger.Load(tb.Context(), pool, have.Key)
		if err != nil {
			tb.Fatal(err)
		}
		have.Position = 0
		if diff := difference.Of(ledger.ListedTask{
			Key: want.Key, Shard: want.Shard, State: want.State, Version: want.Version, Attempt: want.Attempt,
			Failures: want.Failures, EnqueuedAt: want.EnqueuedAt, UpdatedAt: want.UpdatedAt, Error: want.Error,
			Fingerprint: want.Fingerprint, DueAt: want.DueAt, Priority: want.Priority.Level(),
			Partition: want.Partition, OrderKey: want.OrderKey,
		}, have); diff != "" {
			tb.Errorf("%s (-fold +table):\n%s", have.Key, diff)
		}
	}
	checkCounts(tb, pool)
}

func checkCounts(tb testing.TB, pool *pgxpool.Pool) {
	tb.Helper()
	rows, err := pool.Query(tb.Context(), `
		select kind, state::text, count(*) from taskledger.task group by kind, state order by kind, task.state`)
	if err != nil {
		tb.Fatal(err)
	}
	want, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c ledger.StateCount, err error) {
		err = row.Scan((*string)(&c.Kind), (*string)(&c.State), &c.Tasks)
		return c, err
	})
	if err != nil {
		tb.Fatal(err)
	}
	have, err := projector.ReadCounts(tb.Context(), pool, "", lists.All)
	if err != nil {
		tb.Fatal(err)
	}
	if diff := difference.Of(want, have); diff != "" {
		tb.Errorf("counts (-count(*) +task_count):\n%s", diff)
	}
}

func TestProjectionEqualsFold(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
		stop := start(t, projector.Config{DB: pool, PageSize: []int{1, 3, 7, 1000}[seed]})
		defer stop()
		scribble(t, pool, seed, 4, 60)
		awaitCaughtUp(t, pool)
		stop()
		check(t, pool)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// Verify reads events, cursor and tables in one snapshot, so it finds no difference while writers and the
// projector run.
func TestVerifyIsExactWhileTheProjectorWorks(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	defer start(t, projector.Config{DB: pool, PageSize: 2})()
	written := make(chan struct{})
	go func() {
		defer close(written)
		scribble(t, pool, 11, 3, 100)
	}()
	for busy := true; busy; {
		select {
		case <-written:
			busy = false
		default:
		}
		report, err := projector.Verify(t.Context(), pool, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !report.Equal() {
			t.Fatalf("after %d events: %v", report.Events, report.Differences)
		}
	}
	<-written
}

// A transaction that is killed before its commit leaves nothing behind, and the page is applied again.
func TestConnectionLostInMidPage(t *testing.T) {
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	enqueueAndSucceed(t, pool, 0, 10)
	var killed atomic.Int32
	defer fault.Set("projector.applied", func() {
		if killed.Add(1) > 3 {
			return
		}
		if _, err := pool.Exec(context.Background(), `
			select pg_terminate_backend(pid) from pg_stat_activity
			 where datname = current_database() and state = 'idle in transaction'`); err != nil {
			t.Error(err)
		}
	})()
	stop := start(t, projector.Config{DB: pool, PageSize: 5})
	defer stop()
	awaitCaughtUp(t, pool)
	stop()
	if killed.Load() <= 3 {
		t.Errorf("the fault was passed %d times", killed.Load())
	}
	check(t, pool)
}

func TestRestartGoesOnFromTheCursor(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	for i := range 3 {
		enqueueAndSucceed(t, pool, 10*i, 10)
		project(t, pool)
		check(t, pool)
	}
}

// One of many projectors applies each page. When that one stops, another one takes over.
func TestManyProjectors(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	var stops []func()
	for range 3 {
		stops = append(stops, start(t, projector.Config{DB: pool, PageSize: 3, Standby: 20 * time.Millisecond}))
		defer stops[len(stops)-1]()
	}
	for i, stop := range stops {
		scribble(t, pool, uint64(100+i), 3, 30)
		awaitCaughtUp(t, pool)
		check(t, pool)
		stop()
	}
}

// A projector that loses the race for a page writes nothing, even if it wrote everything but the cursor
// first.
func TestSupersededPageIsUndone(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	enqueueAndSucceed(t, pool, 0, 4)
	slow, err := feed.Open(t.Context(), pool, feed.ProjectorReader, nil)
	if err != nil {
		t.Fatal(err)
	}
	page, err := slow.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	project(t, pool)
	p, err := projector.New(projector.Config{DB: pool})
	if err != nil {
		t.Fatal(err)
	}
	if err := projector.ApplyPage(t.Context(), p, page); !errors.Is(err, feed.ErrSuperseded) {
		t.Errorf("got %v, want ErrSuperseded", err)
	}
	check(t, pool)
}

// The projector repairs rows by folding the task's history: after an event that the feed delivers late, and
// after rows were removed or changed manually.
func TestRowThatDoesNotFitIsFoldedAnew(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	key := ledger.Key{Kind: "a", BizID: "1"}
	if _, err := ledger.Enqueue(t.Context(), pool, key, nil, nil); err != nil {
		t.Fatal(err)
	}
	project(t, pool)
	for version, damage := range []string{
		`update taskledger.task set version = 7, state = 'dead'`,
		`delete from taskledger.task`,
		`update taskledger.task set version = 0`,
	} {
		ledgertest.ExecAsOwner(t, pool, damage)
		request := ledger.AppendRequest{Key: key, Expected: ledger.Version(version + 1), Type: ledger.EventProgressed}
		if _, err := ledger.Append(t.Context(), pool, request); err != nil {
			t.Fatal(err)
		}
		project(t, pool)
		tasks, _, err := projector.ReadTasks(t.Context(), pool, projector.TaskFilter{})
		if err != nil {
			t.Fatal(err)
		}
		if len(tasks) != 1 || tasks[0].Version != request.Expected+1 || tasks[0].State != ledger.StateRunning {
			t.Errorf("%s: got %+v", damage, tasks)
		}
	}
}

func TestRunReturnsWhatNeedsAPerson(t *testing.T) {
	t.Parallel()
	run := func(pool *pgxpool.Pool) error {
		p, err := projector.New(projector.Config{DB: pool})
		if err != nil {
			t.Fatal(err)
		}
		return p.Run(t.Context())
	}
	bare := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	ledgertest.ExecAsOwner(t, bare, "drop schema taskledger, taskledger_internal cascade")
	if err := run(bare); !errors.Is(err, ledger.ErrNotMigrated) {
		t.Errorf("without a schema: got %v, want ErrNotMigrated", err)
	}

	// pg_dump and pg_restore leave such rows: copies, written by another transaction.
	restored := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	enqueueAndSucceed(t, restored, 0, 1)
	project(t, restored)
	ledgertest.ExecAsOwner(t, restored, `
		create table copy as select * from taskledger.cursor;
		truncate taskledger.cursor;
		insert into taskledger.cursor select * from copy;
		update taskledger.cursor set origin = '1/2'`)
	var origin *feed.OriginError
	if err := run(restored); !errors.As(err, &origin) {
		t.Errorf("in a restored database: got %v, want *OriginError", err)
	}
}

func TestConfigNamesEveryFault(t *testing.T) {
	t.Parallel()
	_, err := projector.New(projector.Config{PageSize: -1, Standby: -1})
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{"DB", "PageSize", "Standby"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

// Run waits for a database that restarts.
func TestDatabaseRestart(t *testing.T) {
	t.Parallel()
	server := ledgertest.Cluster(t, nil)
	pool, err := pgxpool.New(t.Context(), server.URL(ledgertest.Database))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	defer start(t, projector.Config{DB: pool})()
	enqueueAndSucceed(t, pool, 0, 10)
	awaitCaughtUp(t, pool)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	pool.Reset()
	enqueueAndSucceed(t, pool, 10, 10)
	awaitCaughtUp(t, pool)
	check(t, pool)
}

// ReadLag counts committed events that are not applied, up to a bound, and returns their age. It does not
// count those of an open transaction.
func TestBehind(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	behind := func(want int) projection.Lag {
		t.Helper()
		lag, err := projection.ReadLag(t.Context(), pool)
		if err != nil {
			t.Fatal(err)
		}
		if lag.Events != want || lag.Oldest.IsZero() != (want == 0) || lag.Age < 0 {
			t.Errorf("got %+v, want %d events", lag, want)
		}
		return lag
	}
	behind(0)
	enqueueAndSucceed(t, pool, 0, 3)
	behind(6)
	project(t, pool)
	behind(0)

	early, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer early.Rollback(context.Background())
	if _, err := ledger.Enqueue(t.Context(), early, ledger.Key{Kind: "a", BizID: "late"}, nil, nil); err != nil {
		t.Fatal(err)
	}
	behind(0)
	enqueueAndSucceed(t, pool, 3, 3)
	project(t, pool)
	behind(0)
	if err := early.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	behind(1)

	// Within a window, with the cursor after its first page.
	enqueueAndSucceed(t, pool, 6, 3)
	reader, err := feed.Open(t.Context(), pool, feed.ProjectorReader, &feed.Options{PageSize: 4})
	if err != nil {
		t.Fatal(err)
	}
	page, err := reader.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if page.Last() {
		t.Fatal("the window has one page only")
	}
	if err := page.Advance(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	lag := behind(3)
	var oldest time.Time
	if err := pool.QueryRow(t.Context(),
		`select recorded_at from taskledger.event order by position desc offset 2 limit 1`).Scan(&oldest); err != nil {
		t.Fatal(err)
	}
	if !lag.Oldest.Equal(oldest) {
		t.Errorf("oldest is %s, want %s", lag.Oldest, oldest)
	}
	enqueueAndSucceed(t, pool, math.MaxInt32, 1)
	behind(5)
}
