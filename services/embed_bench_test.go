package services_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/services"
	"github.com/taskledger/taskledger/workers"
)

// The time from an enqueue to the handler, one task after another, and the memory of the whole process.
func BenchmarkEmbed(b *testing.B) {
	owner := ledgertest.Pool(b, ledgertest.Owner)
	o := &services.EmbedOptions{
		Client: taskledger.Options{DatabaseURL: owner.Config().ConnString()}, Dir: b.TempDir(),
	}
	err := services.Embed(b.Context(), o, func(ctx context.Context, client *taskledger.Client) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		begun := make(chan time.Time, 1)
		worker, err := client.Worker(workers.Handle(greet,
			func(context.Context, pgx.Tx, *workers.Job, string) error {
				begun <- time.Now()
				return nil
			}, nil))
		if err != nil {
			return err
		}
		ended := make(chan error, 1)
		go func() { ended <- worker.Run(ctx) }()
		var took []time.Duration
		for i := range b.N {
			before := time.Now()
			if _, err := greet.Enqueue(ctx, client.DB, ledger.BizID(fmt.Sprint("task-", i)), "world", nil); err != nil {
				return err
			}
			took = append(took, (<-begun).Sub(before))
		}
		b.StopTimer()
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		b.ReportMetric(residentMiB(b), "MiB")
		stop()
		return <-ended
	})
	if err != nil {
		b.Fatal(err)
	}
}

// residentMiB returns the resident memory of this process; 0 outside of Linux.
func residentMiB(b *testing.B) (size float64) {
	b.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, line, _ := strings.Cut(string(text), "VmRSS:")
	if _, err := fmt.Sscanf(line, "%f", &size); err != nil {
		b.Fatal(err)
	}
	return size / 1024
}
