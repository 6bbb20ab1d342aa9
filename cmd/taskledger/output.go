package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// format is the format of a command's data. It is a flag's value.
type format string

const (
	formatTable format = "table" // for people
	formatJSON  format = "json"  // one value, indented
	formatJSONL format = "jsonl" // one value a line
)

func (f *format) String() string { return string(*f) }
func (f *format) Type() string   { return "format" }

// Set implements pflag.Value.
func (f *format) Set(s string) error {
	switch format(s) {
	case formatTable, formatJSON, formatJSONL:
		*f = format(s)
		return nil
	}
	return fmt.Errorf("must be table, json or jsonl, got %q", s)
}

// guessFormat returns the format that a command line requests, even if the command line is invalid.
func guessFormat(args []string, environment string) format {
	f := formatTable
	_ = f.Set(environment) // an invalid format changes nothing
	for i, arg := range args {
		value, found := strings.CutPrefix(arg, "--output=")
		if !found && (arg == "-o" || arg == "--output") && i+1 < len(args) {
			value, found = args[i+1], true
		}
		if !found && !strings.HasPrefix(arg, "--") {
			value, found = strings.CutPrefix(arg, "-o")
		}
		if found {
			_ = f.Set(strings.TrimPrefix(value, "="))
		}
	}
	return f
}

// print writes one value: as JSON, or by render for people.
func (a *app) print(value any, render func(io.Writer)) error {
	switch a.config.output {
	case formatJSON:
		return a.printJSON(value, "  ")
	case formatJSONL:
		return a.printJSON(value, "")
	default:
		b := screen{width: screenWidth(a.stdout), isWhole: a.verbose}
		render(&b)
		_, err := a.stdout.Write(unpainted(b.Bytes(), a.isColour))
		return err
	}
}

// printList is print for a value with a list: as JSON lines, the list's elements are written.
func printList[E any](a *app, value any, list []E, render func(io.Writer)) error {
	if a.config.output != formatJSONL {
		return a.print(value, render)
	}
	for _, element := range list {
		if err := a.printJSON(element, ""); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printJSON(value any, indent string) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	_, err := a.stdout.Write(escapeControls(b.Bytes()))
	return err
}

// newTable returns a table in the style of this program: no frame, numeric columns (counted from 1) aligned
// right.
func newTable(header []any, numbers ...int) table.Writer {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft = ""
	style.Box.PaddingRight = "  "
	style.Format.Header = text.FormatUpper
	t.SetStyle(style)
	var columns []table.ColumnConfig
	for _, n := range numbers {
		columns = append(columns, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	if header == nil {
		return t
	}
	t.AppendHeader(table.Row(header))
	return &headed{Writer: t, header: header, numbers: numbers}
}

// headed is a table with a header of one line, and its cells.
type headed struct {
	table.Writer
	header  []any
	numbers []int
	rows    []table.Row

	isSparse bool // columns without cells are left out
}

// AppendRow implements table.Writer.
func (h *headed) AppendRow(row table.Row, configs ...table.RowConfig) {
	h.rows = append(h.rows, row)
	h.Writer.AppendRow(row, configs...)
}

// SuppressEmptyColumns implements table.Writer.
func (h *headed) SuppressEmptyColumns() {
	h.isSparse = true
	h.Writer.SuppressEmptyColumns()
}

// renderTable writes a table without the blanks at the ends of its lines. On a terminal, its lines fit the width.
func renderTable(w io.Writer, t table.Writer) {
	if t.Length() == 0 { // a command reports on standard error that there is nothing, and a header adds nothing
		return
	}
	h, isHeader := t.(*headed)
	if s, isScreen := w.(*screen); isScreen && isHeader && s.width > 0 {
		s.render(h)
		return
	}
	for line := range strings.Lines(t.Render() + "\n") {
		line = strings.TrimRight(line, " \n")
		if isHeader {
			line, isHeader = bold.on(line), false
		}
		fmt.Fprintln(w, line)
	}
}

// renderFields writes names and values as two columns.
func renderFields(w io.Writer, fields ...[2]string) {
	t := newTable(nil)
	for _, f := range fields {
		t.AppendRow(table.Row{f[0], f[1]})
	}
	renderTable(w, t)
}
