// Package conformance holds Watermill's own test suite for our two Pub/Subs, and tests of
// Watermill's Router and CQRS on them. It has no other code, since outbox and workers do not
// import each other.
package conformance_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
	outboxwm "github.com/taskledger/taskledger/outbox/watermill"
)

// patience bounds what normally takes milliseconds.
const patience = 60 * time.Second

// bundle is a ledger, a JetStream, and the relay between them.
type bundle struct {
	t      testing.TB
	db     *pgxpool.Pool
	server *natsserver.Server
	nc     *nats.Conn
}

func newBundle(t testing.TB) *bundle { return newBundleOn(t, ledgertest.Pool(t)) }

func newBundleOn(t testing.TB, db *pgxpool.Pool) *bundle {
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
	b := &bundle{t: t, db: db, server: server}
	b.nc = b.connect()
	relay, err := outbox.New(outbox.Config{DB: db, NATS: b.connect(), LeaseTTL: time.Second, CheckEvery: 100 * time.Millisecond,
		AckTimeout: 2 * time.Second, Stream: outbox.StreamConfig{MaxBytes: 1 << 30}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- relay.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("relay: %v", err)
		}
	})
	b.await("the stream is there", func() bool {
		_, err := b.js().Stream(t.Context(), stream.Name)
		return err == nil
	})
	return b
}

func (b *bundle) js() jetstream.JetStream {
	b.t.Helper()
	js, err := jetstream.New(b.nc)
	if err != nil {
		b.t.Fatal(err)
	}
	return js
}

func (b *bundle) connect() *nats.Conn {
	b.t.Helper()
	nc, err := outbox.Connect(b.server.URL(), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(time.Millisecond, time.Millisecond))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(nc.Close)
	return nc
}

// await waits for a condition.
func (b *bundle) await(what string, ok func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("in vain: %s", what)
		}
	}
}

// logger logs into the test.
func (b *bundle) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(b.t.Output(), nil))
}

// restartCommand returns a command that restarts the NATS server, for Watermill's suite, which
// wants one: this test program, asking the test.
func (b *bundle) restartCommand() []string {
	b.t.Helper()
	path := filepath.Join(b.t.TempDir(), "restart")
	listener, err := net.Listen("unix", path)
	if err != nil {
		b.t.Fatal(err)
	}
	ended := make(chan struct{})
	b.t.Cleanup(func() {
		_ = listener.Close()
		<-ended
	})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			b.server.Stop()
			answer := "restarted"
			if err := b.server.Restart(); err != nil {
				answer = err.Error()
			}
			_, _ = fmt.Fprint(conn, answer)
			_ = conn.Close()
		}
	}()
	return []string{os.Args[0], "restart", path}
}

// TestMain is the other end of restartCommand.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "restart" {
		conn, err := net.Dial("unix", os.Args[2])
		if err == nil {
			answer := make([]byte, 1024)
			n, _ := conn.Read(answer)
			if string(answer[:n]) == "restarted" {
				return
			}
			err = fmt.Errorf("%s", answer[:n])
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
func (b *bundle) publisher() *outboxwm.Publisher {
	b.t.Helper()
	p, err := outboxwm.NewPublisher(context.Background(), b.db, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

// publish publishes messages from the pool.
func (b *bundle) publish(topic string, messages ...*message.Message) {
	b.t.Helper()
	if err := b.publisher().Publish(topic, messages...); err != nil {
		b.t.Fatal(err)
	}
}

// receive returns the next message of a channel.
func (b *bundle) receive(messages <-chan *message.Message) *message.Message {
	b.t.Helper()
	select {
	case m, ok := <-messages:
		if !ok {
			b.t.Fatal("the channel is closed")
		}
		return m
	case <-time.After(patience):
		b.t.Fatal("no message came")
	}
	return nil
}

// types returns the types of a task's events.
func (b *bundle) types(k ledger.Key) string {
	b.t.Helper()
	var types []string
	for _, e := range b.history(k) {
		types = append(types, string(e.Type))
	}
	return strings.Join(types, " ")
}

func (b *bundle) history(k ledger.Key) []ledger.Event {
	b.t.Helper()
	history, err := ledger.History(b.t.Context(), b.db, k)
	if err != nil {
		b.t.Fatal(err)
	}
	return history
}

func (b *bundle) awaitState(k ledger.Key, s ledger.State) ledger.Task {
	b.t.Helper()
	var task ledger.Task
	b.await(fmt.Sprintf("%s to be %s", k, s), func() bool {
		var err error
		task, err = ledger.Load(b.t.Context(), b.db, k)
		return err == nil && task.State == s
	})
	return task
}

// count returns the number that a query answers.
func (b *bundle) count(sql string, args ...any) int {
	b.t.Helper()
	var n int
	if err := b.db.QueryRow(b.t.Context(), sql, args...).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.db.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatal(err)
	}
}

// router returns a router that runs from start until the test ends.
func (b *bundle) router() (router *message.Router, start func()) {
	b.t.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, watermill.NewSlogLogger(b.logger()))
	if err != nil {
		b.t.Fatal(err)
	}
	return router, func() {
		ended := make(chan error, 1)
		go func() { ended <- router.Run(context.Background()) }()
		<-router.Running()
		b.t.Cleanup(func() {
			if err := router.Close(); err != nil {
				b.t.Error(err)
			}
			if err := <-ended; err != nil {
				b.t.Error(err)
			}
		})
	}
}
