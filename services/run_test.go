package services_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
	"github.com/taskledger/taskledger/services"
	"github.com/taskledger/taskledger/workers"
)

// patience bounds what normally takes milliseconds.
const patience = time.Minute

func startNATS(t *testing.T) *natsserver.Server {
	t.Helper()
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server
}

var greet = ledger.MustKind[string]("greet")

// greeting is the kind with a handler that sends the name to a channel.
func greeting(greeted chan<- string) workers.Registration {
	return workers.Handle(greet, func(_ context.Context, _ pgx.Tx, _ *workers.Job, name string) error {
		greeted <- name
		return nil
	}, nil)
}

// lines is a log. It is safe for concurrent use.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A program with Run and Open is whole, with the stream and without it: a task that it enqueues is worked on. Its first
// start logs no warning.
func TestRunAndOpen(t *testing.T) {
	t.Parallel()
	for _, isOff := range []bool{false, true} {
		t.Run(fmt.Sprintf("off=%t", isOff), func(t *testing.T) {
			t.Parallel()
			runAndOpen(t, isOff)
		})
	}
}

func runAndOpen(t *testing.T, isOff bool) {
	t.Helper()
	owner := ledgertest.Pool(t, ledgertest.App)
	server := startNATS(t)
	relay := ledgertest.As(t, owner, "relay")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	var log lines
	ended := make(chan error, 2)
	go func() {
		ended <- services.Run(ctx, services.Config{
			DB: relay, NATS: services.ToNATS(server.URL()), StreamOff: isOff, Listener: listener,
			Handlers: map[string]http.Handler{"GET /more": http.NotFoundHandler()},
			Logger:   slog.New(slog.NewTextHandler(&log, nil)),
		})
	}()
	client, err := taskledger.Open(ctx, taskledger.Options{
		DatabaseURL: owner.Config().ConnString(), NATSURL: server.URL(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	worked := make(chan string, 1)
	pool, err := client.Worker(greeting(worked))
	if err != nil {
		t.Fatal(err)
	}
	go func() { ended <- pool.Run(ctx) }()
	if _, err := greet.Enqueue(ctx, client.DB, "order-17", "world", nil); err != nil {
		t.Fatal(err)
	}
	select {
	case name := <-worked:
		if name != "world" {
			t.Errorf("worked on %q", name)
		}
	case <-ctx.Done():
		t.Fatalf("no handler was called\n%s", &log)
	}
	awaitReady(t, "http://"+listener.Addr().String()+"/readyz")
	nc, err := stream.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Stream(ctx, stream.Name); errors.Is(err, jetstream.ErrStreamNotFound) != isOff {
		t.Errorf("the stream: %v", err)
	}
	stop()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	wantNoWarning(t, log.String())
}

// mostIdle is the greatest number of round trips to PostgreSQL in a second of idle services and an idle worker, which
// cost CPU time for nothing: four polls of the relay, in place of the projector too, four of the scheduler, two of the
// worker and of the schedules, and the rest of leases.
const mostIdle = 18

// Idle services poll together, and each poll is one round trip.
func TestIdleServicesPollLittle(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.App)
	server := startNATS(t)
	var trips roundTrips
	counted := func(roles ...string) *pgxpool.Pool {
		config := ledgertest.As(t, owner, roles...).Config()
		config.ConnConfig.Tracer = &trips
		db, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(db.Close)
		return db
	}
	nc, err := services.ToNATS(server.URL())()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	pool, err := workers.New(workers.Config{DB: counted("worker"), NATS: nc})
	if err != nil {
		t.Fatal(err)
	}
	handle := func(context.Context, pgx.Tx, *workers.Job, string) error { return nil }
	if err := pool.Register(workers.Handle(greet, handle, nil)); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	ended := make(chan error, 2)
	go func() {
		ended <- services.Run(ctx, services.Config{DB: counted("relay"), NATS: services.ToNATS(server.URL())})
	}()
	go func() { ended <- pool.Run(ctx) }()
	if _, err := greet.Enqueue(ctx, owner, "order-17", "world", nil); err != nil {
		t.Fatal(err)
	}
	for n := int64(math.MaxInt64); n > mostIdle; {
		begin, before := time.Now(), trips.n.Load()
		select {
		case <-ctx.Done():
			t.Fatalf("%d round trips a second, want %d at most", n, mostIdle)
		case <-time.After(4 * time.Second):
		}
		n = int64(float64(trips.n.Load()-before) / time.Since(begin).Seconds())
		t.Logf("%d round trips a second", n)
	}
	stop()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// The projector takes the pages that the dispatcher or the relay has read: it reads none of a backlog of several pages.
func TestProjectorTakesPagesOfOthers(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.App)
	server := startNATS(t)
	config := ledgertest.As(t, owner, "relay").Config()
	var pages pagesRead
	config.ConnConfig.Tracer = &pages
	db, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- services.Run(ctx, services.Config{DB: db, NATS: services.ToNATS(server.URL())})
	}()
	const tasks = 10_000
	// The first ones may come before the others work, and further ones while the machine is slow.
	for n, byProjector := 0, int64(1); byProjector > 0; n++ {
		if ctx.Err() != nil {
			t.Fatalf("the projector has read %d pages of %d tasks", byProjector, tasks)
		}
		others, projected := pages.others.Load(), pages.projector.Load()
		entries := make([]ledger.Entry, tasks)
		for i := range entries {
			entries[i] = ledger.Entry{Key: ledger.Key{Kind: greet.Name(),
				BizID: ledger.BizID(fmt.Sprintf("order-%d-%d", n, i))}, Args: []byte(`"world"`)}
		}
		last, err := ledger.EnqueueMany(ctx, owner, entries)
		if err != nil {
			t.Fatal(err)
		}
		if err := projector.WaitFor(ctx, db, last[tasks-1].Position); err != nil {
			t.Fatal(err)
		}
		byProjector = pages.projector.Load() - projected
		if byProjector == 0 && pages.others.Load() == others {
			t.Error("no other service has read a page")
		}
		t.Logf("pages read by the projector: %d", byProjector)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Run passes its latency to the dispatcher, where workers read it.
func TestRunWithALatency(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.App)
	server := startNATS(t)
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- services.Run(ctx, services.Config{
			DB: ledgertest.As(t, owner, "relay"), NATS: services.ToNATS(server.URL()), Latency: 7 * time.Millisecond,
		})
	}()
	for micros := int64(0); micros != 7000; time.Sleep(10 * time.Millisecond) {
		const latency = "select coalesce(max(d.latency_us), 0) from taskledger_internal.dispatcher d"
		if err := owner.QueryRow(ctx, latency).Scan(&micros); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// pagesRead counts the pages that the services read within a window, by the greatest number of rows.
type pagesRead struct{ others, projector atomic.Int64 }

func (p *pagesRead) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if !strings.Contains(d.SQL, "taskledger_internal.feed_page(") || strings.Contains(d.SQL, "asleep_until") {
		return ctx
	}
	if d.Args[len(d.Args)-1] == int64(4001) {
		p.projector.Add(1)
	} else {
		p.others.Add(1)
	}
	return ctx
}

func (*pagesRead) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// roundTrips counts statements and batches.
type roundTrips struct{ n atomic.Int64 }

func (r *roundTrips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	r.n.Add(1)
	return ctx
}

func (*roundTrips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (r *roundTrips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	r.n.Add(1)
	return ctx
}

func (*roundTrips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (*roundTrips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// wantNoWarning checks that a log contains no warnings except warnings of a slow machine.
func wantNoWarning(t *testing.T, log string) {
	t.Helper()
	for line := range strings.Lines(log) {
		if strings.Contains(line, "a poll of the timers was slow") {
			continue
		}
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			t.Errorf("logged at an ordinary first start: %s", line)
		}
	}
}

// awaitReady waits until a request is answered with 200.
func awaitReady(t *testing.T, url string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		answer, err := http.Get(url)
		if err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("not ready after %s: %v %v", patience, answer, err)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	if err := services.Run(t.Context(), services.Config{}); err == nil {
		t.Error("Run without DB and NATS")
	}
}

// With a database alone, Run runs the NATS server, and a worker with the address of the database alone finds it.
func TestRunWithItsOwnServer(t *testing.T) {
	t.Setenv("NATS_URL", "")
	owner := ledgertest.Pool(t, ledgertest.App)
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	ended := make(chan error, 2)
	relay, dir := ledgertest.As(t, owner, "relay"), t.TempDir()
	var log lines
	go func() {
		ended <- services.Run(ctx, services.Config{
			DB: relay, Server: services.ServerConfig{Dir: dir}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
	}()
	client, err := taskledger.Open(ctx, taskledger.Options{DatabaseURL: owner.Config().ConnString()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	worked := make(chan string, 1)
	pool, err := client.Worker(greeting(worked))
	if err != nil {
		t.Fatal(err)
	}
	go func() { ended <- pool.Run(ctx) }()
	if _, err := greet.Enqueue(ctx, client.DB, "order-17", "world", nil); err != nil {
		t.Fatal(err)
	}
	select {
	case <-worked:
	case <-ctx.Done():
		t.Fatal("no handler was called")
	}
	stop()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	wantNoWarning(t, log.String())
}
