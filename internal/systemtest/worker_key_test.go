package systemtest_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// A worker with the key of another user logs why the server refuses it, and the cure.
func TestWorkerWithAWrongKeyLogsTheCure(t *testing.T) {
	g := newGuarded(t)
	g.startOn("relay", g.connect("relay"), newGuardedRelay) // a dispatcher of this process would need no NATS
	for _, user := range []string{"operator", "mails"} {    // relay may ask: serve does for workers over HTTP
		t.Run(user, func(t *testing.T) {
			logged := make(chan string, 1)
			options := &slog.HandlerOptions{Level: slog.LevelWarn}
			log := slog.New(slog.NewTextHandler(warnings(logged), options))
			build := func(db *pgxpool.Pool, nc *nats.Conn, _ *slog.Logger) (runner, error) { return sends(db, nc, log) }
			g.startOn("with the key of "+user, g.connect(user), build)
			for end := time.After(patience); ; {
				select {
				case line := <-logged:
					if strings.Contains(line, "cannot ask for tasks") &&
						strings.Contains(strings.ToLower(line), "permissions violation") &&
						strings.Contains(line, "key of the user worker of taskledger nats-config") {
						return
					}
					t.Log(line)
				case <-end:
					t.Fatal("the cure is not logged")
				}
			}
		})
	}
}

// A relay with the key of another user reports why the server refuses it, and the cure.
func TestRelayWithAWrongKeyReportsTheCure(t *testing.T) {
	g := newGuarded(t)
	run := func(user string) (stop func()) {
		r, err := newGuardedRelay(g.pool("relay"), g.connect(user), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := startRun(ctx, r)
		return func() {
			cancel()
			<-done
		}
	}
	db := g.pool("operator")
	await := func(what string, holds func(relays.Status) bool) {
		for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			status, err := relays.ReadStatus(t.Context(), db, nil, outbox.StreamConfig{})
			if err != nil {
				t.Fatal(err)
			}
			if holds(status) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: still not, relay %+v", what, status.Relay)
			}
		}
	}
	stop := run("relay") // creates the stream
	ledgertest.Enqueue(t, g.pool("producer"), ledgertest.Key(t, "coupon.send/1"), "")
	await("published", func(s relays.Status) bool { return s.Relay != nil && s.Waiting == 0 && s.Generation > 0 })
	stop()
	stop = run("worker")
	defer stop()
	ledgertest.Enqueue(t, g.pool("producer"), ledgertest.Key(t, "coupon.send/2"), "")
	await("the cure in the status", func(s relays.Status) bool {
		return s.Relay != nil && !s.Relay.IsStoreFailure &&
			strings.Contains(s.Relay.Note, "key of the user relay of taskledger nats-config")
	})
}

// warnings receives the lines of a logger.
type warnings chan string

func (w warnings) Write(line []byte) (int, error) {
	select {
	case w <- string(line):
	default:
	}
	return len(line), nil
}
