package workers_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

const (
	source   = "taskledger/test"
	ackWait  = time.Second
	patience = 60 * time.Second // how long a condition may take before the test has failed
)

// order is the kind that most tests work on.
var order = ledger.MustKind[orderArgs]("test.order")

type orderArgs struct {
	Amount int `json:"amount"`
}

// bundle is the world of one test: a database with a table for effects, a NATS server, and
// the stream.
type bundle struct {
	t          testing.TB
	db         *pgxpool.Pool
	server     *natsserver.Server
	nc         *nats.Conn
	js         jetstream.JetStream
	generation atomic.Int64
}

func setup(t testing.TB) *bundle {
	t.Helper()
	return setupOn(t, ledgertest.Pool(t))
}

func setupOn(t testing.TB, db *pgxpool.Pool) *bundle {
	t.Helper()
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	b := &bundle{t: t, db: db, server: server}
	b.generation.Store(1)
	b.nc = b.connect()
	b.js = try(jetstream.New(b.nc))(t)
	b.provision()
	b.exec("create table effect (biz_id text not null, attempt integer not null, note text)")
	return b
}

// try unwraps a result or ends the test.
func try[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (b *bundle) connect() *nats.Conn {
	b.t.Helper()
	nc := try(stream.Connect(b.server.URL(), nats.ReconnectWait(20*time.Millisecond)))(b.t)
	b.t.Cleanup(nc.Close)
	return nc
}

// provision makes the stream, as the relay would.
func (b *bundle) provision() {
	b.t.Helper()
	installation := one[string](b, "select value from taskledger.setting where name = 'installation'")
	try(stream.Ensure(b.context(), b.js, stream.Config{MaxBytes: 1 << 30}, installation))(b.t)
}

func (b *bundle) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	b.t.Cleanup(cancel)
	return ctx
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.db.Exec(b.context(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

// one returns the single value of a query.
func one[T any](b *bundle, sql string, args ...any) T {
	b.t.Helper()
	for {
		rows, _ := b.db.Query(b.context(), sql, args...)
		v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
		if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) && pg.Code == "57P01" {
			continue // the last word of a connection to the server before it was restarted
		}
		if err != nil {
			b.t.Fatalf("%s: %v", sql, err)
		}
		return v
	}
}

// await polls until ok.
func (b *bundle) await(what string, ok func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("still waiting for: %s", what)
		}
	}
}

// enqueue makes a task of kind order.
func (b *bundle) enqueue(id string) ledger.Key {
	b.t.Helper()
	try(order.Enqueue(b.context(), b.db, ledger.BizID(id), orderArgs{Amount: 7}, nil))(b.t)
	return ledger.Key{Kind: order.Name(), BizID: ledger.BizID(id)}
}

func (b *bundle) enqueueMany(n int) {
	b.t.Helper()
	b.enqueueRound("o", n)
}

// enqueueRound makes tasks <round>-0000, -0001 and so on.
func (b *bundle) enqueueRound(round string, n int) {
	b.t.Helper()
	var entries []ledger.Entry
	for i := range n {
		entries = append(entries, try(order.Entry(ledger.BizID(fmt.Sprintf("%s-%04d", round, i)), orderArgs{Amount: i}, nil))(b.t))
	}
	try(ledger.EnqueueMany(b.context(), b.db, entries))(b.t)
}

func (b *bundle) history(k ledger.Key) []ledger.Event {
	b.t.Helper()
	return try(ledger.History(b.context(), b.db, k))(b.t)
}

// types returns the types of a task's events.
func (b *bundle) types(k ledger.Key) []ledger.EventType {
	b.t.Helper()
	var types []ledger.EventType
	for _, e := range b.history(k) {
		types = append(types, e.Type)
	}
	return types
}

func (b *bundle) task(k ledger.Key) ledger.Task {
	b.t.Helper()
	return try(ledger.Load(b.context(), b.db, k))(b.t)
}

