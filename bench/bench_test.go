package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgserver"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(runRole(role))
	}
	os.Exit(m.Run())
}

// tiny returns the config of a run that only tests that the measures run.
func tiny(only ...string) config {
	return config{quick: true, scale: 0.01, rounds: 1, output: "json", noSync: true, only: only}
}

// Every measure has figures of every contender, and every ratio has a value.
func TestMeasures(t *testing.T) {
	var stdout bytes.Buffer
	if code := execute(t.Context(), tiny(names()...), &stdout, t.Output()); code != exitOK {
		t.Fatalf("exit code %d", code)
	}
	var got report
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if !got.Quick || got.Partial != "" {
		t.Errorf("quick: %t, partial: %q", got.Quick, got.Partial)
	}
	for _, m := range measures() {
		for _, c := range m.contenders {
			if !slices.ContainsFunc(got.Figures, func(w row) bool {
				return w.Measure == m.name && w.System == c.system
			}) {
				t.Errorf("no figure of %s for %s", m.name, c.system)
			}
		}
	}
	for _, f := range got.Figures {
		if f.Measure == "timers" && f.Min <= 0 {
			t.Errorf("timers: %s of %s is %v %s", f.Metric, f.System, f.Min, f.Unit)
		}
	}
	for _, x := range ratios {
		value, ok := got.Ratios[x.name]
		switch x.metric {
		case coresMetric, servicesMetric:
			// A tiny trial may use less CPU than the unit of the clock of processes.
			if x.over == "" && !ok {
				t.Errorf("no ratio %s", x.name)
			}
		case p50: // 0: the handler has begun before the commit returned; there is no ratio to a 0
			if value < 0 {
				t.Errorf("ratio %s is %v", x.name, value)
			}
		default:
			if value <= 0 {
				t.Errorf("ratio %s is %v", x.name, value)
			}
		}
	}
	for _, name := range []string{"held_snapshot", "foreign_write", "waiting", "history", "relay_rss_mb"} {
		if got.Ratios[name] <= 0 {
			t.Errorf("ratio %s is %v", name, got.Ratios[name])
		}
	}
	if got.Settings.PostgreSQL["shared_buffers"] != "512MB" || got.Versions["postgresql"] == "" ||
		got.Machine.Cores == 0 {
		t.Errorf("settings, versions or machine are missing: %+v", got)
	}
}

// Without -only, a run with -quick computes every ratio with a target, except services and worker in one process.
func TestQuickHasEveryRatio(t *testing.T) {
	quick := config{quick: true}.chosen()
	has := func(measureName, system string) bool {
		i := slices.IndexFunc(quick, func(m measure) bool { return m.name == measureName })
		return i >= 0 && slices.ContainsFunc(quick[i].contenders, func(x contender) bool { return x.system == system })
	}
	for _, x := range ratios {
		if x.target == 0 || x.of == oursOneProcess {
			continue
		}
		for _, system := range []string{x.of, cmp.Or(x.over, x.of)} {
			if !has(x.measure, system) {
				t.Errorf("-quick leaves out %s of %s, which %s needs", system, x.measure, x.name)
			}
		}
	}
}

// A ratio that reaches its target and is on the wrong side of 1 is reached, and the peer is better.
func TestVerdict(t *testing.T) {
	for _, test := range []struct {
		x     ratio
		value float64
		want  string
	}{
		{x: ratio{metric: rate, over: peerRiver, target: 2}, value: 2.3, want: "reached"},
		{x: ratio{metric: rate, over: peerRiver, target: 2}, value: 1.5, want: "missed"},
		{x: ratio{metric: rate, over: peerWatermill, target: 1.2}, value: 0.9, want: "missed, watermill is better"},
		{x: ratio{metric: coresMetric, over: peerRiver, target: 1.25}, value: 1.2, want: "reached, river is better"},
		{x: ratio{metric: coresMetric, over: peerRiver, target: 1.25}, value: 0.9, want: "reached"},
		{x: ratio{metric: servicesMetric, over: peerRiver}, value: 2.4, want: "river is better"},
		{x: ratio{metric: rate, over: floorPgbenchOne, target: 0.9}, value: 0.83, want: "missed"},
		{x: ratio{metric: coresMetric, over: ours, target: 0.05, minus: true}, value: 1.05, want: "missed"},
	} {
		if got := test.x.verdict(test.value); got != test.want {
			t.Errorf("%+v, %v: %q, want %q", test.x, test.value, got, test.want)
		}
	}
}

// An interrupted run prints the figures that it has, marked as partial, and exits with 130.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout bytes.Buffer
	code := execute(ctx, tiny("bulk", "everyday-200"), &stdout, writer(func(line string) {
		if strings.Contains(line, "everyday-200, round 1: river") {
			cancel()
		}
	}))
	if code != exitInterrupted {
		t.Errorf("exit code %d", code)
	}
	var got report
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Partial == "" || len(got.Figures) == 0 {
		t.Errorf("partial: %q, %d figures", got.Partial, len(got.Figures))
	}
}

type writer func(string)

func (w writer) Write(b []byte) (int, error) {
	w(string(b))
	return len(b), nil
}

