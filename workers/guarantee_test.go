package workers_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// registered are the guarantees, by the name of the program that has them.
func (b *bundle) registered(c *workers.KindConfig) map[string]func(*workers.Pool) error {
	return map[string]func(*workers.Pool) error{
		"exactly":           b.exactly(insertEffect, c),
		"exactly-at-commit": b.exactly(insertEffectAtCommit, c),
		"exactly-sql":       b.exactlySQL(insertEffectSQL, c),
		"at-least":          b.atLeast(b.outside, c),
		"at-most":           b.atMost(b.outside, c),
	}
}

// The table of docs/guarantees.md: a worker process is killed at each point, a new process continues, and the effects
// are counted.
func TestGuaranteesAtEachCrashPoint(t *testing.T) {
	t.Parallel()
	const done, dead = ledger.StateSucceeded, ledger.StateDead
	type end struct {
		effects int
		state   ledger.State
	}
	table := map[string]map[string]end{
		"exactly": {
			"worker.ready":     {effects: 1, state: done},
			pointEffect:        {effects: 1, state: done},
			"worker.handler":   {effects: 1, state: done},
			"worker.committed": {effects: 1, state: done},
		},
		"exactly-at-commit": {
			"worker.ready":     {effects: 1, state: done},
			pointEffect:        {effects: 1, state: done},
			"worker.handler":   {effects: 1, state: done},
			"worker.committed": {effects: 1, state: done},
		},
		"exactly-sql": {
			"worker.ready":     {effects: 1, state: done},
			pointEffect:        {effects: 1, state: done},
			"worker.handler":   {effects: 1, state: done},
			"worker.committed": {effects: 1, state: done},
		},
		"at-least": {
			"worker.ready":     {effects: 1, state: done},
			pointEffect:        {effects: 2, state: done},
			"worker.handler":   {effects: 2, state: done},
			"worker.committed": {effects: 1, state: done},
		},
		"at-most": {
			"worker.ready":     {effects: 1, state: done},
			"worker.claimed":   {effects: 0, state: dead},
			pointEffect:        {effects: 1, state: dead},
			"worker.handler":   {effects: 1, state: dead},
			"worker.committed": {effects: 1, state: done},
		},
	}
	b := setup(t)
	b.Dispatch()
	for program, cells := range table {
		for point, want := range cells {
			t.Run(program+"/"+point, func(t *testing.T) {
				t.Parallel()
				b := b.in(t)
				k := b.Enqueue("o-1")
				b.Spawn(program, point).AwaitKilled(t)
				w := b.Work(workers.Config{}, b.registered(nil)[program])
				b.AwaitState(k, want.state)
				b.Await("nothing to be in flight", func() bool { return w.KindStatus().InFlight == 0 })
				if got := (end{effects: b.Effects(k), state: b.Task(k).State}); got != want {
					t.Errorf("%+v, want %+v; events: %v", got, want, b.EventTypes(k))
				}
				if reason := b.Task(k).Error; want.state == dead && reason != "unknown outcome" {
					t.Errorf("dead of %q", reason)
				}
			})
		}
	}
}