func (b *bundle) awaitState(k ledger.Key, s ledger.State) {
	b.t.Helper()
	b.await(fmt.Sprintf("%s to be %s", k, s), func() bool { return b.task(k).State == s })
}

// effects returns how many effects a task had.
func (b *bundle) effects(k ledger.Key) int {
	b.t.Helper()
	return one[int](b, "select count(*)::integer from effect where biz_id = $1", string(k.BizID))
}

// oneEffect checks that a task had exactly one effect.
func (b *bundle) oneEffect(k ledger.Key) {
	b.t.Helper()
	if n := b.effects(k); n != 1 {
		b.t.Errorf("%s: %d effects, want exactly one; events: %v", k, n, b.types(k))
	}
}

// publish publishes the message of an event.
func (b *bundle) publish(e ledger.Event) {
	b.t.Helper()
	if err := b.send(b.context(), e); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bundle) send(ctx context.Context, e ledger.Event) error {
	first := e
	if e.Version != 1 {
		history, err := ledger.History(ctx, b.db, e.Key)
		if err != nil {
			return err
		}
		first = history[0]
	}
	payload, err := first.Payload()
	if err != nil {
		return err
	}
	msg := stream.Encode(e, payload, source, int(b.generation.Load()))
	stream.Enclose(msg, first.Meta)
	_, err = b.js.PublishMsg(ctx, msg)
	return err
}

// relay publishes what makes tasks available, as the relay does, until the test ends.
func (b *bundle) relay() {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	feed := try(feed.Open(ctx, b.db, "relay", nil))(b.t)
	go func() { done <- b.relayFeed(ctx, feed) }()
	b.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("relay: %v", err)
		}
	})
}

