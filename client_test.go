package taskledger_test

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/internal/broker"
	"github.com/taskledger/taskledger/internal/natsclient"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/services"
	"github.com/taskledger/taskledger/workers"
)

// patience bounds what normally takes milliseconds.
const patience = time.Minute

// open opens a client, which is closed after the test.
func open(t *testing.T, o taskledger.Options) *taskledger.Client {
	t.Helper()
	c, err := taskledger.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// greeting is a kind whose handler sends the name to a channel, with a result.
func greeting(greeted chan<- string) workers.Registration {
	return workers.Handle(greet, func(_ context.Context, _ pgx.Tx, job *workers.Job, name string) error {
		greeted <- name
		return job.Result("hello " + name)
	}, &workers.KindConfig{Slots: 2})
}

// observer records everything that a client opened, and how many of its attempts ended.
type observer struct {
	databases []*pgxpool.Pool
	conns     []*nats.Conn
	pools     []*workers.Pool
	attempts  atomic.Int64
}

func (o *observer) AddDatabase(db *pgxpool.Pool) { o.databases = append(o.databases, db) }
func (o *observer) AddNATS(nc *nats.Conn)        { o.conns = append(o.conns, nc) }
func (o *observer) AddWorkers(p *workers.Pool)   { o.pools = append(o.pools, p) }

func (o *observer) Workers() workers.Hook { return countAttempts(&o.attempts) }

// tracer counts calls.
type tracer struct{ attempts, handlers atomic.Int64 }

func (s *tracer) Workers() workers.Hook { return countAttempts(&s.attempts) }

func (s *tracer) Handler() workers.Middleware {
	return func(next workers.Handler) workers.Handler {
		return func(ctx context.Context, tx pgx.Tx, job *workers.Job, args []byte) error {
			s.handlers.Add(1)
			return next(ctx, tx, job, args)
		}
	}
}

// countAttempts returns a hook that counts attempts.
func countAttempts(n *atomic.Int64) workers.Hook {
	return workers.Hook{AfterAttempt: func(context.Context, *workers.Job, workers.AttemptEnd) { n.Add(1) }}
}

// A client works and waits, and its options reach its worker: metrics, traces, logger and the caller's configuration.
// Its pools are as large as their parts need.
func TestClientWorksAndWaits(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.App, "subscriber")
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	relay := ledgertest.As(t, owner, "relay")
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	lines, seen, traced, own := make(logLines, 100), &observer{}, &tracer{}, &observer{}
	client := open(t, taskledger.Options{
		DatabaseURL: owner.Config().ConnString(), NATSURL: server.URL(), Metrics: seen, Tracing: traced,
		Logger: slog.New(slog.NewTextHandler(lines, nil)),
		Worker: workers.Config{Name: "greeter", Hooks: []workers.Hook{own.Workers()}},
	})
	waiting := open(t, taskledger.Options{
		DatabaseURL: ledgertest.URLAs(t, owner.Config().ConnString(), "subscriber"), NATSURL: server.URL(),
	})
	mail := ledger.MustKind[string]("mail.send")
	outside := func(context.Context, *workers.Job, string) error { return nil }
	greeted := make(chan string, 1)
	pool, err := client.Worker(greeting(greeted), workers.Handle(mail, outside, nil))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	go func() {
		ended <- services.Run(ctx, services.Config{
			DB: relay, NATS: services.ToNATS(server.URL()), Logger: slog.New(slog.DiscardHandler),
		})
	}()
	go func() { ended <- pool.Run(ctx) }()
	if _, err := greet.Enqueue(ctx, client.DB, "order-17", "world", nil); err != nil {
		t.Fatal(err)
	}
	task, err := client.Wait(ctx, greet.Key("order-17"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := waiting.Wait(ctx, greet.Key("order-17")); err != nil {
		t.Fatal(err)
	}
	if text, err := ledger.ResultOf[string](task); err != nil || text != "hello world" {
		t.Errorf("the result is %q: %v", text, err)
	}
	if name := <-greeted; name != "world" {
		t.Errorf("greeted %q", name)
	}
	if nc, err := client.NATS(); err != nil || nc != seen.conns[0] {
		t.Errorf("the connection to NATS is not the worker's: %v", err)
	}
	if !strings.HasPrefix(pool.ID(), "greeter-") {
		t.Errorf("the worker is called %s", pool.ID())
	}
	stop()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	for name, n := range map[string]*atomic.Int64{
		"attempts traced": &traced.attempts, "handlers traced": &traced.handlers,
		"attempts of the metrics": &seen.attempts, "attempts of the own hook": &own.attempts,
	} {
		if n.Load() != 1 {
			t.Errorf("%d %s, want 1", n.Load(), name)
		}
	}
	// ExactlyOnce handlers hold connections, others do not. The wait uses the worker's connection to NATS.
	if len(seen.databases) != 2 || seen.databases[0] != client.DB || len(seen.conns) != 1 || len(seen.pools) != 1 ||
		seen.databases[1].Config().MaxConns != 2+taskledger.WorkerConns {
		t.Errorf("opened %+v", seen)
	}
	found := false
	for len(lines) > 0 {
		found = strings.Contains(<-lines, "worker runs") || found
	}
	if !found {
		t.Error("the worker has another logger")
	}
}

// A program that waits needs no worker. It connects to NATS when it waits.
func TestClientOnlyWaits(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, "producer", "subscriber")
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	seen := &observer{}
	client := open(t, taskledger.Options{
		DatabaseURL: owner.Config().ConnString(), NATSURL: server.URL(), Metrics: seen,
	})
	if _, err := greet.Enqueue(t.Context(), client.DB, "order-17", "world", nil); err != nil {
		t.Fatal(err)
	}
	if len(seen.conns) != 0 {
		t.Error("connected to NATS before the first wait")
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := client.Wait(ctx, greet.Key("order-17")); !errors.Is(err, context.Canceled) {
		t.Errorf("waited beyond the end of its context: %v", err)
	}
	ledgertest.Append(t, ledgertest.As(t, owner, ledgertest.Owner), greet.Key("order-17"), ledger.EventSucceeded)
	if _, err := greet.Wait(t.Context(), client, "order-17"); err != nil {
		t.Error(err)
	}
	if len(seen.conns) != 1 || len(seen.databases) != 1 {
		t.Errorf("opened %+v", seen)
	}
	client.Close()
	if _, err := client.Wait(t.Context(), greet.Key("order-17")); !errors.Is(err, outbox.ErrWaiterClosed) {
		t.Errorf("waited after Close: %v", err)
	}
	if _, err := client.Worker(); err == nil {
		t.Error("made a worker after Close")
	}
	if _, err := client.NATS(); err == nil {
		t.Error("connected after Close")
	}
}

// A worker with an invalid kind or configuration is refused, with every fault, and leaves no connections.
func TestClientRefusesWorkers(t *testing.T) {
	t.Parallel()
	address := ledgertest.Pool(t, ledgertest.App).Config().ConnString()
	tooFew := workers.Handle(greet, func(context.Context, *workers.Job, string) error { return nil },
		&workers.KindConfig{Slots: -1})
	for _, tt := range []struct {
		name  string
		kinds []workers.Registration
		c     workers.Config
		want  string
	}{
		{name: "slots of a kind", want: "Slots must be between",
			kinds: []workers.Registration{tooFew}},
		{name: "a kind twice", want: "already registered",
			kinds: []workers.Registration{greeting(nil), greeting(nil)}},
		{name: "slots of the worker", c: workers.Config{Slots: -1}, want: "Slots must be at least 0"},
	} {
		seen := &observer{}
		client := open(t, taskledger.Options{DatabaseURL: address, NATSURL: "nats://127.0.0.1:1", Metrics: seen,
			Worker: tt.c})
		if _, err := client.Worker(tt.kinds...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
		}
		if len(seen.databases) != 1 || len(seen.pools) != 0 {
			t.Errorf("%s: opened %+v", tt.name, seen)
		}
	}
}

func TestOpenProducer(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, "producer")
	address := owner.Config().ConnString()
	for _, tt := range []struct {
		name    string
		address string
		conns   int32
	}{
		{name: "default", address: address, conns: taskledger.ProducerConns},
		{name: "of the address", address: withParameter(t, address, "pool_max_conns", "3"), conns: 3},
	} {
		client, err := taskledger.Open(t.Context(), taskledger.Options{DatabaseURL: tt.address, Name: "shop"})
		if err != nil {
			t.Fatal(err)
		}
		var name, encoding string
		if err := client.DB.QueryRow(t.Context(), `
			select current_setting('application_name'), current_setting('client_encoding')`).
			Scan(&name, &encoding); err != nil {
			t.Fatal(err)
		}
		if have := client.DB.Config().MaxConns; have != tt.conns || name != "shop" ||
			encoding != "UTF8" {
			t.Errorf("%s: %d connections, want %d; %q %q", tt.name, have, tt.conns, name, encoding)
		}
		client.Close()
	}
}

// A worker without a NATS server logs the cause and the cure.
func TestOpenWithoutNATS(t *testing.T) {
	t.Parallel()
	lines := make(logLines, 100)
	client := open(t, taskledger.Options{
		DatabaseURL: ledgertest.Pool(t, "worker").Config().ConnString(),
		Logger:      slog.New(slog.NewTextHandler(lines, nil)),
	})
	if _, err := client.Worker(greeting(nil)); err != nil {
		t.Fatal(err)
	}
	const want = "no process runs a NATS server for this database: start taskledger serve"
	select {
	case line := <-lines:
		if !strings.Contains(line, want) {
			t.Errorf("logged %s, want %s", line, want)
		}
	case <-time.After(patience):
		t.Error("nothing was logged")
	}
}

// A worker whose database names a NATS server at an address that is dead logs the address and the cure, and connects
// when the database names a living one.
func TestOpenWithUnreachableNATS(t *testing.T) {
	t.Parallel()
	db, dir := ledgertest.Pool(t, "relay"), t.TempDir()
	run := func(advertise string) (stop func()) {
		server, err := broker.New(broker.Config{DB: db, Dir: dir, Advertise: advertise})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		ended := make(chan error, 1)
		go func() { ended <- server.Run(ctx) }()
		stop = sync.OnceFunc(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(stop)
		return stop
	}
	stop := run("127.0.0.1:1")
	if err := natsclient.Await(t.Context(), db, natsconfig.Relay); err != nil {
		t.Fatal(err)
	}
	lines, seen := make(logLines, 100), &observer{}
	client := open(t, taskledger.Options{
		DatabaseURL: ledgertest.URLAs(t, db.Config().ConnString(), "worker"), Metrics: seen,
		Logger: slog.New(slog.NewTextHandler(lines, nil)),
	})
	if _, err := client.Worker(greeting(nil)); err != nil {
		t.Fatal(err)
	}
	producerLines := make(logLines, 100)
	producer := open(t, taskledger.Options{
		DatabaseURL: ledgertest.URLAs(t, db.Config().ConnString(), "producer"),
		Logger:      slog.New(slog.NewTextHandler(producerLines, nil)),
	})
	if _, err := producer.Worker(greeting(nil)); err != nil {
		t.Fatal(err)
	}
	select {
	case line := <-producerLines:
		if !strings.Contains(line, "grant it the role worker of this database, or set NATS_URL") {
			t.Errorf("logged %s without the cure", line)
		}
	case <-time.After(patience):
		t.Error("nothing was logged")
	}
	const want = "the NATS server of this database cannot be reached at 127.0.0.1:1: no process listens there: " +
		"check that this machine reaches it; serve --advertise names its address"
	select {
	case line := <-lines:
		if !strings.Contains(line, want) {
			t.Errorf("logged %s, want %s", line, want)
		}
	case <-time.After(patience):
		t.Error("nothing was logged")
	}
	stop()
	run("")
	for begun := time.Now(); !seen.conns[0].IsConnected(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begun) > patience {
			t.Fatal("the worker does not connect")
		}
	}
}

// logLines receives the lines of a log.
type logLines chan string

func (l logLines) Write(line []byte) (int, error) {
	select {
	case l <- string(line):
	default:
	}
	return len(line), nil
}

func withParameter(t *testing.T, address, name, value string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}

func TestOpenRefuses(t *testing.T) {
	t.Setenv("DATABASE_URL", "")
	t.Setenv("NATS_URL", "")
	for _, tt := range []struct {
		name    string
		options taskledger.Options
		want    string
	}{
		{
			name: "no address",
			want: "invalid DatabaseURL: is required: set it, or the environment variable DATABASE_URL",
		},
		{name: "address", options: taskledger.Options{DatabaseURL: "postgres://u:s3cret%zz@h/d"},
			want: "must be an address of PostgreSQL"},
	} {
		_, err := taskledger.Open(t.Context(), tt.options)
		var invalid *ledger.InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), tt.want) ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	_, err := taskledger.Open(t.Context(), taskledger.Options{DatabaseURL: "postgres://127.0.0.1:1/d"})
	if !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

// A handler that does not return may hold a connection that it has acquired. Close returns nevertheless, so that the
// process ends.
func TestCloseDoesNotWaitForAHandlerThatHangs(t *testing.T) {
	t.Parallel()
	c, err := taskledger.Open(t.Context(), taskledger.Options{DatabaseURL: ledgertest.URL(t)})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := c.DB.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	closed := make(chan struct{})
	go func() { defer close(closed); c.Close() }()
	select {
	case <-closed:
	case <-time.After(10 * taskledger.CloseTimeout):
		t.Error("Close has not returned")
	}
}
