package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var runMutants = flag.Bool("mutants", false, "build mutants of the product, and check that the torture finds each")

// mutant is the product with a simpler algorithm, which a later change might introduce.
type mutant struct {
	name    string
	file    string // from the root of the repository
	old     string
	mutated string
	faults  string   // those that expose it
	rules   []string // one of which must be violated
	times   int      // how many times the file has old; 0: once
}

var mutants = []mutant{
	{
		name: "a cursor that is the highest position",
		file: "migrations/00002_feed.sql", old: "pg_snapshot_xmin(feed_page.seen) < feed_page.seen_bound",
		mutated: "false",
		faults:  "writer", rules: []string{"skipped", "missing", "order", "projection", "unfinished"},
	},
	{
		name: "no fence: the effect is committed although the event is not appended",
		file: "ledger/sql/append_required.sql", old: "returning position",
		mutated: "on conflict (kind, biz_id, version) do nothing returning position",
		faults:  "pause-worker", rules: []string{"doubled"},
	},
	{
		name: "the tasks of a worker that is gone stay with it",
		file: "internal/dispatcher/office.go", old: "		if !alive[worker] {\n", mutated: "		if false {\n",
		faults: "kill-worker", rules: []string{"unfinished"},
	},
	{
		name: "a handler gets the args of the first run",
		file: "workers/internal/attempt/sql/heads.sql", old: "n.run is not null", mutated: "n.run < 0",
		faults: "kill-worker", rules: []string{"runs"},
	},
	{
		name:    "the permit of an attempt that has ended is not free",
		file:    "migrations/00021_start_limit.sql",
		old:     "where h.type in ('started', 'progressed')",
		mutated: "where true",
		times:   5, // a start for which one search finds no permit tries another
		faults:  "kill-worker", rules: []string{"unfinished"},
	},
	{
		name:    "a limit has more permits than it allows tasks",
		file:    "ledger/start_limit.go",
		old:     "running = *l.MaxRunning",
		mutated: "running = 9 * *l.MaxRunning",
		faults:  "kill-worker", rules: []string{"limit"},
	},
	{
		name:    "a rate allows one start more in each window",
		file:    "migrations/00021_start_limit.sql",
		old:     "* set_start_limit.burst / set_start_limit.rate)",
		mutated: "* (set_start_limit.burst - 1) / set_start_limit.rate)",
		faults:  "kill-worker", rules: []string{"rate"},
	},
	{
		name: "a line goes on while a task has its turn",
		file: "migrations/00022_line.sql", old: "where not t.is_held", mutated: "where true",
		faults: "kill-worker", rules: []string{"line"},
	},
	{
		name: "the tasks of a line that committed late are not found",
		file: "migrations/00022_line.sql", old: "         where l.has_late\n", mutated: "         where false\n",
		faults: "writer", rules: []string{"unfinished"},
	},
	{
		name:    "the newest task of a line is next",
		file:    "migrations/00022_line.sql",
		old:     "        order by e.position\n        limit 1) n\n     where not l.resumes",
		mutated: "        order by e.position desc\n        limit 1) n\n     where not l.resumes",
		faults:  "kill-worker", rules: []string{"line"},
	},
	{
		name: "an offer that was lost is not noticed",
		file: "internal/dispatch/session.go", old: "		if isHeld || x.n > received && !all {\n",
		mutated: "		if isHeld || x.n > 0 {\n",
		faults:  "cut,reset,kill-nats", rules: []string{"unfinished"},
	},
}

// The torture finds each mutant. The product itself keeps every promise under the same faults.
func TestMutants(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(root, m.file))
			if err != nil {
				t.Fatal(err)
			}
			if n, want := bytes.Count(text, []byte(m.old)), max(m.times, 1); n != want {
				t.Fatalf("%s has %q %d times, want %d: a mutant is one change", m.file, m.old, n, want)
			}
			if !*runMutants {
				t.Skip("SKIPPED without -mutants: all take ten minutes")
			}
			out := m.run(t, m.build(t, root, bytes.ReplaceAll(text, []byte(m.old), []byte(m.mutated))))
			for _, rule := range m.rules {
				if strings.Contains(out, "VIOLATION "+rule+":") {
					return
				}
			}
			t.Errorf("no violation of %v: the mutant was not found\n%s", m.rules, out)
		})
	}
	t.Run("no mutant", func(t *testing.T) {
		if !*runMutants {
			t.Skip("SKIPPED without -mutants")
		}
		r, err := torture(t.Context(), config{seed: 1, duration: time.Minute, patience: 2 * time.Minute,
			rate: defaultRate, faults: "writer,pause-worker,repeat,cut,reset,kill-nats,kill-worker",
			maxStep: 15 * time.Second, pgbouncer: "pgbouncer", log: t.Output()})
		if err != nil {
			t.Fatal(err)
		}
		if r.print(t.Output()); len(r.violations) > 0 {
			t.Error("the product itself breaks a promise")
		}
	})
}

// build builds this program with one file replaced, and returns its name. The file in the repository stays as it is.
func (m mutant) build(t *testing.T, root string, text []byte) string {
	t.Helper()
	dir := t.TempDir()
	mutated, overlay := filepath.Join(dir, "mutated"), filepath.Join(dir, "overlay")
	program := filepath.Join(dir, "program")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, m.file): mutated}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(mutated, text, 0o600), os.WriteFile(overlay, list, 0o600)); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-overlay", overlay, "-o", program, "./internal/torture")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// run runs a mutant and returns its output.
func (m mutant) run(t *testing.T, program string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, "-seed", "1", "-duration", "25s", "-patience", "20s",
		"-faults", m.faults)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	t.Logf("%s", out)
	return string(out)
}
