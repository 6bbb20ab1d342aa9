package systemtest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

const nodeRate = `
import { Worker } from "%s/dist/index.js";
const { TASKLEDGER_URL: url, TASKLEDGER_TOKEN: token, KIND: kind } = process.env;
await new Worker({ url, token, slots: 64 }).handle(kind, () => {}).run();
`

const pythonRate = `
import taskledger, os
worker = taskledger.Worker(os.environ["TASKLEDGER_URL"], os.environ["TASKLEDGER_TOKEN"], slots=64)
worker.handle(os.environ["KIND"])(lambda job: None)
worker.run()
`

// BenchmarkWorkers measures workers of each language, on one ledger and each straight after a Go worker: the rate of
// b.N tasks without work, and the time from enqueue to success of single tasks. For the rates of docs/benchmarks.md:
// -benchtime 60000x. With fewer tasks the Go worker is done before the other services of the ledger have begun, and
// fewer than 100 are not measured.
func BenchmarkWorkers(b *testing.B) {
	binary, source := filepath.Join(b.TempDir(), "taskledger"), b.TempDir()
	for _, name := range []string{"src", "package.json", "tsconfig.json"} {
		if out, err := exec.Command("cp", "-r", "../../clients/node/"+name, source).CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
	for dir, command := range map[string][]string{
		"../..": {"go", "build", "-o", binary, "./cmd/taskledger"},
		source:  {"sh", "-c", "npm install --no-audit --no-fund --prefer-offline && npm run build"},
	} {
		c := exec.Command(command[0], command[1:]...)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
	pool := ledgertest.Pool(b)
	broker, err := natsserver.Start(natsserver.Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer broker.Close()
	owner := ledgertest.URLAs(b, pool.Config().ConnString(), ledgertest.Owner)
	env := append(os.Environ(), "DATABASE_URL="+owner, "NATS_URL="+broker.URL())
	serve := startServe(b, binary, owner, broker.URL(), env)
	token := exec.Command(binary, "create", "token", "bench", "--role", "worker")
	token.Env = env
	secret, err := token.Output()
	if err != nil {
		b.Fatal(err)
	}
	r := rates{url: serve.url.String(), token: strings.TrimSpace(string(secret)), nats: broker.URL()}
	if r.db, err = pgxpool.New(b.Context(), owner); err != nil {
		b.Fatal(err)
	}
	defer r.db.Close()
	for _, other := range []struct {
		name string
		run  func(context.Context, ledger.Kind) error
	}{
		{name: "http", run: r.httpWorker},
		{name: "node", run: r.program("node", "rate.mjs", fmt.Sprintf(nodeRate, source))},
		{name: "python", run: r.program("/usr/bin/python3", "rate.py", pythonRate)},
	} {
		b.Run(other.name, func(b *testing.B) {
			if b.N < 100 {
				return
			}
			r.b = b
			goRate, goLatency := r.measure("go-"+other.name, r.goWorker)
			rate, latency := r.measure(other.name, other.run)
			b.Logf("%s: %.2f of the rate of Go, %.1f times the p50", other.name, rate/goRate,
				float64(latency)/float64(goLatency))
		})
	}
}

// rates measures workers.
type rates struct {
	b                *testing.B
	url, token, nats string
	db               *pgxpool.Pool
}

// measure returns the rate of b.N tasks and the median time of single ones, by the times of events.
func (r *rates) measure(name string, run func(context.Context, ledger.Kind) error) (float64, time.Duration) {
	r.b.Helper()
	kind, n := ledger.Kind(fmt.Sprintf("bench.%s-%d", name, r.b.N)), r.b.N
	_, err := r.db.Exec(r.b.Context(), `select count(*) from generate_series(1, $2::integer) i,
		lateral taskledger.enqueue($1, i::text, '1')`, string(kind), n)
	if err != nil {
		r.b.Fatal(err)
	}
	ctx, stop := context.WithTimeout(r.b.Context(), 5*time.Minute)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, kind) }()
	// Neither query counts events, so that waiting takes nothing from the workers.
	r.await(ctx, 100*time.Millisecond, `select coalesce((
		select t.tasks >= $2 from taskledger_internal.task_totals t where t.kind = $1 and t.state = 'succeeded'
		 order by t.n desc limit 1), false)`, string(kind), n)
	const singles = 200
	for i := range singles {
		bizID := fmt.Sprint("single-", i)
		if _, err := r.db.Exec(ctx, "select from taskledger.enqueue($1, $2, '1')", string(kind), bizID); err != nil {
			r.b.Fatal(err)
		}
		r.await(ctx, 5*time.Millisecond, `select coalesce((
			select e.type = 'succeeded' from taskledger.event e where e.kind = $1 and e.biz_id = $2
			 order by e.version desc limit 1), false)`, string(kind), bizID)
	}
	stop()
	if err := <-ended; err != nil {
		r.b.Error(err)
	}
	var seconds, median float64
	err = r.db.QueryRow(r.b.Context(), `
		select extract(epoch from max(s.recorded_at) filter (where s.biz_id not like 'single-%')
		                        - min(s.recorded_at) filter (where s.biz_id not like 'single-%'))::float8,
		       (percentile_cont(0.5) within group (order by extract(epoch from s.recorded_at - e.recorded_at))
		         filter (where s.biz_id like 'single-%'))::float8
		  from taskledger.event s join taskledger.event e using (kind, biz_id)
		 where kind = $1 and s.type = 'succeeded' and e.version = 1`, string(kind)).Scan(&seconds, &median)
	if err != nil {
		r.b.Fatal(err)
	}
	rate, latency := float64(n)/seconds, time.Duration(median*float64(time.Second))
	r.b.Logf("%s: %.0f tasks a second, p50 from enqueue to success %s", name, rate, latency)
	r.b.ReportMetric(rate, name+"-tasks/s")
	return rate, latency
}

// await waits until a query returns true.
func (r *rates) await(ctx context.Context, every time.Duration, query string, args ...any) {
	r.b.Helper()
	for isTrue := false; ; time.Sleep(every) {
		if err := r.db.QueryRow(ctx, query, args...).Scan(&isTrue); err != nil {
			r.b.Fatal(err)
		}
		if isTrue {
			return
		}
	}
}

func (r *rates) goWorker(ctx context.Context, kind ledger.Kind) error {
	nc, err := nats.Connect(r.nats)
	if err != nil {
		return err
	}
	defer nc.Close()
	pool, err := workers.New(workers.Config{DB: r.db, NATS: nc})
	if err != nil {
		return err
	}
	err = pool.Register(workers.Handle(ledger.MustKind[int](kind), func(context.Context, *workers.Job, int) error {
		return nil
	}, nil))
	if err != nil {
		return err
	}
	return pool.Run(ctx)
}

func (r *rates) httpWorker(ctx context.Context, kind ledger.Kind) error {
	c, err := client.New(client.Config{URL: r.url, Token: r.token})
	if err != nil {
		return err
	}
	return c.Work(ctx, client.WorkOptions{Kinds: []ledger.Kind{kind}, Slots: 64,
		Handle: func(context.Context, client.WorkTask) (any, error) { return nil, nil }})
}

// program runs a script until ctx is done.
func (r *rates) program(command, name, text string) func(context.Context, ledger.Kind) error {
	return func(ctx context.Context, kind ledger.Kind) error {
		path := filepath.Join(r.b.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
		source, err := filepath.Abs("../../clients/python/src")
		if err != nil {
			return err
		}
		c := exec.Command(command, path)
		c.Env = append(os.Environ(), "TASKLEDGER_URL="+r.url, "TASKLEDGER_TOKEN="+r.token, "PYTHONPATH="+source,
			"KIND="+string(kind))
		c.Stdout, c.Stderr = r.b.Output(), r.b.Output()
		if err := c.Start(); err != nil {
			return err
		}
		<-ctx.Done()
		_ = c.Process.Signal(syscall.SIGTERM)
		return c.Wait()
	}
}
