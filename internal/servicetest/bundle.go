// Package servicetest contains the parts that tests of workers and other services share: one [Bundle] per test with a
// database, a broker and short methods. It is for tests only.
package servicetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Patience is how long a condition may take before its test has failed.
const Patience = 60 * time.Second

// Bundle is the environment of one test, or of a table of subtests, see [Bundle.In]. Its methods end the test if they
// fail.
type Bundle struct {
	T  testing.TB
	DB *pgxpool.Pool // for the test's own statements, with the roles of [Pool]

	AllAsOwner bool     // the parts of the product have DB, whose sessions only a superuser can begin
	shared     *poolSet // with the bundles of subtests

	kind  ledger.TypedKind[OrderArgs]
	kinds string // that the test counts: a pattern of LIKE

	// The broker; nil if the bundle was made by NewDatabase.
	Server *natsserver.Server
	NC     *nats.Conn
	JS     jetstream.JetStream
}

// New returns a bundle with a database, which contains a table for effects, and a NATS server.
func New(t testing.TB) *Bundle {
	t.Helper()
	return NewOn(t, Pool(t))
}

// Pool returns a pool for a test's own statements, with all roles that write. No part of the product runs with all of
// them, see [Bundle.As].
func Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return ledgertest.Pool(t, ledgertest.App, "relay", "operator")
}

// NewOn is [New] on a given database.
func NewOn(t testing.TB, db *pgxpool.Pool) *Bundle {
	t.Helper()
	return newWithBroker(t, db)
}

// NewDatabase returns a bundle with a database only.
func NewDatabase(t testing.TB) *Bundle {
	t.Helper()
	return NewDatabaseOn(t, Pool(t))
}

// NewDatabaseOn is [NewDatabase] on a given database.
func NewDatabaseOn(t testing.TB, db *pgxpool.Pool) *Bundle {
	return &Bundle{T: t, DB: db, shared: &poolSet{t: t, pools: make(map[string]*pgxpool.Pool)}, kind: Order, kinds: "%"}
}

// In returns the bundle for a subtest. It has the database, the broker and the running services of b, and a kind of its
// own, so that subtests may run in parallel. Another set-up would take half a second of CPU time.
func (b *Bundle) In(t testing.TB) *Bundle {
	in := *b
	in.T = t
	name := fmt.Sprintf("%s-%d", Order.Name(), b.shared.subtests.Add(1))
	in.kind = ledger.MustKind[OrderArgs](ledger.Kind(name))
	in.kinds = name
	return &in
}

// Kind is the kind of the test's tasks: [Order], or in a subtest a kind of its own.
func (b *Bundle) Kind() ledger.TypedKind[OrderArgs] { return b.kind }

func newWithBroker(t testing.TB, db *pgxpool.Pool) *Bundle {
	t.Helper()
	b := NewDatabaseOn(t, db)
	b.Server = Try(natsserver.Start(natsserver.Config{Dir: t.TempDir()}))(t)
	t.Cleanup(func() { _ = b.Server.Close() })
	b.NC = b.Connect()
	b.JS = Try(jetstream.New(b.NC))(t)
	b.CreateEffects()
	b.As(ledgertest.App) // here, so that it is closed after everything that the test begins later
	return b
}

// As returns a pool as a role, see [ledgertest.As]. A bundle starts every part of the product with the role of its job.
func (b *Bundle) As(role string) *pgxpool.Pool {
	b.T.Helper()
	if b.AllAsOwner {
		return b.DB
	}
	return b.shared.pool(b.DB, role)
}

// poolSet is the part of a bundle that its subtests share. It ends with the test that made it.
type poolSet struct {
	t        testing.TB
	subtests atomic.Int32
	mu       sync.Mutex
	pools    map[string]*pgxpool.Pool // by role; guarded by mu
}

func (s *poolSet) pool(like *pgxpool.Pool, role string) *pgxpool.Pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	pool, ok := s.pools[role]
	if !ok {
		pool = ledgertest.As(s.t, like, role)
		s.pools[role] = pool
	}
	return pool
}

// Try returns a function that returns v, or ends the test if err is not nil.
func Try[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Connect returns another connection to the broker, which is closed after the test.
func (b *Bundle) Connect() *nats.Conn {
	b.T.Helper()
	nc := Try(stream.Connect(b.Server.URL(), nats.ReconnectWait(20*time.Millisecond)))(b.T)
	b.T.Cleanup(nc.Close)
	return nc
}

// Context returns a context that ends after [Patience], and with the test.
func (b *Bundle) Context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	b.T.Cleanup(cancel)
	return ctx
}

// Logger returns a logger that writes into the test's log.
func (b *Bundle) Logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(logWriter{b.T, ""}, &slog.HandlerOptions{Level: level}))
}

// logWriter writes lines into a test's log.
type logWriter struct {
	t      testing.TB
	prefix string
}

func (w logWriter) Write(line []byte) (int, error) {
	w.t.Logf("%s%s", w.prefix, line[:max(0, len(line)-1)])
	return len(line), nil
}

// Exec executes a statement.
func (b *Bundle) Exec(sql string, args ...any) {
	b.T.Helper()
	if _, err := b.DB.Exec(b.Context(), sql, args...); err != nil {
		b.T.Fatalf("%s: %v", sql, err)
	}
}

// Forge executes a statement as the owner, see [ledgertest.ExecAsOwner].
func (b *Bundle) Forge(sql string, args ...any) {
	b.T.Helper()
	ledgertest.ExecAsOwner(b.T, b.DB, sql, args...)
}

// embedder is a Bundle, or a type that embeds one.
type embedder interface{ bundle() *Bundle }

func (b *Bundle) bundle() *Bundle { return b }

// One returns the single value of a query.
func One[T any](e embedder, sql string, args ...any) T {
	b := e.bundle()
	b.T.Helper()
	for {
		rows, _ := b.DB.Query(b.Context(), sql, args...)
		v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
		if pgerr.Is(err, pgerr.AdminShutdown) {
			continue // on a connection from before the server was restarted
		}
		if err != nil {
			b.T.Fatalf("%s: %v", sql, err)
		}
		return v
	}
}

// Await polls until ok returns true. It waits longer between later polls, because a poll mostly costs a query: an
// eighth of the time that has passed, at most 50 ms.
func (b *Bundle) Await(what string, ok func() bool) {
	b.T.Helper()
	for start := time.Now(); !ok(); {
		passed := time.Since(start)
		if passed > Patience {
			b.T.Fatalf("still waiting for: %s", what)
		}
		time.Sleep(min(max(passed/8, time.Millisecond), 50*time.Millisecond)) // polls the condition
	}
}

// Start runs a part of the product until stop is called or the test ends. It fails the test if that returns an error.
func (b *Bundle) Start(run func(context.Context) error) (stop func()) {
	b.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			b.T.Error(err)
		}
	})
	b.T.Cleanup(stop)
	return stop
}

// ErrBoom is the error of handlers that fail.
var ErrBoom = errors.New("boom")