// The costs of the guarantees are those in docs/guarantees.md.
func TestCostOfGuarantees(t *testing.T) {
	t.Parallel()
	const tasks = 100
	type cost struct{ events, transactions, trips int64 }
	for program, want := range map[string]struct{ least, most cost }{
		"exactly": {
			least: cost{events: 2, transactions: tasks, trips: 2 * tasks},
			most:  cost{events: 2, transactions: tasks, trips: 2 * tasks},
		},
		"exactly-at-commit": {
			least: cost{events: 2, transactions: tasks, trips: tasks},
			most:  cost{events: 2, transactions: tasks, trips: tasks},
		},
		"exactly-sql": {
			least: cost{events: 2, transactions: tasks, trips: 3 * tasks},
			most:  cost{events: 2, transactions: tasks, trips: 3 * tasks},
		},
		// they share statements
		"at-least": {
			least: cost{events: 2, transactions: 1, trips: 1},
			most:  cost{events: 2, transactions: tasks - 1, trips: tasks - 1},
		},
		"at-most": {
			least: cost{events: 3, transactions: 2, trips: 2},
			most:  cost{events: 3, transactions: 2*tasks - 1, trips: 2*tasks - 1},
		},
	} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			counted := newTripCounter(t)
			config := b.DB.Config()
			config.ConnConfig.Tracer = counted
			db := try(pgxpool.NewWithConfig(b.Context(), config))(t)
			t.Cleanup(db.Close)
			b.EnqueueMany(tasks)
			// No attempt is slow enough to record its start.
			quick := workers.SetStartedAfter(endless/2, workers.KindConfig{})
			b.Work(workers.Config{DB: db, LeaseTTL: endless}, b.registered(quick)[program])
			b.Await(
				"the worker to have begun",
				func() bool { return one[int](b, "select count(*)::integer from taskledger.lease") == 1 },
			)
			counted.trips.Store(0)
			b.Dispatch()
			b.AwaitSucceeded(tasks)
			got := cost{
				events: one[int64](b, "select count(*) / $1 from taskledger.event", tasks),
				transactions: one[int64](
					b, "select count(distinct xid) from taskledger.event where type <> 'enqueued'",
				),
				trips: counted.trips.Load(),
			}
			if l, m := want.least, want.most; got.events != l.events || got.transactions < l.transactions ||
				got.transactions > m.transactions ||
				got.trips < l.trips ||
				got.trips > m.trips {
				t.Errorf("%+v, want %+v to %+v", got, l, m)
			}
		})
	}
}

// tripCounter counts round trips: a statement or a batch each. It does not count statements that serve many tasks or
// none (upkeep).
type tripCounter struct {
	upkeep map[string]bool
	trips  atomic.Int64
}

func newTripCounter(t *testing.T) *tripCounter {
	c := &tripCounter{upkeep: make(map[string]bool)}
	leases := try(filepath.Glob("../internal/lease/sql/*.sql"))(t)
	files := append(leases,
		"internal/attempt/sql/heads.sql", "sql/watch.sql",
		"sql/kinds_admitted.sql", "../ledger/sql/session_read.sql") // once for a connection
	for _, file := range files {
		c.upkeep[string(try(os.ReadFile(file))(t))] = true
	}
	return c
}

func (c *tripCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if c.upkeep[data.SQL] {
		return ctx
	}
	c.trips.Add(1)
	return ctx
}

func (*tripCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *tripCounter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.trips.Add(1)
	return ctx
}

func (*tripCounter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*tripCounter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// The handler of an AtMostOnce kind fails: its task is dead, unless the error is marked as safe to retry.
func TestAtMostOnceFailures(t *testing.T) {
	t.Parallel()
	const enqueued, started = ledger.EventEnqueued, ledger.EventStarted
	const failed, buried = ledger.EventFailed, ledger.EventBuried
	const unsafe = "the handler did not mark its error as safe to retry"
	b := setup(t)
	b.Dispatch()
	for name, test := range map[string]struct {
		handler func(context.Context) error
		events  []ledger.EventType
		reason  string
	}{
		"error": {
			handler: func(context.Context) error { return errBoom },
			events:  []ledger.EventType{enqueued, started, failed, buried}, reason: unsafe,
		},
		"panic": {
			handler: func(context.Context) error { panic("boom") },
			events:  []ledger.EventType{enqueued, started, failed, buried}, reason: unsafe,
		},
		"timeout": {
			handler: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
			events:  []ledger.EventType{enqueued, started, failed, buried}, reason: "unknown outcome",
		},
		"ledger unavailable": {handler: func(context.Context) error { return ledger.ErrUnavailable },
			events: []ledger.EventType{enqueued, started, failed, buried}, reason: unsafe},
		"safe": {
			handler: func(context.Context) error { return workers.SafeToRetry(errBoom) },
			events:  []ledger.EventType{enqueued, started, failed}, reason: "",
		},
		"retry in": {
			handler: func(context.Context) error { return workers.RetryIn(time.Hour, errBoom) },
			events:  []ledger.EventType{enqueued, started, failed}, reason: "",
		},
		"snooze": {
			handler: func(context.Context) error { return workers.SnoozeFor(time.Hour) },
			events:  []ledger.EventType{enqueued, started, ledger.EventSnoozed}, reason: "",
		},
		"discard": {
			handler: func(context.Context) error { return workers.Discard("no") },
			events:  []ledger.EventType{enqueued, started, ledger.EventDiscarded}, reason: "",
		},
		"permanent": {
			handler: func(context.Context) error { return workers.Permanent(errBoom) },
			events:  []ledger.EventType{enqueued, started, failed, buried},
			reason:  "the handler returned a permanent error",
		},
		"safe, late": {
			handler: func(ctx context.Context) error { <-ctx.Done(); return workers.SafeToRetry(ctx.Err()) },
			events:  []ledger.EventType{enqueued, started, failed}, reason: "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			var runs atomic.Int32
			w := b.Work(workers.Config{}, b.atMost(func(ctx context.Context, _ *workers.Job, _ orderArgs) error {
				runs.Add(1)
				return test.handler(ctx)
			}, &workers.KindConfig{
				Timeout: 100 * time.Millisecond,
				Retry:   ledger.RetryPolicy{Ladder: []time.Duration{time.Hour}, Attempts: 3},
			}))
			k := b.Enqueue("o-1")
			b.Await(
				"the outcome",
				func() bool { return len(b.History(k)) >= len(test.events) && w.KindStatus().InFlight == 0 },
			)
			if diff := difference.Of(test.events, b.EventTypes(k)); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			history := b.History(k)
			if got := b.data(history[len(history)-1]).Reason; test.reason != "" && got != test.reason {
				t.Errorf("reason %q, want %q", got, test.reason)
			}
			if runs.Load() != 1 {
				t.Errorf("%d runs", runs.Load())
			}
		})
	}
}

