package sealer_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/internal/seal/sealer"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// BenchmarkService measures the service at 5,000 events a second for benchmarkSeconds: how far it is behind at most,
// and the CPU time that it takes of this process and of PostgreSQL, in cores, beyond the same load without it:
// go test ./internal/seal/sealer -run '^$' -bench Service -benchtime 1x.
func BenchmarkService(b *testing.B) {
	const benchmarkSeconds, rate = 20, 5000
	for b.Loop() {
		app := ledgertest.Pool(b)
		owner := ledgertest.As(b, app, ledgertest.Owner)
		db := ledgertest.As(b, app, "archiver", "relay")
		without := load(b, owner, benchmarkSeconds, rate)

		newest, err := seal.Newest(b.Context(), db)
		if err != nil {
			b.Fatal(err)
		}
		secret, _, err := seal.NewKey(newest.Origin)
		if err != nil {
			b.Fatal(err)
		}
		dir := b.TempDir()
		file := sealer.File{KeyFile: filepath.Join(dir, "key"), Directory: filepath.Join(dir, "log")}
		if err := os.WriteFile(file.KeyFile, []byte(secret), 0o600); err != nil {
			b.Fatal(err)
		}
		if _, err := seal.Run(b.Context(), db, nil); err != nil { // the events of the load without the service
			b.Fatal(err)
		}
		s, err := sealer.New(sealer.Config{DB: db, File: file, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		ctx, stop := context.WithCancel(b.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		behind := make(chan time.Duration, 1)
		go func() { behind <- maxBehind(ctx, owner) }()
		with := load(b, owner, benchmarkSeconds, rate)
		stop()
		if err := <-ended; err != nil {
			b.Fatal(err)
		}
		b.ReportMetric((<-behind).Seconds(), "s-behind-most")
		b.ReportMetric((with.process-without.process).Seconds()/benchmarkSeconds, "cores-process")
		b.ReportMetric((with.postgres-without.postgres).Seconds()/benchmarkSeconds, "cores-postgres")
	}
}

// used is CPU time.
type used struct{ process, postgres time.Duration }

// load inserts events at a rate for a time, and returns the CPU time that was used meanwhile.
func load(b *testing.B, owner *pgxpool.Pool, seconds, rate int) used {
	b.Helper()
	const steps = 20 // a second
	before := cpu(b, owner)
	ticker := time.NewTicker(time.Second / steps)
	defer ticker.Stop()
	for i := range seconds * steps {
		_, err := owner.Exec(b.Context(), `
			insert into taskledger.event (version, attempt, type, shard, kind, biz_id, data, actor)
			select 1, 0, 'enqueued', i % 64, 'coupon.send', gen_random_uuid()::text, '{"percent":10}', 'shop'
			  from generate_series(1, $1::integer) i`, rate/steps)
		if err != nil {
			b.Fatal(i, err)
		}
		<-ticker.C
	}
	after := cpu(b, owner)
	return used{after.process - before.process, after.postgres - before.postgres}
}

// maxBehind returns how old the oldest event without a leaf was at most, until ctx is done.
func maxBehind(ctx context.Context, owner *pgxpool.Pool) (most time.Duration) {
	for ctx.Err() == nil {
		var micros int64
		err := owner.QueryRow(ctx, `
			select coalesce((extract(epoch from clock_timestamp() - min(e.recorded_at)) * 1e6)::bigint, 0)
			  from (select recorded_at from taskledger.event
			         where position > (select max(top) from taskledger.seal)
			         order by position limit 1) e`).Scan(&micros)
		if err == nil {
			most = max(most, time.Duration(micros)*time.Microsecond)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return most
}

// cpu returns the CPU time of this process and of all processes of PostgreSQL, by Linux's /proc.
func cpu(b *testing.B, owner *pgxpool.Pool) (u used) {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	u.process = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	var backend int
	if err := owner.QueryRow(b.Context(), "select pg_backend_pid()").Scan(&backend); err != nil {
		b.Fatal(err)
	}
	parent := stat(strconv.Itoa(backend))[1]
	const ticks = 100 // a second
	add := func(fields []string) {
		for _, field := range fields[11:15] { // utime, stime, and of children that have ended
			n, _ := strconv.Atoi(field)
			u.postgres += time.Duration(n) * time.Second / ticks
		}
	}
	add(stat(parent))
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		b.Fatal(err)
	}
	for _, p := range processes {
		if fields := stat(filepath.Base(p)); len(fields) > 15 && fields[1] == parent {
			add(fields)
		}
	}
	return u
}

// stat returns the fields of /proc/PID/stat from the state on.
func stat(pid string) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%s/stat", pid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
}
