package archiver_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// BenchmarkLoad enqueues and finishes tasks in groups, next to an archiver of serve that removes older ones, and alone,
// in turns; then again, while a snapshot is held that was taken after the archiver has begun.
//
//	go test ./internal/archiver -run '^$' -bench Load -benchtime 1x
func BenchmarkLoad(b *testing.B) {
	f := &fixture{servicetest.NewDatabase(b)}
	owner := ledgertest.As(b, f.DB, ledgertest.Owner)
	for d := range 20 {
		past := time.Now().Add(-time.Duration(100-d) * 24 * time.Hour)
		if _, err := owner.Exec(b.Context(), day, past, 20_000, d); err != nil {
			b.Fatal(err)
		}
	}
	f.Project()
	for _, isHeld := range []bool{false, true} {
		b.Run(fmt.Sprintf("held=%t", isHeld), func(b *testing.B) { benchmarkLoad(b, f.In(b), isHeld) })
	}
}

func benchmarkLoad(b *testing.B, f *servicetest.Bundle, isHeld bool) {
	hold := func() (release func()) {
		if !isHeld {
			return func() {}
		}
		tx, err := f.DB.BeginTx(b.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err == nil {
			_, err = tx.Exec(b.Context(), "select 1")
		}
		if err != nil {
			b.Fatal(err)
		}
		return func() { _ = tx.Rollback(b.Context()) }
	}
	var ratios []float64
	for round := range 6 {
		release := hold()
		alone := load(b, f, fmt.Sprintf("a%t%d", isHeld, round))
		release()
		ctx, cancel := context.WithCancel(b.Context())
		var began sync.WaitGroup
		began.Add(1)
		first := sync.OnceFunc(began.Done)
		ended := make(chan int64)
		go func() {
			r, _ := archiver.Run(ctx, f.As("archiver"), archiver.Options{
				OlderThan: 24 * time.Hour, Rest: archiver.Rest, Progress: func(archiver.Report) { first() },
			})
			first()
			ended <- r.Tasks
		}()
		began.Wait()
		release = hold()
		beside := load(b, f, fmt.Sprintf("b%t%d", isHeld, round))
		release()
		cancel()
		b.Logf("round %d: %.0f tasks/s alone, %.0f next to the archiver, which removed %d", round, alone, beside,
			<-ended)
		ratios = append(ratios, beside/alone)
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
}

// load enqueues and finishes 20,000 tasks, and returns how many in a second.
func load(b *testing.B, f *servicetest.Bundle, round string) float64 {
	b.Helper()
	began := time.Now()
	const n = 20_000
	for from := 0; from < n; from += 500 {
		var entries []ledger.Entry
		var ends []ledger.AppendRequest
		for i := from; i < from+500; i++ {
			k := key(fmt.Sprintf("%s-%d", round, i))
			entries = append(entries, ledger.Entry{Key: k, Args: []byte(`{"cents":1250}`)})
			ends = append(ends, ledgertest.Request(k, 1, ledger.EventSucceeded))
		}
		if _, err := ledger.EnqueueMany(b.Context(), f.DB, entries); err != nil {
			b.Fatal(err)
		}
		for _, r := range ledger.AppendEach(b.Context(), f.DB, ends) {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
		}
	}
	return n / time.Since(began).Seconds()
}
