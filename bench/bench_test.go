package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	os.Exit(m.Run())
}

// tiny is a run that shows that everything runs, and no more.
func tiny(only ...string) config {
	return config{quick: true, scale: 0.01, rounds: 1, output: "json", noSync: true, only: only}
}

// Every measure gives figures for every contender, and every ratio that it is there for.
func TestMeasures(t *testing.T) {
	var stdout bytes.Buffer
	if code := execute(t.Context(), tiny(), &stdout, t.Output()); code != exitOK {
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
			if !slices.ContainsFunc(got.Figures, func(w row) bool { return w.Measure == m.name && w.System == c.system }) {
				t.Errorf("no figure of %s for %s", m.name, c.system)
			}
		}
	}
	for _, r := range ratios {
		if got.Ratios[r.name] <= 0 {
			t.Errorf("ratio %s is %v", r.name, got.Ratios[r.name])
		}
	}
	if got.Settings.PostgreSQL["shared_buffers"] != "512MB" || got.Versions["postgresql"] == "" || got.Machine.Cores == 0 {
		t.Errorf("settings, versions or machine are missing: %+v", got)
	}
}

// An interrupted run prints what it has, says that it is partial, and ends with 130.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout bytes.Buffer
	code := execute(ctx, tiny("bulk", "latency-200"), &stdout, writer(func(line string) {
		if strings.Contains(line, "latency-200, round 1: river") {
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
		{[]string{"-only", "drain,nothing"}, `no measure "nothing"`},
		{[]string{"-o", "xml"}, "-o must be table or json"},
		{[]string{"-scale", "0"}, "-scale must be more than 0"},
		{[]string{"-rounds", "-1", "-o", "xml"}, "-rounds must be 1 to 100"},
		{[]string{"-database-url", "host=here"}, "-database-url must look like"},
		{[]string{"surplus"}, `unexpected argument "surplus"`},
		{[]string{"-nonsense"}, "not defined"},
	} {
		var stderr strings.Builder
		if code := run(t.Context(), test.args, t.Output(), &stderr); code != exitUsage {
			t.Errorf("%v: exit code %d", test.args, code)
		}
		if !strings.Contains(stderr.String(), test.want) {
			t.Errorf("%v: %q does not tell %q", test.args, stderr.String(), test.want)
		}
	}
}

func TestNoBinaries(t *testing.T) {
	var stderr strings.Builder
	if code := run(t.Context(), []string{"-pg-bin", t.TempDir()}, t.Output(), &stderr); code != exitUnavailable {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(stderr.String(), "install them") {
		t.Errorf("no cure in %q", stderr.String())
	}
}