// A failure that is safe to retry is retried, and an operator may release a dead task.
func TestAtMostOnceRunsAgainOnRequest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	b.Work(workers.Config{}, b.atMost(func(ctx context.Context, job *workers.Job, args orderArgs) error {
		switch job.Attempt {
		case 1:
			return workers.SafeToRetry(errBoom)
		case 2:
			return errBoom
		}
		return b.outside(ctx, job, args)
	}, nil))
	k := b.Enqueue("o-1")
	b.AwaitState(k, ledger.StateDead)
	if n := b.Effects(k); n != 0 {
		t.Fatalf("%d effects", n)
	}
	o := operator.New(b.DB)
	try(o.Release(b.Context(), k, operator.Audit{Actor: "ada", Reason: "nothing was sent"}))(t)
	b.AwaitState(k, ledger.StateSucceeded)
	b.WantOneEffect(k)
}

// A handler that returns because its context was cancelled may have had its effect.
func TestAtMostOnceInterrupted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err  error
		want ledger.State
	}{
		"plain error":   {err: errBoom, want: ledger.StateDead},
		"safe to retry": {err: workers.SafeToRetry(errBoom), want: ledger.StateAvailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.Dispatch()
			w := b.Work(
				workers.Config{StopTimeout: time.Millisecond},
				b.atMost(func(ctx context.Context, _ *workers.Job, _ orderArgs) error {
					<-ctx.Done()
					return test.err
				}, nil),
			)
			k := b.Enqueue("o-1")
			b.AwaitState(k, ledger.StateRunning)
			w.Stop()
			if state := b.Task(k).State; state != test.want {
				t.Errorf("it is %s, want %s; %v", state, test.want, b.EventTypes(k))
			}
			history := b.History(k)
			if reason := b.data(history[len(history)-1]).Reason; test.want == ledger.StateDead &&
				reason != "unknown outcome" {
				t.Errorf("dead of %q", reason)
			}
		})
	}
}

// The answer to the append of a start is lost: the worker finds its own event, and runs the task once.
func TestAtMostOnceStartWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	losing, lose := b.losing(ledger.EventStarted, 1)
	b.Dispatch()
	b.Work(workers.Config{DB: losing}, b.atMost(b.outside, nil))
	k := b.Enqueue("o-1")
	b.Await("the end", func() bool { return b.Task(k).State.Finished() })
	if lose.left.Load() > 0 {
		t.Fatal("no answer was lost")
	}
	if diff := difference.Of(
		[]ledger.EventType{ledger.EventEnqueued, ledger.EventStarted, ledger.EventSucceeded}, b.EventTypes(k),
	); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	b.WantOneEffect(k)
}