func TestUsage(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"-only", "drain,nothing"}, `-only must list measures, got "nothing"`},
		{[]string{"-o", "xml"}, "-o must be table or json"},
		{[]string{"-scale", "0"}, "-scale must be greater than 0"},
		{[]string{"-rounds", "-1", "-o", "xml"}, "-rounds must be between 1 and 100, got -1"},
		{[]string{"-database-url", "host=here"}, "-database-url must be an address"},
		{[]string{"surplus"}, `unexpected argument "surplus"`},
		{[]string{"-nonsense"}, "not defined"},
	} {
		var stderr strings.Builder
		if code := run(t.Context(), test.args, t.Output(), &stderr); code != exitUsage {
			t.Errorf("%v: exit code %d", test.args, code)
		}
		if !strings.Contains(stderr.String(), test.want) {
			t.Errorf("%v: no %q in %q", test.args, test.want, stderr.String())
		}
	}
}

// A database with data is refused, except with -force.
func TestDatabaseWithData(t *testing.T) {
	server, err := pgserver.Start(t.Context(), pgserver.Config{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	db, err := pgx.Connect(t.Context(), server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(context.Background()) }()
	arguments := []string{
		"-database-url", server.URL("postgres"), "-only", "bulk", "-quick", "-scale", "0.01", "-rounds", "1",
	}
	if code := run(t.Context(), arguments, t.Output(), t.Output()); code != exitOK {
		t.Errorf("empty database: exit code %d", code)
	}
	if _, err := db.Exec(t.Context(), "create table customer as select 1 as id"); err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	code := run(t.Context(), arguments, t.Output(), &stderr)
	if code != exitFailed || !strings.Contains(stderr.String(), "public.customer") {
		t.Errorf("database with data: exit code %d, %q", code, stderr.String())
	}
	if code := run(t.Context(), append(arguments, "-force"), t.Output(), t.Output()); code != exitOK {
		t.Errorf("with -force: exit code %d", code)
	}
	var databases int
	const count = "select count(*) from pg_database where datname like 'taskledger_bench%'"
	err = db.QueryRow(t.Context(), count).Scan(&databases)
	if err != nil || databases != 0 {
		t.Errorf("%d databases were not removed, error %v", databases, err)
	}
}

func TestNoBinaries(t *testing.T) {
	var stderr strings.Builder
	if code := run(t.Context(), []string{"-pg-bin", t.TempDir()}, t.Output(), &stderr); code != exitUnavailable {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(stderr.String(), "install it: ") {
		t.Errorf("no cure in %q", stderr.String())
	}
}

// Each round begins with another contender. An alternating measure has a clean turn before and after each other one.
func TestTurns(t *testing.T) {
	for _, test := range []struct {
		alternating bool
		contenders  int
		want        []turn
	}{
		{contenders: 3, want: []turn{{0, 0}, {0, 1}, {0, 2}, {1, 1}, {1, 2}, {1, 0}}},
		{
			alternating: true, contenders: 3,
			want: []turn{{0, 0}, {0, 1}, {0, 0}, {0, 2}, {1, 0}, {1, 1}, {1, 0}, {1, 2}, {1, 0}},
		},
	} {
		m := measure{alternating: test.alternating, contenders: make([]contender, test.contenders)}
		if got := m.turns(2); !slices.Equal(got, test.want) {
			t.Errorf("alternating %t: %v, want %v", test.alternating, got, test.want)
		}
	}
}

// The ratio of a condition is the least of its rates' medians of ratios to the clean turns before and after each turn.
// A machine that becomes slower at a steady pace does not change it.
func TestConditionRatios(t *testing.T) {
	r := newReport(config{})
	m := growthMeasure()
	speed := 1.0
	for _, n := range m.turns(3) {
		factor := 1.0
		switch m.contenders[n.contender].system {
		case underWaiting:
			factor = 0.9
		case underHistory:
			factor = 1.1
		}
		r.record(m, m.contenders[n.contender].system, n.round+1, []figure{
			{metric: "enqueue rate", value: 9000 * speed, unit: "tx/s"},
			{metric: "drain rate", value: 30000 * speed * factor, unit: "tasks/s"},
			{metric: cpuPerTask, value: 80 / factor, unit: "µs"},
		})
		speed -= 0.01
	}
	want := map[string]float64{
		"held_snapshot": 1, "foreign_write": 1, "waiting": 0.9, "history": 1, "waiting_held_snapshot": 1,
	}
	for name, ratio := range want {
		if got := r.Ratios[name]; math.Abs(got-ratio) > 1e-9 {
			t.Errorf("%s is %v, want %v", name, got, ratio)
		}
	}
	for _, x := range r.Conditions {
		if len(x.Values) != 3 {
			t.Errorf("%s, %s: %d turns, want 3", x.Name, x.Metric, len(x.Values))
		}
	}
}

// The rate of a child process leaves out its start, and depends on the times of its reports only.
func TestRateOfChild(t *testing.T) {
	ms := int64(time.Millisecond)
	a := &child{reports: []count{{At: 0}, {Count: 50, At: 400 * ms}, {Count: 150, At: 500 * ms},
		{Count: 1050, At: 1400 * ms}, {Count: 1300, At: 2000 * ms}}}
	if got := a.rate(1000); math.Abs(got-1000) > 1e-9 {
		t.Errorf("%v a second, want 1000", got)
	}
}
