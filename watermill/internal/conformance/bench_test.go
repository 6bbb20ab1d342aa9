package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	ledgerwm "github.com/taskledger/taskledger/watermill"
	"github.com/taskledger/taskledger/workers"
)

// The benchmarks measure what Watermill costs, as a share of the native way. Both ways take turns in one
// run, on a database that does not sync, where the difference is largest. One turn of each is a round:
//
//	go test ./internal/conformance -run '^$' -bench . -benchtime 5x

// share reports the speed of two ways that each handle n tasks a turn.
func share(b *testing.B, n int, native, over func(round int)) {
	var took [2]time.Duration
	for round := range b.N {
		for i := range 2 {
			way := (i + round) % 2 // the first way alternates
			begun := time.Now()
			[]func(int){native, over}[way](round)
			took[way] += time.Since(begun)
		}
	}
	tasks := float64(b.N * n)
	b.ReportMetric(tasks/took[0].Seconds(), "native/s")
	b.ReportMetric(tasks/took[1].Seconds(), "watermill/s")
	b.ReportMetric(took[0].Seconds()/took[1].Seconds(), "of-native")
	b.ReportMetric(0, "ns/op")
}

var order = ledger.MustKind[json.RawMessage]("test.order")

var benchPayload = []byte(`{"customer":"customer-4711","cents":500,"reason":"returning"}`)

// BenchmarkPublish: transactions of a business insert and a message, on 8 connections.
func BenchmarkPublish(b *testing.B) {
	w := newBundle(b)
	w.Exec("create table effect (biz_id text not null, note text)")
	const n, producers = 4000, 8
	produce := func(name string, round int, publish func(ctx context.Context, tx pgx.Tx, id string) error) {
		var all sync.WaitGroup
		for p := range producers {
			all.Go(func() {
				for i := range n / producers {
					id := fmt.Sprintf("%s-%d-%d-%d", name, round, p, i)
					err := pgx.BeginFunc(b.Context(), w.DB, func(tx pgx.Tx) error {
						if _, err := tx.Exec(b.Context(), "insert into effect (biz_id) values ($1)", id); err != nil {
							return err
						}
						return publish(b.Context(), tx, id)
					})
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
	}
	share(b, n, func(round int) {
		produce("native", round, func(ctx context.Context, tx pgx.Tx, id string) error {
			_, err := order.Enqueue(ctx, tx, ledger.BizID(id), benchPayload, nil)
			return err
		})
	}, func(round int) {
		produce("watermill", round, func(ctx context.Context, tx pgx.Tx, id string) error {
			p, err := ledgerwm.NewPublisher(ctx, tx, nil)
			if err != nil {
				return err
			}
			return p.Publish(string(order.Name()), message.NewMessage(id, benchPayload))
		})
	})
}

// BenchmarkDrain: a backlog of tasks, with 500 handlers at a time that do nothing.
func BenchmarkDrain(b *testing.B) {
	w := newBundle(b)
	const n = 20_000
	kind := func(name string, round int) ledger.Kind { return ledger.Kind(fmt.Sprintf("bench.%s.%d", name, round)) }
	// Everything is on the stream before the first turn.
	for round := range b.N {
		for _, name := range []string{"native", "watermill"} {
			for from := 0; from < n; from += 1000 {
				var entries []ledger.Entry
				for i := from; i < from+1000; i++ {
					key := ledger.Key{Kind: kind(name, round), BizID: ledger.BizID(fmt.Sprint(i))}
					entries = append(entries, ledger.Entry{Key: key, Args: benchPayload})
				}
				if _, err := ledger.EnqueueMany(b.Context(), w.DB, entries); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	w.AwaitPublished()

	count := func(done chan<- struct{}) []workers.Hook { // closes done after n attempts
		var seen atomic.Int64
		return []workers.Hook{{AfterAttempt: func(context.Context, *workers.Job, workers.AttemptEnd) {
			if seen.Add(1) == int64(n) {
				close(done)
			}
		}}}
	}
	share(b, n, func(round int) {
		done := make(chan struct{})
		p, err := workers.New(workers.Config{DB: w.DB, NATS: w.NATS, Hooks: count(done)})
		if err != nil {
			b.Fatal(err)
		}
		k := ledger.MustKind[json.RawMessage](kind("native", round))
		none := func(context.Context, *workers.Job, json.RawMessage) error { return nil }
		if err := p.Register(workers.Handle(k, none, &workers.KindConfig{Slots: 500})); err != nil {
			b.Fatal(err)
		}
		ctx, stop := context.WithCancel(b.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		<-done
		stop()
		if err := <-ended; err != nil {
			b.Fatal(err)
		}
	}, func(round int) {
		done := make(chan struct{})
		s, err := ledgerwm.NewTaskSubscriber(ledgerwm.TaskSubscriberConfig{
			Pool: workers.Config{DB: w.DB, NATS: w.NATS, Hooks: count(done)}, Kind: workers.KindConfig{Slots: 500},
		})
		if err != nil {
			b.Fatal(err)
		}
		router, err := message.NewRouter(message.RouterConfig{}, watermill.NewSlogLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			b.Fatal(err)
		}
		router.AddConsumerHandler("drain", string(kind("watermill", round)), s, func(*message.Message) error {
			return nil
		})
		ended := make(chan error, 1)
		go func() { ended <- router.Run(b.Context()) }()
		<-done
		if err := router.Close(); err != nil {
			b.Fatal(err)
		}
		if err := <-ended; err != nil {
			b.Fatal(err)
		}
	})
}
