package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// docsDir contains the documentation. Its figures are between marks such as
//
//	<!-- bench:ratios -->
//	<!-- /bench:ratios -->
//
// and are written by -report alone, from the runs in recordFile.
const docsDir = "../docs"

// recordFile contains the runs whose figures the documentation shows.
const recordFile = "benchmarks.json"

// unmeasured replaces a table without figures, notMeasured a row without figures.
const (
	unmeasured  = "No run has measured this yet."
	notMeasured = "not measured"
)

// record is the content of recordFile.
type record struct {
	// Runs contains the runs in the order of their beginnings, each with the measures that no later run has repeated.
	Runs []*report `json:"runs"`
}

// readRecord reads the record of a directory. Without a file it is empty.
func readRecord(dir string) (r record, err error) {
	text, err := os.ReadFile(filepath.Join(dir, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}

// add adds a run, whose measures replace those of earlier runs. It refuses runs that are partial or not at full size.
func (r *record) add(run *report) error {
	switch {
	case run.Partial != "":
		return fmt.Errorf("the run of %s is partial: %s", run.Began.Format(time.DateTime), run.Partial)
	case run.Quick || run.Scale != 1:
		return fmt.Errorf("the run of %s has -quick or -scale; the documentation has figures of full size",
			run.Began.Format(time.DateTime))
	}
	for _, old := range r.Runs {
		old.forget(run.measures())
	}
	r.Runs = slices.DeleteFunc(append(r.Runs, run), func(x *report) bool { return len(x.Figures) == 0 })
	slices.SortStableFunc(r.Runs, func(a, b *report) int { return a.Began.Compare(b.Began) })
	return nil
}

// measures returns the measures of the figures, in their order.
func (r *report) measures() []string {
	var names []string
	for _, w := range r.Figures {
		if !slices.Contains(names, w.Measure) {
			names = append(names, w.Measure)
		}
	}
	return names
}

// forget removes the figures of measures.
func (r *report) forget(measures []string) {
	r.Figures = slices.DeleteFunc(r.Figures, func(w row) bool { return slices.Contains(measures, w.Measure) })
	r.Conditions = slices.DeleteFunc(r.Conditions, func(x conditionRow) bool {
		return slices.Contains(measures, conditionNamed(x.Name).measureName())
	})
}

// merged returns the figures of all runs, with their ratios. Each ratio is of one measure, so of one run.
func (r record) merged() *report {
	all := &report{}
	for _, run := range r.Runs {
		all.Figures = append(all.Figures, run.Figures...)
		all.Conditions = append(all.Conditions, run.Conditions...)
	}
	all.compare()
	return all
}

// writeDocs adds runs to the record of a directory and writes their figures into its pages.
func writeDocs(dir string, files []string) error {
	r, err := readRecord(dir)
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var run report
		if err := json.Unmarshal(text, &run); err != nil {
			return fmt.Errorf("%s is not the output of -o json: %w", file, err)
		}
		if err := r.add(&run); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	for page := range pages {
		name := filepath.Join(dir, page)
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		text, err = render(page, text, r)
		if err != nil {
			return err
		}
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, recordFile), append(text, '\n'), 0o644)
}

// render returns a page with the figures of a record between its marks.
func render(page string, text []byte, r record) ([]byte, error) {
	all := r.merged()
	for name, content := range pages[page] {
		begin, end := fmt.Appendf(nil, "<!-- bench:%s -->\n", name), fmt.Appendf(nil, "<!-- /bench:%s -->\n", name)
		before, rest, ok1 := bytes.Cut(text, begin)
		_, after, ok2 := bytes.Cut(rest, end)
		if !ok1 || !ok2 {
			return nil, fmt.Errorf("%s lacks the marks %s and %s", page, bytes.TrimSpace(begin), bytes.TrimSpace(end))
		}
		figures := content(r, all)
		if figures == "" {
			figures = unmeasured + "\n"
		}
		text = slices.Concat(before, begin, []byte(figures), end, after)
	}
	return text, nil
}

// pages contain the figures by page and mark. A function returns "" if no run has its figures.
var pages = map[string]map[string]func(r record, all *report) string{
	"benchmarks.md": {
		"runs":        func(r record, _ *report) string { return runList(r) },
		"rates":       func(_ record, all *report) string { return rateRows(all) },
		"everyday":    func(_ record, all *report) string { return everydayRows(all) },
		"subscribers": func(_ record, all *report) string { return subscriberRows(all) },
		"features":    func(_ record, all *report) string { return featureRows(all) },
		"cost":        func(_ record, all *report) string { return costRows(all) },
	},
	"sizing.md": {
		"sizes": func(_ record, all *report) string { return sizeRows(all) },
		"bytes": func(_ record, all *report) string { return sizeInBytes(all) },
	},
}

// markdown returns a table, or "" without rows.
func markdown(head []string, rows [][]string) string {
	if len(rows) == 0 {
		return ""
	}
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(head)
	b.WriteString(strings.Repeat("|---", len(head)) + "|\n")
	for _, cells := range rows {
		line(cells)
	}
	return b.String()
}

// cell returns a median, or "–" without one.
func (r *report) cell(measure, system, metric string) string {
	value, ok := r.median(measure, system, metric)
	if !ok {
		return "–"
	}
	return grouped(value)
}

// systems returns the systems of a measure, in the order of the run.
func (r *report) systems(measure string) []string {
	var names []string
	for _, w := range r.Figures {
		if w.Measure == measure && !slices.Contains(names, w.System) {
			names = append(names, w.System)
		}
	}
	return names
}

// runList returns the runs, below a line with the machine and the versions whenever these change. A later run has
// replaced the figures of the measures that it names.
func runList(r record) string {
	var b strings.Builder
	environment := ""
	for _, run := range r.Runs {
		command := "go run ."
		if run.Rounds > 0 {
			command += fmt.Sprintf(" -rounds %d", run.Rounds)
		}
		if len(run.Only) > 0 {
			command += " -only " + strings.Join(run.Only, ",")
		}
		postgres, _, _ := strings.Cut(run.Versions["postgresql"], " ")
		before := environment
		environment = fmt.Sprintf("%s, %d cores, PostgreSQL %s, nats-server %s, River %s, watermill-sql %s:\n\n",
			run.Machine.CPU, run.Machine.Cores, postgres, run.Versions["nats-io/nats-server/v2"],
			run.Versions["riverqueue/river"], run.Versions["ThreeDotsLabs/watermill-sql/v4"])
		if environment != before {
			if b.Len() > 0 {
				b.WriteString("\n")
			}
			b.WriteString(environment)
		}
		fmt.Fprintf(&b, "- %s, %.0f minutes, commit %.8s:\n  `%s`\n", run.Began.Format("2006-01-02 15:04 MST"),
			run.Seconds/60, cmp.Or(run.Versions["taskledger"], "unknown"), command)
	}
	return b.String()
}

// rateRows returns a row for each measure whose figure is a rate, and the relay's memory.
func rateRows(r *report) string {
	var rows [][]string
	for _, measure := range []string{
		"enqueue-1", "enqueue-8", "enqueue-32", "bulk", "relay", "relay-fsync", "drain", "exactly-once",
	} {
		if cells := r.rates(measure); cells != nil {
			rows = append(rows, cells)
		}
	}
	if mb, ok := r.Ratios[relayMemory]; ok {
		rows = append(rows, []string{"memory of the relay behind 1,000,000 events, MB", threeDigits(mb), ""})
	}
	return markdown([]string{"measure", ours, "others (ours / theirs)"}, rows)
}

// rates returns the cells of a measure: its name with the unit, our figures, the others' figures with their ratios.
func (r *report) rates(measure string) []string {
	var unit string
	var own, others []string
	for _, w := range r.Figures {
		if w.Measure != measure || w.Metric != rate {
			continue
		}
		unit = w.Unit
		switch variant, isOurs := strings.CutPrefix(w.System, ours); {
		case isOurs:
			own = append(own, strings.TrimPrefix(variant+" ", ", ")+grouped(w.Median))
		case w.Ratio > 0:
			others = append(others, fmt.Sprintf("%s %s (%s)", w.System, grouped(w.Median), threeDigits(w.Ratio)))
		default:
			others = append(others, w.System+" "+grouped(w.Median))
		}
	}
	if unit == "" {
		return nil
	}
	return []string{measure + ", " + unit, strings.TrimSpace(strings.Join(own, "; ")), strings.Join(others, "; ")}
}

// featureRows returns a row for each feature: its rate divided by that of the same tasks without it, then latencies.
func featureRows(r *report) string {
	var rows [][]string
	add := func(measure, system, value string) {
		rows = append(rows, []string{measure + ": " + strings.TrimPrefix(system, ours+", "), value})
	}
	for _, measure := range []string{"partitions", "order", "limits", "replace"} {
		for _, system := range r.systems(measure) {
			plain := ours
			switch system {
			case ours, oursWide:
				continue
			case oursWideLimited:
				plain = oursWide
			}
			with, _ := r.median(measure, system, rate)
			if without, ok := r.median(measure, plain, rate); ok {
				add(measure, system, threeDigits(with/without))
			}
		}
	}
	for _, measure := range []string{"priority", "tenant"} {
		for _, system := range r.systems(measure) {
			if system != ours {
				add(measure, system, "p99 "+r.cell(measure, system, p99)+" ms; idle "+r.cell(measure, ours, p99))
			}
		}
	}
	return markdown([]string{"feature", "with / without"}, rows)
}

// everydayVariants are measured at one rate only, and are not in the table.
var everydayVariants = []string{riverPolling, floorRare}

func everydayRows(r *report) string {
	var rows [][]string
	for _, measure := range []string{
		"idle", "everyday-1", "everyday-50", "everyday-200", "everyday-500", "everyday-800", "everyday-2000",
	} {
		perSecond := strings.TrimPrefix(measure, "everyday-")
		systems := r.systems(measure)
		if len(systems) == 0 {
			rows = append(rows, []string{perSecond, notMeasured, "", "", "", ""})
		}
		for _, system := range systems {
			if slices.Contains(everydayVariants, system) {
				continue
			}
			cells := []string{perSecond, system}
			for _, metric := range []string{coresMetric, servicesMetric, p50, p99} {
				cells = append(cells, r.cell(measure, system, metric))
			}
			rows = append(rows, cells)
		}
	}
	return markdown([]string{"tasks/s", "system", "CPU, cores", "… without the enqueues", "p50, ms", "p99, ms"}, rows)
}

func subscriberRows(r *report) string {
	var rows [][]string
	for _, system := range r.systems(subscribersName) {
		cells := []string{system}
		for _, metric := range []string{coresMetric, servicesMetric, writesMetric, walPerTask} {
			cells = append(cells, r.cell(subscribersName, system, metric))
		}
		rows = append(rows, cells)
	}
	return markdown([]string{"100 tasks/s", "CPU, cores", "… without the enqueues", "write tx/s",
		"WAL per task, bytes"}, rows)
}

func costRows(r *report) string {
	systems := r.systems("cost")
	var metrics []string
	for _, w := range r.Figures {
		if w.Measure == "cost" && strings.HasSuffix(w.Metric, "per task") && !slices.Contains(metrics, w.Metric) &&
			!strings.HasPrefix(w.Metric, "alloc") {
			metrics = append(metrics, w.Metric)
		}
	}
	var rows [][]string
	for _, metric := range metrics {
		cells := []string{metric}
		for _, system := range systems {
			cells = append(cells, r.cell("cost", system, metric))
		}
		rows = append(rows, cells)
	}
	return markdown(append([]string{"cost"}, systems...), rows)
}