// Two processes have workers of one name, and one loses the answer to a start that came too late: it does not take the
// start of the other for its own.
func TestAtMostOnceStartOfAnotherProcess(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	config := workers.Config{Name: "w-1"}
	other := b.Work(config, b.atMost(b.outside, nil))
	first := b.Enqueue("o-1")
	b.AwaitState(first, ledger.StateSucceeded)
	other.Stop()

	losing, lose := b.losing(ledger.EventStarted, 1)
	k := ledger.Key{Kind: order.Name(), BizID: "o-2"}
	lose.before = func() {
		r := ledgertest.Request(k, 1, ledger.EventStarted)
		r.Actor, r.Data = other.ID(), b.History(first)[1].Data
		try(ledger.Append(b.Context(), b.DB, r))(t)
	}
	config.DB = losing
	b.Work(config, b.atMost(b.outside, nil))
	b.Enqueue(string(k.BizID))
	b.AwaitState(k, ledger.StateDead)
	if n := b.Effects(k); n != 0 {
		t.Errorf("%d effects of the process that did not begin", n)
	}
}

// The database loses the start of an attempt whose handler runs, by a fail-over for example. The worker remembers it,
// and does not begin again.
func TestAtMostOnceStartThatWasUndone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	var runs atomic.Int32
	b.Work(workers.Config{}, b.atMost(func(context.Context, *workers.Job, orderArgs) error {
		runs.Add(1)
		ledgertest.ExecAsOwner(t, b.DB, `set session_replication_role = replica;
			delete from taskledger.event where version = 2`)
		return nil
	}, nil))
	k := b.Enqueue("o-1")
	b.AwaitState(k, ledger.StateDead)
	history := b.History(k)
	const want = "unknown outcome: the database has lost the start of an attempt"
	if got := b.data(history[len(history)-1]).Reason; got != want {
		t.Errorf("dead of %q, want %q", got, want)
	}
	if n := runs.Load(); n != 1 {
		t.Errorf("the handler began %d times", n)
	}
}

// The answer to successes that are recorded together is lost, and lost again when they are sent again. Each is
// recorded once, and none counts as fenced.
func TestCompletionsWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	for _, lost := range []int32{1, 2, 3} { // ledger.AppendEach itself recovers from one
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			losing, lose := b.losing(ledger.EventSucceeded, lost)
			const tasks = 8
			b.EnqueueMany(tasks)
			hook := &witness{}
			var together sync.WaitGroup // so that they are recorded in groups
			together.Add(tasks)
			w := b.Work(
				workers.Config{DB: losing, Hooks: []workers.Hook{hook.hook()}, LeaseTTL: slowLease},
				b.atLeast(func(ctx context.Context, job *workers.Job, args orderArgs) error {
					together.Done()
					together.Wait()
					return b.outside(ctx, job, args)
				}, nil),
			)
			b.Dispatch()
			b.Await(
				"the ends of all attempts",
				func() bool { return hook.ended() == tasks && w.KindStatus().InFlight == 0 },
			)
			if lose.left.Load() > 0 {
				t.Fatal("too few answers were lost")
			}
			for i := range tasks {
				k := ledger.Key{Kind: order.Name(), BizID: ledger.BizID(fmt.Sprintf("o-%04d", i))}
				if diff := difference.Of(
					[]ledger.EventType{ledger.EventEnqueued, ledger.EventSucceeded}, b.EventTypes(k),
				); diff != "" {
					t.Errorf("%s (-want +got):\n%s", k, diff)
				}
			}
			for _, end := range hook.ends {
				if end.Outcome != workers.OutcomeSucceeded || end.State != ledger.StateSucceeded || end.Err != nil {
					t.Errorf("an attempt ended as %+v", end)
				}
			}
			if len(hook.events) != tasks {
				t.Errorf("the hook received %d events, want %d", len(hook.events), tasks)
			}
			b.WantOneEffectEach(tasks)
		})
	}
}

// losing returns a connection pool that loses the answers to the first appends of an event type.
func (b *bundle) losing(t ledger.EventType, answers int32) (*pgxpool.Pool, *loser) {
	b.T.Helper()
	lose := &loser{event: string(t)}
	lose.left.Store(answers)
	config := b.DB.Config()
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // so that the answer to the whole is lost
	config.ConnConfig.Tracer = lose
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &losingConn{Conn: conn}, err
	}
	pool := try(pgxpool.NewWithConfig(b.Context(), config))(b.T)
	b.T.Cleanup(pool.Close)
	return pool, lose
}

