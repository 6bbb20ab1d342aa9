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
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
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
