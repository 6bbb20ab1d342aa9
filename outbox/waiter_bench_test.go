package outbox_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// quiet is longer than the time after which a relay without events sleeps as long as it ever does.
const quiet = 1500 * time.Millisecond

// BenchmarkWake measures how long after the commit of an outcome the wait for it ends, if nothing happened for a while
// before: go test ./outbox -run '^$' -bench Wake -benchtime 40x.
func BenchmarkWake(b *testing.B) {
	s := newBundle(b)
	s.relay()
	w := s.waiter(s.nc, longPoll)
	var delays []time.Duration
	for i := range b.N {
		k := waitKey(fmt.Sprint(i))
		s.enqueueKey(k)
		done := make(chan time.Time, 1)
		go func() {
			if _, err := ledger.Wait(s.ctx(), w, k); err != nil {
				b.Error(err)
			}
			done <- time.Now()
		}()
		time.Sleep(quiet)
		s.finish(k, ledger.EventSucceeded, "{}")
		committed := time.Now()
		delays = append(delays, (<-done).Sub(committed))
	}
	slices.Sort(delays)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(delays[len(delays)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(delays[len(delays)*95/100].Microseconds())/1000, "p95-ms")
}
