package outbox_test

import (
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

const backlog = 200_000

// BenchmarkRelay measures how fast a relay works off a backlog.
func BenchmarkRelay(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		s := newBundle(b)
		for from := 0; from < backlog; from += 10_000 {
			var entries []ledger.Entry
			for i := range 10_000 {
				entries = append(entries, ledger.Entry{Key: ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprintf("order-%d", from+i))},
					Args: json.RawMessage(`{"customer":"c-1234","amount":5}`)})
			}
			if _, err := ledger.EnqueueMany(b.Context(), s.pool, entries); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
		var published atomic.Int64
		done := make(chan struct{})
		r := s.relay(func(c *outbox.Config) {
			c.Observer = &outbox.Observer{Published: func(n int) {
				if published.Add(int64(n)) == backlog {
					close(done)
				}
			}}
		})
		<-done
		b.StopTimer()
		r.end()
		if got := s.state().Msgs; got != backlog {
			b.Errorf("%d messages on the stream, want %d", got, backlog)
		}
		b.StartTimer()
	}
	b.ReportMetric(backlog*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
