package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/metrics"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
)

// A worker's own metrics have the waiting time of each task and the duration of each attempt, with the boundaries of
// the ledger's histograms.
func TestAttemptsOfAWorker(t *testing.T) {
	t.Parallel()
	b := servicetest.NewServed(t, outbox.StreamConfig{})
	ledgerMetrics := newLedger(b)
	scrape(t, ledgerMetrics)
	b.Enqueue("slow")
	b.Await("the task to wait for 0.1 s", func() bool {
		return servicetest.One[bool](b, "select now() - recorded_at > interval '0.1 s' from taskledger.event")
	})
	process := metrics.NewProcess()
	b.Work(workers.Config{Hooks: []workers.Hook{process.Workers()}}, b.Exactly(
		func(ctx context.Context, tx pgx.Tx, job *workers.Job, _ servicetest.OrderArgs) error {
			if job.BizID == "bad" {
				return errors.New("card refused")
			}
			_, err := tx.Exec(ctx, "select pg_sleep(0.05)")
			return err
		}, &workers.KindConfig{Retry: ledger.RetryPolicy{Attempts: 2}}))
	var text string
	awaitRan := func(n int) {
		b.Await("the hook of an attempt", func() bool {
			text = scrape(t, process, ledgerMetrics)
			return strings.Contains(text, fmt.Sprintf(
				"\ntaskledger_worker_attempt_running_seconds_count{kind=\"test.order\"} %d\n", n))
		})
	}
	awaitRan(1)
	for _, want := range []string{
		`taskledger_worker_task_waiting_seconds_bucket{kind="test.order",le="0.09051"} 0`,
		`taskledger_worker_task_waiting_seconds_count{kind="test.order"} 1`,
		`taskledger_worker_attempt_running_seconds_bucket{kind="test.order",le="0.045255"} 0`,
		`taskledger_worker_attempt_running_seconds_count{kind="test.order"} 1`,
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("missing: %s", want)
		}
	}
	b.AwaitState(b.Enqueue("bad"), ledger.StateDead)
	b.AwaitProjected()
	awaitRan(3)
	if want := `taskledger_worker_task_waiting_seconds_count{kind="test.order"} 3`; !strings.Contains(text, want) {
		t.Errorf("missing: %s", want)
	}
	of := func(name string) (all []string) {
		le := regexp.MustCompile(`(?m)^` + name + `_bucket{kind="test.order",le="([0-9.e+-]+)"}`)
		for _, found := range le.FindAllStringSubmatch(text, -1) {
			all = append(all, found[1])
		}
		return all
	}
	own, all := of("taskledger_worker_task_waiting_seconds"), of("taskledger_task_waiting_seconds")
	if len(own) == 0 || fmt.Sprint(own) != fmt.Sprint(all) {
		t.Errorf("boundaries %v, those of the ledger are %v", own, all)
	}
	checkNames(t, text)
}

// The histograms of a worker have a bounded number of kinds, and Prometheus reads less than 1 MB.
func TestAttemptsOfManyKinds(t *testing.T) {
	t.Parallel()
	process := metrics.NewProcess()
	for i := range 150 {
		job := &workers.Job{Key: ledger.Key{Kind: ledger.Kind(fmt.Sprintf("shop.coupon.send-%03d", i))}}
		for ms := range 1000 {
			d := time.Duration(ms) * time.Millisecond
			process.Workers().AfterAttempt(t.Context(), job, workers.AttemptEnd{Duration: d, Waited: d + 1})
		}
	}
	text := scrape(t, process)
	if n := strings.Count(text, "\ntaskledger_worker_attempt_running_seconds_count{"); n != 101 {
		t.Errorf("%d series, want 101", n)
	}
	if !strings.Contains(text, "\ntaskledger_worker_attempt_running_seconds_count{kind=\"(others)\"} 50000\n") {
		t.Error("the others have not the sum of 50 kinds")
	}
	if len(text) > 1e6 {
		t.Errorf("%d bytes", len(text))
	}
}

// The metrics of a process are sums over its pools of connections and of handlers. A kind of two pools is one, and the
// kinds beyond the first 100 are added up.
func TestProcessAddsUp(t *testing.T) {
	t.Parallel()
	b := servicetest.NewServed(t, outbox.StreamConfig{})
	process := metrics.NewProcess()
	other := b.As("reader")
	process.AddDatabase(b.DB)
	process.AddDatabase(other)
	handle := func(context.Context, *workers.Job, string) error { return nil }
	for _, kinds := range []int{1, 150} {
		pool := servicetest.Try(workers.New(workers.Config{DB: b.DB, NATS: b.NC}))(t)
		for i := range kinds {
			kind := ledger.MustKind[string](ledger.Kind(fmt.Sprintf("kind.%03d", i)))
			config := &workers.KindConfig{Slots: 3}
			if err := pool.Register(workers.Handle(kind, handle, config)); err != nil {
				t.Fatal(err)
			}
		}
		process.AddWorkers(pool)
	}
	text := scrape(t, process)
	for _, want := range []string{
		fmt.Sprintf("taskledger_database_max_connections %d", b.DB.Config().MaxConns+other.Config().MaxConns),
		`taskledger_worker_slots{kind="kind.000"} 6`,
		`taskledger_worker_slots{kind="kind.099"} 3`,
		`taskledger_worker_slots{kind="(others)"} 150`,
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("missing: %s", want)
		}
	}
	if strings.Contains(text, "kind.100") || strings.Contains(text, "taskledger_nats_connected") {
		t.Error("the kinds are not bounded, or there is a connection to NATS")
	}
}
