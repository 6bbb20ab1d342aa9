package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/migrations"
	"github.com/taskledger/taskledger/outbox"
)

const backlog = 200_000

// BenchmarkRelay measures how fast a relay publishes a backlog, on servers that sync to disk as in production.
func BenchmarkRelay(b *testing.B) {
	server, err := pgserver.Start(b.Context(), pgserver.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := server.Close(); err != nil {
			b.Error(err)
		}
	})
	for b.Loop() {
		b.StopTimer()
		s := newBundleOn(b, syncedPool(b, server), natsserver.Config{})
		for from := 0; from < backlog; from += 10_000 {
			var entries []ledger.Entry
			for i := range 10_000 {
				key := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprintf("order-%d", from+i))}
				args := json.RawMessage(`{"customer":"c-1234","amount":5}`)
				entries = append(entries, ledger.Entry{Key: key, Args: args})
			}
			if _, err := ledger.EnqueueMany(b.Context(), s.pool, entries); err != nil {
				b.Fatal(err)
			}
		}
		var published atomic.Int64
		done := make(chan struct{})
		b.StartTimer()
		r := s.relay(func(c *outbox.Config) {
			c.Logger = slog.New(slog.DiscardHandler)
			c.Hooks = []outbox.Hook{{MessagesPublished: func(_ context.Context, n int) {
				if published.Add(int64(n)) == backlog {
					close(done)
				}
			}}}
		})
		<-done
		b.StopTimer()
		s.awaitPublished()
		r.end()
		if got := s.state().Msgs; got != backlog {
			b.Errorf("%d messages on the stream, want %d", got, backlog)
		}
		b.StartTimer()
	}
	b.ReportMetric(backlog*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

var databases atomic.Int64

// syncedPool returns a pool on a new ledger of a server.
func syncedPool(b *testing.B, server *pgserver.Server) *pgxpool.Pool {
	b.Helper()
	admin, err := pgxpool.New(b.Context(), server.URL("postgres"))
	if err != nil {
		b.Fatal(err)
	}
	defer admin.Close()
	name := fmt.Sprintf("bench_%d", databases.Add(1))
	if _, err := admin.Exec(b.Context(), "create database "+name); err != nil {
		b.Fatal(err)
	}
	if err := migrations.Up(b.Context(), server.URL(name)); err != nil {
		b.Fatal(err)
	}
	pool, err := pgxpool.New(b.Context(), server.URL(name))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	return pool
}
