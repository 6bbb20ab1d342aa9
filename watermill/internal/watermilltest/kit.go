// Package watermilltest runs a ledger, a JetStream, the relay between them and a dispatcher, for the tests of the
// Watermill adapters.
package watermilltest

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/dispatcher"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// Patience bounds waits that normally take milliseconds.
const Patience = 60 * time.Second

// Kit is a ledger and a JetStream of one test. Its methods fail the test on an error, so they are for
// the test's goroutine.
type Kit struct {
	T      testing.TB
	DB     *pgxpool.Pool
	Server *natsserver.Server
	NATS   *nats.Conn
	JS     jetstream.JetStream // on NATS
}

// New returns a kit without a relay, and so without a stream.
func New(t testing.TB) *Kit {
	t.Helper()
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	roles := []string{ledgertest.App, "operator"}
	if _, ok := t.(*testing.B); ok {
		roles = []string{ledgertest.Owner} // as in the figures of earlier runs
	}
	k := &Kit{T: t, DB: ledgertest.Pool(t, roles...), Server: server}
	k.NATS = k.Connect()
	if k.JS, err = jetstream.New(k.NATS); err != nil {
		t.Fatal(err)
	}
	return k
}

// Start returns a kit whose relay and dispatcher run until the test ends.
func Start(t testing.TB) *Kit {
	t.Helper()
	k := New(t)
	db := k.DB
	if _, ok := t.(*testing.B); !ok {
		db = ledgertest.As(t, k.DB, "relay")
	}
	relay, err := outbox.New(outbox.Config{
		DB: db, NATS: k.Connect(),
		LeaseTTL: time.Second, CheckEvery: 100 * time.Millisecond, AckTimeout: 2 * time.Second,
		Stream: outbox.StreamConfig{MaxBytes: 1 << 30},
	})
	if err != nil {
		t.Fatal(err)
	}
	gives, err := dispatcher.New(dispatcher.Config{DB: db, NATS: k.Connect()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	services := make(chan error, 1)
	go func() { services <- loop.Together(ctx, relay.Run, gives.Run) }()
	t.Cleanup(func() {
		stop()
		if err := <-services; err != nil {
			t.Errorf("relay or dispatcher: %v", err)
		}
	})
	k.Await("the stream exists", func() bool {
		_, err := k.JS.Stream(t.Context(), stream.Name)
		return err == nil
	})
	return k
}

// Connect returns a new connection to the NATS server.
func (k *Kit) Connect() *nats.Conn {
	k.T.Helper()
	nc, err := outbox.Connect(k.Server.URL(), nats.ReconnectWait(20*time.Millisecond),
		nats.ReconnectJitter(time.Millisecond, time.Millisecond))
	if err != nil {
		k.T.Fatal(err)
	}
	k.T.Cleanup(nc.Close)
	return nc
}

// Logger returns a logger that writes to the test's output.
func (k *Kit) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(k.T.Output(), nil)) }

// Await waits until a condition holds.
func (k *Kit) Await(condition string, holds func() bool) {
	k.T.Helper()
	for deadline := time.Now().Add(Patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			k.T.Fatalf("after %s it does not hold that %s", Patience, condition)
		}
	}
}

// AwaitPublished waits until every committed event is on the stream.
func (k *Kit) AwaitPublished() {
	k.T.Helper()
	k.Await("the outbox is empty", func() bool { return k.Count(`select count(*) from taskledger.outbox`) == 0 })
}

// AwaitState waits until a task is in a state, and returns it.
func (k *Kit) AwaitState(key ledger.Key, s ledger.State) ledger.Task {
	k.T.Helper()
	var task ledger.Task
	k.Await(fmt.Sprintf("%s is %s", key, s), func() bool {
		var err error
		task, err = ledger.Load(k.T.Context(), k.DB, key)
		return err == nil && task.State == s
	})
	return task
}

// History returns the events of a task.
func (k *Kit) History(key ledger.Key) []ledger.Event {
	k.T.Helper()
	history, err := ledger.History(k.T.Context(), k.DB, key)
	if err != nil {
		k.T.Fatal(err)
	}
	return history
}

// EventTypes returns the types of a task's events, joined by spaces.
func (k *Kit) EventTypes(key ledger.Key) string {
	k.T.Helper()
	var types []string
	for _, e := range k.History(key) {
		types = append(types, string(e.Type))
	}
	return strings.Join(types, " ")
}

// Count returns the number that a query selects.
func (k *Kit) Count(sql string, args ...any) int {
	k.T.Helper()
	var n int
	if err := k.DB.QueryRow(k.T.Context(), sql, args...).Scan(&n); err != nil {
		k.T.Fatal(err)
	}
	return n
}

// Exec executes a statement.
func (k *Kit) Exec(sql string, args ...any) {
	k.T.Helper()
	if _, err := k.DB.Exec(k.T.Context(), sql, args...); err != nil {
		k.T.Fatal(err)
	}
}
