package projector_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// tracer counts the executions of statements.
type tracer struct {
	mu    sync.Mutex
	count map[string]int
}

func (r *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count[q.SQL]++
	return ctx
}

func (r *tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// traced returns a pool of one connection to the same database.
func traced(t *testing.T, pool *pgxpool.Pool, by pgx.QueryTracer) *pgxpool.Pool {
	t.Helper()
	c := pool.Config()
	c.ConnConfig.Tracer, c.MaxConns = by, 1
	db, err := pgxpool.NewWithConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// enqueueSome enqueues the tasks from first to last.
func enqueueSome(t *testing.T, pool *pgxpool.Pool, first, last int) {
	t.Helper()
	var entries []ledger.Entry
	for i := first; i <= last; i++ {
		entries = append(entries, ledger.Entry{Key: someTask(i)})
	}
	if _, err := ledger.EnqueueMany(t.Context(), pool, entries); err != nil {
		t.Fatal(err)
	}
}

// succeedSome appends the outcome of every step-th task from first to last.
func succeedSome(t *testing.T, pool *pgxpool.Pool, first, last, step int) {
	t.Helper()
	var requests []ledger.AppendRequest
	for i := first; i <= last; i += step {
		requests = append(requests, ledger.AppendRequest{Key: someTask(i), Expected: 1, Type: ledger.EventSucceeded})
	}
	for _, r := range ledger.AppendEach(t.Context(), pool, requests) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
}

func someTask(i int) ledger.Key {
	return ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprintf("order-%04d", i))}
}

// A projector reads no rows of tasks that it has inserted itself.
func TestKnownRowsAreNotRead(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	statements := &tracer{count: map[string]int{}}
	db := traced(t, pool, statements)
	p, err := projector.New(projector.Config{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	apply := projector.Applier(p, db, nil)
	for _, step := range []func(){
		func() { enqueueSome(t, pool, 1, 50) },
		func() { succeedSome(t, pool, 1, 50, 1); enqueueSome(t, pool, 51, 100) },
		func() { succeedSome(t, pool, 51, 100, 1) },
	} {
		step()
		if err := apply(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	read := func() int { return statements.count[statement(t, "tasks_before")] }
	if n := read(); n != 0 {
		t.Errorf("rows were read %d times", n)
	}
	check(t, pool)

	enqueueSome(t, pool, 101, 102)
	project(t, pool) // by another projector
	succeedSome(t, pool, 101, 102, 1)
	if err := apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := read(); n != 1 {
		t.Errorf("rows that another projector had inserted were read %d times, want once", n)
	}
	check(t, pool)
}

// A row that is elsewhere than the projector knows is found, and the row that is there is not touched. Without the
// comparison of key and version, another task would get its state.
func TestKnownRowsThatHaveMoved(t *testing.T) {
	t.Parallel()
	withoutComparison := func(sql string) string {
		before, _, ok := strings.Cut(sql, "and (r.kind is null")
		if !ok {
			t.Fatalf("no comparison in %s", sql)
		}
		return before
	}
	for _, test := range []struct {
		name   string
		edit   func(string) string
		change string // by the owner
	}{
		{name: "table rewritten", change: "vacuum full taskledger.task"},
		{
			name:   "row changed",
			change: "update taskledger.task set version = 7, state = 'dead' where biz_id = 'order-0006'",
		},
		{name: "row removed", change: "delete from taskledger.task where biz_id = 'order-0006'"},
		{name: "mutant", change: "vacuum full taskledger.task", edit: withoutComparison},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
			p, err := projector.New(projector.Config{DB: pool})
			if err != nil {
				t.Fatal(err)
			}
			apply := projector.Applier(p, pool, test.edit)
			enqueueSome(t, pool, 1, 100)
			err = apply(t.Context())
			succeedSome(t, pool, 1, 100, 3)
			if err == nil {
				err = apply(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			ledgertest.ExecAsOwner(t, pool, test.change)
			succeedSome(t, pool, 2, 2, 3) // in a table that was rewritten, task 3 is where task 2 was
			err = apply(t.Context())
			if test.edit != nil {
				report, verifyErr := projector.Verify(t.Context(), pool, nil)
				if err != nil || verifyErr != nil || len(report.Differences) == 0 {
					t.Errorf("%d differences, %v, %v: the test proves nothing", len(report.Differences), err, verifyErr)
				}
				return
			}
			moved := test.name == "table rewritten" // the others are of a task that has not finished
			if (err != nil) != moved {
				t.Fatalf("rows moved: %t, but the first page returned %v", moved, err)
			}
			succeedSome(t, pool, 5, 100, 3)
			succeedSome(t, pool, 3, 100, 3)
			if !moved {
				err = apply(t.Context())
			}
			if err == nil || !strings.Contains(err.Error(), "changed by another transaction") {
				t.Fatalf("the page returned %v", err)
			}
			if err := apply(t.Context()); err != nil {
				t.Fatal(err)
			}
			if moved {
				check(t, pool)
			}
			listed, _, err := projector.ReadTasks(t.Context(), pool, projector.TaskFilter{Limit: projector.MaxList})
			if err != nil || len(listed) != 100 {
				t.Fatalf("%d tasks, %v", len(listed), err)
			}
			for _, task := range listed {
				if task.State != ledger.StateSucceeded || task.Version != 2 {
					t.Errorf("%s: %s, version %d", task.Key, task.State, task.Version)
				}
			}
		})
	}
}

// Rows move when they are listed as lingering, which interrupts no projector. Not parallel: the settings are of the
// whole process.
func TestKnownRowsAreListed(t *testing.T) {
	defer projector.SetLingerPage(7)()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	var log bytes.Buffer
	stop := start(t, projector.Config{DB: pool, Logger: slog.New(slog.NewTextHandler(&log,
		&slog.HandlerOptions{Level: slog.LevelWarn}))})
	defer stop()
	enqueueSome(t, pool, 1, 50)
	await(t, "the tasks are listed", func() bool { return readList(t, pool).listed == 50 })
	succeedSome(t, pool, 1, 50, 1)
	awaitCaughtUp(t, pool)
	stop()
	if log.Len() > 0 {
		t.Errorf("the projector has logged:\n%s", log.String())
	}
	check(t, pool)
}
