package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/taskledger/taskledger/internal/alarm"
	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/metrics"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
)

// newLedger returns a collector of a ledger.
func newLedger(b *servicetest.Bundle) prometheus.Collector {
	b.T.Helper()
	return servicetest.Try(metrics.NewLedger(metrics.LedgerConfig{
		DB: b.As("reader"), Logger: b.Logger(slog.LevelInfo),
		Report: func(ctx context.Context) (health.Report, error) {
			return health.Read(ctx, health.Config{
				DB: b.As("reader"), JetStream: b.JS, Alarms: alarm.ReadUndelivered,
			})
		},
	}))(b.T)
}

// A ledger at work has every metric with the documented type and labels, and numbers that are those of its events.
func TestLedgerAtWork(t *testing.T) {
	t.Parallel()
	b := servicetest.NewServed(t, outbox.StreamConfig{})
	ledgerMetrics := newLedger(b)
	scrape(t, ledgerMetrics) // counters begin here
	process := metrics.NewProcess()
	w := b.Work(workers.Config{Hooks: []workers.Hook{process.Workers()}}, b.Exactly(
		func(_ context.Context, _ pgx.Tx, job *workers.Job, _ servicetest.OrderArgs) error {
			if job.BizID == "bad" {
				return errors.New("card refused")
			}
			return nil
		}, &workers.KindConfig{Retry: ledger.RetryPolicy{Attempts: 3}}))
	b.EnqueueMany(20)
	b.AwaitState(b.Enqueue("bad"), ledger.StateDead)
	b.AwaitSucceeded(20)
	w.Stop()
	limited := ledgertest.Enqueue(t, b.DB, ledger.Key{Kind: "test.limited", BizID: "runs"}, "").Key
	limit := ledger.StartLimit{
		Name: "partner-x", Kinds: map[ledger.Kind]int{limited.Kind: 1}, MaxRunning: new(7)}
	if err := ledger.SetStartLimit(b.Context(), b.DB, limit, ""); err != nil {
		t.Fatal(err)
	}
	ledgertest.Append(t, b.DB, limited, ledger.EventStarted)
	waits := b.Enqueue("waits")
	b.AwaitProjected()
	// Tasks are marked after some seconds.
	b.Forge("update taskledger.task set lingering = 1, updated_at = now() - interval '1 hour' where biz_id = $1",
		string(waits.BizID))
	if _, err := b.As("subscriber").Exec(b.Context(), "select taskledger.seek_feed('mails', 0)"); err != nil {
		t.Fatal(err)
	}
	b.Forge(`insert into taskledger.subscriber_state (reader, version, shape, tables, parks)
		values ($1, 0, '', '{}', true)`, "subscriber/mails")
	process.AddDatabase(b.DB)
	process.AddNATS(b.NC)
	process.AddWorkers(w.Pool)
	text := scrape(t, ledgerMetrics, process)
	for _, want := range []string{
		`taskledger_ledger_readable 1`,
		`taskledger_conditions{condition="relay_stopped"} 0`,
		`taskledger_tasks_enqueued_total{kind="test.order"} 22`,
		`taskledger_attempts_started_total{kind="test.order"} 23`,
		`taskledger_tasks_succeeded_total{kind="test.order"} 20`,
		`taskledger_attempts_failed_total{kind="test.order"} 3`,
		`taskledger_tasks_dead_total{kind="test.order"} 1`,
		`taskledger_tasks{kind="test.order",state="succeeded"} 20`,
		`taskledger_tasks{kind="test.order",state="available"} 1`,
		`taskledger_attempt_running_seconds_count{kind="test.order"} 23`,
		`taskledger_attempt_running_seconds_bucket{kind="test.order",le="+Inf"} 23`,
		`taskledger_concurrency_limit{limit="partner-x"} 7`,
		`taskledger_permits_in_use{limit="partner-x"} 1`,
		`taskledger_relay_alive 1`,
		`taskledger_relay_lag_events 0`,
		`taskledger_unhandled_tasks{kind="test.order"} 1`,
		`taskledger_oldest_waiting_task_seconds{kind="test.order"} 36`, // 3600 and the time of the test
		`taskledger_subscriber_lag_events{subscriber="mails"} `,
		`taskledger_subscriber_parked_events{subscriber="mails"} 0`,
		`taskledger_stream_max_bytes 1.073741824e+09`,
		`taskledger_nats_connected 1`,
		`taskledger_worker_attempts_total{kind="test.order",outcome="succeeded"} 20`,
		`taskledger_database_connections{state="acquired"} `,
	} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("missing: %s", want)
		}
	}
	checkDefinitions(t, text)
	checkNames(t, text)
	checkBoundaries(t, text)
}

