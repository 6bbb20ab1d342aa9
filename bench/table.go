package main

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// print writes the report in the format of c.
func (r *report) print(c config, w io.Writer) error {
	var err error
	if c.csv != "" {
		err = r.writeCSV(c.csv)
	}
	if c.output == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return errors.Join(err, e.Encode(r))
	}
	r.tables(w)
	return err
}

func (r *report) writeCSV(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := csv.NewWriter(f)
	_ = w.Write([]string{"began", "quick", "measure", "system", "metric", "unit", "round", "value"})
	for _, s := range r.samples {
		_ = w.Write([]string{r.Began.Format("2006-01-02T15:04:05Z"), strconv.FormatBool(r.Quick),
			s.measure, s.system, s.metric, s.unit, strconv.Itoa(s.round), strconv.FormatFloat(s.value, 'g', -1, 64)})
	}
	w.Flush()
	return errors.Join(w.Error(), f.Close())
}

// tables prints a table for each measure, then the ratios, the machine and the settings.
func (r *report) tables(w io.Writer) {
	if r.Partial != "" {
		_, _ = fmt.Fprintf(w, "PARTIAL: %s\n\n", r.Partial)
	}
	for _, name := range r.order {
		sizes := ""
		if r.Quick || r.Scale != 1 {
			sizes = " (this title has the sizes of the full run)"
		}
		_, _ = fmt.Fprintf(w, "%s: %s%s\n", name, r.titles[name], sizes)
		t := newTable(w, table.Row{"system", "metric", "median", "min", "max", "unit", "ours / peer"}, 3, 4, 5, 7)
		for _, f := range r.Figures {
			if f.Measure != name {
				continue
			}
			ratio := ""
			if f.Ratio > 0 {
				ratio = threeDigits(f.Ratio)
			}
			least, most := "", "" // of one round
			if len(f.Values) > 1 {
				least, most = threeDigits(f.Min), threeDigits(f.Max)
			}
			t.AppendRow(table.Row{f.System, f.Metric, threeDigits(f.Median), least, most, f.Unit, ratio})
		}
		t.Render()
		_, _ = fmt.Fprintln(w)
	}
	r.conditionTable(w)
	r.ratioTable(w)
	m := r.Machine
	_, _ = fmt.Fprintf(w, "\n%s, %d cores, %d MB, %s, %s\n", m.CPU, m.Cores, m.MemoryMB, m.OS, m.Disk)
	_, _ = fmt.Fprintf(w, "versions: %s\nPostgreSQL: %s\nJetStream: %s\n",
		list(r.Versions), list(r.Settings.PostgreSQL), list(r.Settings.JetStream))
	for _, name := range slices.Sorted(maps.Keys(r.Settings.Systems)) {
		_, _ = fmt.Fprintf(w, "%s: %s\n", name, r.Settings.Systems[name])
	}
	_, _ = fmt.Fprintf(w, "%d rounds, quick: %t, scale %g, %.0f s, began %s\n",
		r.Rounds, r.Quick, r.Scale, r.Seconds, r.Began.Format("2006-01-02 15:04 MST"))
}

func (r *report) conditionTable(w io.Writer) {
	if len(r.Conditions) == 0 {
		return
	}
	t := newTable(w, table.Row{"condition / clean", "metric", "median", "min", "max"}, 3, 4, 5)
	for _, x := range r.Conditions {
		t.AppendRow(table.Row{x.Name, x.Metric, threeDigits(x.Median), threeDigits(x.Min), threeDigits(x.Max)})
	}
	t.Render()
	_, _ = fmt.Fprintln(w)
}

func (r *report) ratioTable(w io.Writer) {
	if len(r.Ratios) == 0 {
		return
	}
	t := newTable(w, table.Row{"ratio", "measured", "target", "", "floor"}, 2, 3, 5)
	row := func(name, label string, x ratio) {
		value, ok := r.Ratios[name]
		if !ok {
			return
		}
		var target, floor string
		if x.target > 0 {
			target = x.sign() + threeDigits(x.target)
		}
		if value, ok := r.FloorRatios[name]; ok {
			floor = threeDigits(value)
		}
		t.AppendRow(table.Row{label, threeDigits(value), target, x.verdict(value), floor})
	}
	for _, x := range ratios {
		row(x.name, x.label, x)
	}
	for _, x := range conditions {
		row(x.name, x.label, ratio{metric: rate, target: conditionTarget})
	}
	row(relayMemory, "the relay's memory behind 1,000,000 events, MB", ratio{target: memoryTarget})
	t.Render()
}

func newTable(w io.Writer, head table.Row, right ...int) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(head)
	var columns []table.ColumnConfig
	for _, n := range right {
		columns = append(columns, table.ColumnConfig{
			Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight,
		})
	}
	t.SetColumnConfigs(columns)
	return t
}

// grouped returns a number from 1,000 on without a fraction and with separators, and others with three digits.
func grouped(v float64) string {
	if v < 999.5 {
		return threeDigits(v)
	}
	digits := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// threeDigits returns a number with three significant digits.
func threeDigits(v float64) string {
	switch {
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v > 0 && v < 0.1:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func list(m map[string]string) string {
	var text string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if text != "" {
			text += ", "
		}
		text += k + " " + m[k]
	}
	return text
}
