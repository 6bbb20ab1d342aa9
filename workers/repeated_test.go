package workers_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// While PostgreSQL is unavailable a worker logs that, and not once for each task that it cannot run.
func TestLogWhilePostgreSQLIsAway(t *testing.T) {
	t.Parallel()
	cluster := ledgertest.Cluster(t, nil)
	address := ledgertest.URLAs(t, cluster.URL(ledgertest.Database), ledgertest.App, "relay", "operator")
	db := try(pgxpool.New(context.Background(), address+"&pool_max_conns=12"))(t)
	t.Cleanup(db.Close)
	b := setupOn(t, db)
	b.Dispatch()
	var log lockedBuffer
	begun := time.Now()
	w := b.Work(workers.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, b.exactly(insertEffect, nil))
	const tasks = 500
	b.EnqueueMany(tasks)
	b.Await("work to be under way", func() bool { return w.KindStatus().Attempts[workers.OutcomeSucceeded] > 0 })
	if err := cluster.Kill(); err != nil {
		t.Fatal(err)
	}
	b.Await("work to be tried in vain", func() bool { return strings.Contains(log.String(), "level=WARN") })
	if err := cluster.Restart(b.Context()); err != nil {
		t.Fatal(err)
	}
	b.AwaitSucceeded(tasks)
	b.WantOneEffectEach(tasks)
	text := log.String()
	most := 1 + int(time.Since(begun)/(10*time.Second))
	for _, sort := range []string{
		"cannot read heads", "cannot read which kinds are paused or overloaded", "attempt will be repeated",
		"cannot acquire a connection for a transaction", "cannot record an outcome",
	} {
		if n := strings.Count(text, sort); n > most {
			t.Errorf("%q is logged %d times:\n%s", sort, n, text)
		}
	}
	if !strings.Contains(text, "level=WARN") {
		t.Errorf("no warning is logged:\n%s", text)
	}
}
