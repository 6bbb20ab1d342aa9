package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the recorded figures into the documentation")

// The pages show the figures of the recorded runs, and nothing else between their marks. Before the first recorded run
// only TestSizingFollowsBenchmarks checks their figures.
func TestDocsShowTheRecordedFigures(t *testing.T) {
	r, err := readRecord(docsDir)
	if err != nil {
		t.Fatal(err)
	}
	if *update && len(r.Runs) > 0 {
		if err := writeDocs(docsDir, nil); err != nil {
			t.Fatal(err)
		}
	}
	for page := range pages {
		text, err := os.ReadFile(filepath.Join(docsDir, page))
		if err != nil {
			t.Fatal(err)
		}
		want, err := render(page, text, r)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Runs) > 0 && !bytes.Equal(text, want) {
			t.Errorf("docs/%s differs from docs/%s: go test -run TestDocs -update", page, recordFile)
		}
	}
}

var number = regexp.MustCompile(`[0-9]+(,[0-9]{3})*(\.[0-9]+)?`)

// Each figure in the tables of sizing.md stands in benchmarks.md, or for the seal in decisions.md.
func TestSizingFollowsBenchmarks(t *testing.T) {
	var known []string
	for _, page := range []string{"benchmarks.md", "decisions.md"} {
		text, err := os.ReadFile(filepath.Join(docsDir, page))
		if err != nil {
			t.Fatal(err)
		}
		known = append(known, number.FindAllString(string(text), -1)...)
	}
	text, err := os.ReadFile(filepath.Join(docsDir, "sizing.md"))
	if err != nil {
		t.Fatal(err)
	}
	figures := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for _, figure := range number.FindAllString(strings.Join(cells[2:], " "), -1) {
			figures++
			if !slices.Contains(known, figure) {
				t.Errorf("%s is not in benchmarks.md: %s", figure, line)
			}
		}
	}
	if figures == 0 {
		t.Error("sizing.md has no figures")
	}
}

// A later run replaces the earlier figures of its measures. Partial, quick and scaled runs are refused.
func TestRecord(t *testing.T) {
	first, second := newReport(config{rounds: 3}), newReport(config{rounds: 3})
	first.Scale, second.Scale = 1, 1
	first.Began = time.Date(2026, 11, 28, 1, 0, 0, 0, time.UTC)
	second.Began = first.Began.Add(time.Hour)
	add := func(r *report, measure, system, metric string, value float64) {
		r.samples = append(r.samples, sample{measure: measure, system: system, metric: metric, value: value})
		r.summarize()
	}
	add(first, "everyday-200", ours, coresMetric, 0.45)
	add(first, "everyday-200", peerRiver, coresMetric, 0.25)
	add(first, "cost", ours, walPerTask, 1385)
	add(second, "everyday-200", ours, coresMetric, 0.3)
	add(second, "everyday-200", peerRiver, coresMetric, 0.25)
	var r record
	for _, run := range []*report{first, second} {
		if err := r.add(run); err != nil {
			t.Fatal(err)
		}
	}
	all := r.merged()
	if got := all.Ratios["cpu_200_vs_river"]; got != 0.3/0.25 {
		t.Errorf("cpu_200_vs_river is %v, want that of the second run", got)
	}
	if got := all.cell("cost", ours, walPerTask); got != "1,385" {
		t.Errorf("wal per task is %s, want that of the first run", got)
	}
	page := []byte("# Page\n")
	for name := range pages["sizing.md"] {
		page = append(page, "<!-- bench:"+name+" -->\nstale\n<!-- /bench:"+name+" -->\n"...)
	}
	got, err := render("sizing.md", page, r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# Page\n", "1,385 bytes", "1.39 GB of WAL"} {
		if !bytes.Contains(got, []byte(want)) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	if bytes.Contains(got, []byte("stale")) {
		t.Errorf("old figures in %s", got)
	}
	if rows := everydayRows(all); !strings.Contains(rows, "| 200 | taskledger | 0.30 |") ||
		!strings.Contains(rows, "| 500 | not measured |") {
		t.Errorf("not the rows of the rates: %s", rows)
	}
	for _, spoil := range []func(*report){
		func(r *report) { r.Partial = "interrupted" },
		func(r *report) { r.Quick = true },
		func(r *report) { r.Scale = 0.5 },
	} {
		run := newReport(config{})
		run.Scale = 1
		spoil(run)
		if err := r.add(run); err == nil {
			t.Errorf("added a run with %q, quick %t, scale %v", run.Partial, run.Quick, run.Scale)
		}
	}
}

// The figures of several files, each with other measures, are in one set of pages.
func TestReportOfSeveralFiles(t *testing.T) {
	dir, files := t.TempDir(), []string{}
	for page := range pages {
		text, err := os.ReadFile(filepath.Join(docsDir, page))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, page), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for measure, metric := range map[string]string{"everyday-200": coresMetric, "relay": rate, "cost": walPerTask} {
		run := newReport(config{rounds: 3, scale: 1, only: []string{measure}})
		run.samples = []sample{{measure: measure, system: ours, metric: metric, unit: "x", value: 4711}}
		run.finish()
		text, err := json.Marshal(run)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, filepath.Join(dir, measure+".json"))
		if err := os.WriteFile(files[len(files)-1], text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeDocs(dir, files); err != nil {
		t.Fatal(err)
	}
	for page, want := range map[string][]string{
		"benchmarks.md": {
			"-only everyday-200", "-only relay", "-only cost", "| 200 | taskledger | 4,711 |",
			"| relay, x | 4,711 |", "| wal per task | 4,711 |", "| 500 | not measured |",
		},
		"sizing.md": {"4,711 bytes", "4.71 GB of WAL", "not measured"},
	} {
		got, err := os.ReadFile(filepath.Join(dir, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !bytes.Contains(got, []byte(w)) {
				t.Errorf("no %q in %s", w, page)
			}
		}
	}
}

// Each ratio has a name and words of its own for the tables.
func TestRatiosHaveLabels(t *testing.T) {
	var names, labels []string
	for _, x := range ratios {
		if x.label == "" || slices.Contains(names, x.name) {
			t.Errorf("ratio %q has the label %q", x.name, x.label)
		}
		if !strings.HasPrefix(x.label, "…") && slices.Contains(labels, x.label) {
			t.Errorf("two ratios have the label %q", x.label)
		}
		names, labels = append(names, x.name), append(labels, x.label)
	}
	for _, x := range conditions {
		if x.label == "" {
			t.Errorf("condition %q has no label", x.name)
		}
	}
}