// checkBoundaries checks that a quantile of waiting times from 1 ms to a minute is exact to the half, and that the
// number of lines is bounded.
func checkBoundaries(t *testing.T, text string) {
	t.Helper()
	le := regexp.MustCompile(`(?m)^taskledger_task_waiting_seconds_bucket{kind="test.order",le="([0-9.e+-]+)"}`)
	found := le.FindAllStringSubmatch(text, -1)
	if len(found) > 40 {
		t.Errorf("%d boundaries", len(found))
	}
	before := 0.001
	for _, f := range found {
		at, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		if before < 60 && at > 1.5*before {
			t.Errorf("boundary %g follows %g", at, before)
		}
		before = at
	}
	if before < 3600 {
		t.Errorf("the last boundary is %g s", before)
	}
}

// checkDefinitions compares a scrape with the definitions.
func checkDefinitions(t *testing.T, text string) {
	t.Helper()
	defined := make(map[string]bool)
	for _, d := range metrics.Definitions() {
		defined[d.Name] = true
		if !strings.Contains(text, fmt.Sprintf("# HELP %s %s\n# TYPE %[1]s %[3]s\n", d.Name, d.Help, d.Type)) {
			t.Errorf("%s has not its help and type %s", d.Name, d.Type)
		}
		labels := regexp.MustCompile(`(?m)^` + d.Name + `(?:_count)?(?:\{(.*)\})? `).FindStringSubmatch(text)
		if labels == nil {
			continue // reported above
		}
		var names []string
		for _, pair := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(labels[1], -1) {
			names = append(names, pair[1])
		}
		for _, name := range d.Labels {
			if !strings.Contains(" "+strings.Join(names, " ")+" ", " "+name+" ") || len(names) != len(d.Labels) {
				t.Errorf("%s has labels %v, want %v", d.Name, names, d.Labels)
				break
			}
		}
	}
	for _, found := range regexp.MustCompile(`(?m)^# TYPE (taskledger_\w+)`).FindAllStringSubmatch(text, -1) {
		if !defined[found[1]] {
			t.Errorf("%s has no definition", found[1])
		}
	}
}

// checkNames checks a scrape by the conventions of Prometheus.
func checkNames(t *testing.T, text string) {
	t.Helper()
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "taskledger_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	command := promtool(t, "check", "metrics")
	command.Stdin = strings.NewReader(text)
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// promtool returns a command of Debian's package prometheus. The test is skipped if it is not installed; .ci/run
// installs it.
func promtool(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("promtool is not installed: apt-get install prometheus")
	}
	return exec.CommandContext(t.Context(), "promtool", args...)
}

// An unavailable ledger has no numbers, and one metric that reports this.
func TestUnreadableLedger(t *testing.T) {
	t.Parallel()
	c := servicetest.Try(metrics.NewLedger(metrics.LedgerConfig{
		DB:     ledgertest.Pool(t, "reader"),
		Report: func(context.Context) (health.Report, error) { return health.Report{}, ledger.ErrUnavailable },
	}))(t)
	text := scrape(t, c)
	if !strings.Contains(text, "\ntaskledger_ledger_readable 0\n") || strings.Contains(text, "taskledger_tasks") {
		t.Error(text)
	}
}

// Labels are bounded: kinds that exceed the number are added up.
func TestLabelsAreBounded(t *testing.T) {
	t.Parallel()
	b := servicetest.NewDatabase(t)
	c := newLedger(b)
	scrape(t, c)
	var entries []ledger.Entry
	for i := range 250 {
		entries = append(entries, ledger.Entry{
			Key: ledger.Key{Kind: ledger.Kind(fmt.Sprintf("kind.%03d", i)), BizID: "1"}, Args: []byte("{}"),
		})
	}
	if _, err := ledger.EnqueueMany(b.Context(), b.As("producer"), entries); err != nil {
		t.Fatal(err)
	}
	b.Project()
	text := scrape(t, c)
	if n := strings.Count(text, "\ntaskledger_tasks_enqueued_total{"); n != 101 {
		t.Errorf("%d series, want 101", n)
	}
	if !strings.Contains(text, "\ntaskledger_tasks_enqueued_total{kind=\"(others)\"} 150\n") {
		t.Error("the others have not the sum of 150")
	}
	if len(text) > 1e6 {
		t.Errorf("%d bytes", len(text))
	}
	if !strings.Contains(text, "\ntaskledger_kinds_summed 150\n") {
		t.Error("150 kinds are summed, and no metric has this number")
	}
}

// docs/metrics.md lists every metric with its labels, and no other.
func TestMetricsInDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| about | metrics | note |\n")
	var got, want []string
	for _, m := range regexp.MustCompile("`(taskledger_[^`]+)`").FindAllStringSubmatch(table, -1) {
		got = append(got, m[1])
	}
	for _, d := range metrics.Definitions() {
		labels := ""
		if len(d.Labels) > 0 {
			labels = "{" + strings.Join(d.Labels, ",") + "}"
		}
		want = append(want, d.Name+labels)
		isCounter := strings.HasSuffix(d.Name, "_total")
		if (d.Type == "counter") != isCounter {
			t.Errorf("%s is a %s; docs/metrics.md recognizes counters by their names", d.Name, d.Type)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := difference.Of(want, got); diff != "" {
		t.Errorf("docs/metrics.md (-want, +got)\n%s", diff)
	}
}