func (b *bundle) relayFeed(ctx context.Context, feed *feed.Feed) error {
	for {
		page, err := feed.Next(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			feed = b.reopen(ctx, feed)
			continue
		}
		for _, e := range page.Events {
			if !e.Type.WakesWorkers() {
				continue
			}
			for b.send(ctx, e) != nil { // a server is away
				if ctx.Err() != nil {
					return nil
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
		if page.Advance(ctx, b.db, nil) != nil {
			feed = b.reopen(ctx, feed)
		}
	}
}

// reopen opens the feed anew once the database is back.
func (b *bundle) reopen(ctx context.Context, old *feed.Feed) *feed.Feed {
	for ctx.Err() == nil {
		if again, err := feed.Open(ctx, b.db, "relay", nil); err == nil {
			return again
		}
		time.Sleep(20 * time.Millisecond)
	}
	return old
}

// worker is a pool that runs.
type worker struct {
	*workers.Pool
	nc   *nats.Conn
	stop func() // and wait
}

// work runs a pool whose kinds are registered by register, until the test ends.
func (b *bundle) work(c workers.Config, register func(*workers.Pool) error) *worker {
	b.t.Helper()
	if c.DB == nil {
		c.DB = b.db
	}
	if c.NATS == nil {
		c.NATS = b.connect()
	}
	if c.AckWait == 0 {
		c.AckWait = ackWait
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(&testWriter{b.t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	p := try(workers.New(c))(b.t)
	if err := register(p); err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := p.Run(ctx); err != nil {
			b.t.Errorf("worker: %v", err)
		}
	}()
	w := &worker{Pool: p, nc: c.NATS, stop: func() {
		cancel()
		<-ended
	}}
	b.t.Cleanup(w.stop)
	return w
}

// testWriter logs into the test.
type testWriter struct{ t testing.TB }

func (w *testWriter) Write(line []byte) (int, error) {
	w.t.Logf("%s", line[:len(line)-1])
	return len(line), nil
}

// insertEffect is a handler that does what the tests count.
func insertEffect(ctx context.Context, tx pgx.Tx, job *workers.Job, _ orderArgs) error {
	_, err := tx.Exec(ctx, "insert into effect (biz_id, attempt) values ($1, $2)", string(job.BizID), int(job.Attempt))
	return err
}

// insertEffectSQL is insertEffect by database/sql.
func insertEffectSQL(ctx context.Context, tx *sql.Tx, job *workers.Job, _ orderArgs) error {
	_, err := tx.ExecContext(ctx, "insert into effect (biz_id, attempt) values ($1, $2)", string(job.BizID), int(job.Attempt))
	return err
}

// atOnce is c with failed tasks released at once, unless it says when.
func atOnce(c *workers.KindConfig) *workers.KindConfig {
	full := workers.KindConfig{}
	if c != nil {
		full = *c
	}
	if p := &full.Retry; len(p.Ladder) == 0 && p.Unit == 0 && p.Max == 0 {
		p.Ladder = []time.Duration{0}
		if p.Attempts == 0 {
			p.Attempts = ledger.DefaultRetryAttempts
		}
	}
	return &full
}

// exactly registers an ExactlyOnce handler of kind order.
func exactly(h func(context.Context, pgx.Tx, *workers.Job, orderArgs) error, c *workers.KindConfig) func(*workers.Pool) error {
	return func(p *workers.Pool) error { return workers.Register(p, order, h, atOnce(c)) }
}

// atLeast registers an AtLeastOnce handler of kind order.
func atLeast(h func(context.Context, *workers.Job, orderArgs) error, c *workers.KindConfig) func(*workers.Pool) error {
	return func(p *workers.Pool) error { return workers.RegisterAtLeastOnce(p, order, h, atOnce(c)) }
}

// atMost registers an AtMostOnce handler of kind order.
func atMost(h func(context.Context, *workers.Job, orderArgs) error, c *workers.KindConfig) func(*workers.Pool) error {
	return func(p *workers.Pool) error { return workers.RegisterAtMostOnce(p, order, h, atOnce(c)) }
}

// exactlySQL registers an ExactlyOnce handler of kind order by database/sql.
func exactlySQL(h func(context.Context, *sql.Tx, *workers.Job, orderArgs) error, c *workers.KindConfig) func(*workers.Pool) error {
	return func(p *workers.Pool) error { return workers.RegisterSQL(p, order, h, atOnce(c)) }
}

// count returns a counter of the worker's only kind.
func (w *worker) status() workers.KindStatus { return w.Status().Kinds[0] }

var errBoom = errors.New("boom")

// outside returns an AtLeastOnce handler that does what the tests count, in a transaction of its own.
func outside(db *pgxpool.Pool) func(context.Context, *workers.Job, orderArgs) error {
	return func(ctx context.Context, job *workers.Job, _ orderArgs) error {
		_, err := db.Exec(ctx, "insert into effect (biz_id, attempt) values ($1, $2)", string(job.BizID), int(job.Attempt))
		return err
	}
}

// outside is that on the bundle's database.
func (b *bundle) outside(ctx context.Context, job *workers.Job, args orderArgs) error {
	return outside(b.db)(ctx, job, args)
}

// allDone waits until n tasks have succeeded, as long as there are more and more of them.
func (b *bundle) allDone(n int) {
	b.t.Helper()
	for done := -1; done != n; {
		before := done
		b.await(fmt.Sprintf("more than %d of %d tasks to succeed", before, n), func() bool {
			done = one[int](b, "select count(*)::integer from taskledger.event where type = 'succeeded'")
			return done == n || before < done && done < n
		})
	}
}

// eachOnce checks that n tasks had exactly one effect each.
func (b *bundle) eachOnce(n int) {
	b.t.Helper()
	total := one[int](b, "select count(*)::integer from effect")
	distinct := one[int](b, "select count(distinct biz_id)::integer from effect")
	if total != n || distinct != n {
		b.t.Errorf("%d effects of %d tasks, want one each of %d", total, distinct, n)
	}
}
