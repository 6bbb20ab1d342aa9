package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

// BenchmarkSubscribe measures how fast a subscriber catches up, on a server that syncs to disk as in production: at
// least once, and exactly once with an update in the transaction of each page.
func BenchmarkSubscribe(b *testing.B) {
	server, err := pgserver.Start(b.Context(), pgserver.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := server.Close(); err != nil {
			b.Error(err)
		}
	})
	pool := syncedPool(b, server)
	for from := 0; from < backlog; from += 10_000 {
		var entries []ledger.Entry
		for i := range 10_000 {
			key := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprintf("order-%d", from+i))}
			entries = append(entries, ledger.Entry{Key: key, Args: json.RawMessage(`{"customer":"c-1234","amount":5}`)})
		}
		if _, err := ledger.EnqueueMany(b.Context(), pool, entries); err != nil {
			b.Fatal(err)
		}
	}
	for name, isExact := range map[string]bool{"AtLeastOnce": false, "ExactlyOnce": true} {
		b.Run(name, func(b *testing.B) {
			for i := range b.N {
				ctx, stop := context.WithCancel(b.Context())
				var received atomic.Int64
				count := func(events []ledger.Event) {
					if received.Add(int64(len(events))) == backlog {
						stop()
					}
				}
				s := outbox.Subscription{DB: pool, Name: fmt.Sprintf("%s-%d-%d", name, b.N, i)}
				if isExact {
					s.Handle = func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
						_, err := tx.Exec(ctx, "select count(*) from pg_class where relname = 'none'")
						count(events)
						return err
					}
				} else {
					s.Receive = func(_ context.Context, events []ledger.Event) error {
						count(events)
						return nil
					}
				}
				if err := outbox.Subscribe(ctx, s); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(backlog*b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