// loser loses the answers to the first appends of an event type.
type loser struct {
	event  string
	left   atomic.Int32
	before func() // is called before such an append is sent; or nil
}

func (l *loser) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	records := slices.ContainsFunc(data.Args, func(arg any) bool { return arg == l.event || arg == `{"`+l.event+`"}` })
	if records && l.left.Add(-1) >= 0 {
		if l.before != nil {
			l.before()
		}
		conn.PgConn().Conn().(*losingConn).lose.Store(true)
	}
	return ctx
}

func (*loser) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// losingConn, once armed, waits for an answer, drops it, and closes itself.
type losingConn struct {
	net.Conn
	lose atomic.Bool
}

func (c *losingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.lose.Load() {
		_ = c.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

// A transaction of database/sql is as safe from its handler as one of pgx.
func TestSQLHandlerThatMisbehavesOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Exec(schemaOfMisbehaviours)
	b.Dispatch()
	for name, test := range map[string]struct {
		misbehave func(context.Context, *sql.Tx) error
		message   string
	}{
		"error": {misbehave: func(context.Context, *sql.Tx) error { return errBoom }, message: "boom"},
		"panic": {misbehave: func(context.Context, *sql.Tx) error { panic("boom") }, message: "panic: boom"},
		"commits": {
			misbehave: func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
			message:   workers.ErrNotYours.Error(),
		},
		"rolls": {
			misbehave: func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
			message:   workers.ErrNotYours.Error(),
		},
		"swallows": {
			misbehave: func(ctx context.Context, tx *sql.Tx) error {
				_, _ = tx.ExecContext(ctx, "select 1/0")
				return nil
			},
			message: "swallowed",
		},
		"open rows": {misbehave: func(ctx context.Context, tx *sql.Tx) error {
			//nolint:rowserrcheck,sqlclosecheck // the rows stay open on purpose
			_, err := tx.QueryContext(ctx, "select generate_series(1, 9999)")
			return err
		}, message: "rows"},
		"sleeps": {misbehave: func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "select pg_sleep(60)")
			return err
		}, message: "timed out"},
		"deferred": {misbehave: func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "insert into strict values (1), (1)")
			return err
		}, message: "strict_pkey"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			var kept atomic.Pointer[sql.Tx]
			b.Work(
				workers.Config{},
				b.exactlySQL(func(ctx context.Context, tx *sql.Tx, job *workers.Job, args orderArgs) error {
					if err := insertEffectSQL(ctx, tx, job, args); err != nil {
						return err
					}
					if job.Attempt == 1 {
						kept.Store(tx)
						return test.misbehave(ctx, tx)
					}
					return nil
				}, &workers.KindConfig{Timeout: time.Second}),
			)
			k := b.Enqueue("o-1")
			b.AwaitState(k, ledger.StateSucceeded)
			b.WantOneEffect(k)
			if failures := b.failures(k); len(failures) != 1 ||
				!strings.Contains(failures[0].Error.Message, test.message) {
				t.Errorf("failures %q, want one with the message %q", failures, test.message)
			}
			if _, err := kept.Load().Exec("select 1"); !errors.Is(err, sql.ErrTxDone) {
				t.Errorf("the transaction of the first attempt can still be used: %v", err)
			}
		})
	}
}

// A handler that ends its transaction in SQL is detected, as with pgx.
func TestSQLHandlerThatCommits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	for _, end := range []string{"commit", "commit; begin", "rollback"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			b.Work(
				workers.Config{},
				b.exactlySQL(func(ctx context.Context, tx *sql.Tx, job *workers.Job, args orderArgs) error {
					if err := insertEffectSQL(ctx, tx, job, args); err != nil {
						return err
					}
					_, err := tx.ExecContext(ctx, end)
					return err
				}, nil),
			)
			k := b.Enqueue("o-1")
			b.AwaitState(k, ledger.StateDead)
			if reason := b.Task(k).Error; !strings.Contains(reason, "ended by COMMIT or ROLLBACK") {
				t.Errorf("buried because of %q", reason)
			}
		})
	}
}
