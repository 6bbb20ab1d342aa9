package main

import (
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
)

// Tables with a long text fit a terminal of 120 columns: the text is shortened where there is room, else wrapped below
// its row. With --verbose, and outside of a terminal, it is whole.
func TestTablesFitTheTerminal(t *testing.T) {
	t.Parallel()
	detail := strings.TrimSpace(strings.Repeat("POST https://api.example/v1: 503 Größe ✓ ", 6))
	render := func(s *screen, state string) (lines []string) {
		table := newTable([]any{"kind", "state", "attempt", "error"}, 3)
		table.AppendRow([]any{state, red.on("dead"), 3, detail})
		table.AppendRow([]any{"b", "", 10, "short"})
		renderTable(s, table)
		return strings.Split(strings.TrimSpace(s.String()), "\n")
	}
	narrow, wide := "payment.capture", strings.Repeat("k", 90)
	for _, c := range []struct {
		name    string
		screen  screen
		kind    string
		lines   int
		isWhole bool
	}{
		{name: "shortened", screen: screen{width: 120}, kind: narrow, lines: 3},
		{name: "below", screen: screen{width: 120}, kind: wide, lines: 6, isWhole: true},
		{name: "verbose", screen: screen{width: 120, isWhole: true}, kind: narrow, lines: 6, isWhole: true},
		{name: "a pipe", kind: narrow, lines: 3, isWhole: true},
	} {
		lines := render(&c.screen, c.kind)
		if len(lines) != c.lines {
			t.Errorf("%s: %d lines, want %d:\n%s", c.name, len(lines), c.lines, strings.Join(lines, "\n"))
		}
		for _, line := range lines {
			if n := text.StringWidthWithoutEscSequences(line); c.screen.width > 0 && n > c.screen.width {
				t.Errorf("%s: %d columns: %s", c.name, n, line)
			}
		}
		all := strings.Join(strings.Fields(strings.Join(lines, " ")), " ")
		if strings.Contains(all, detail) != c.isWhole || strings.Contains(all, "…") == c.isWhole {
			t.Errorf("%s: the detail is whole: %t:\n%s", c.name, !c.isWhole, all)
		}
	}
}

// In a table that is too wide, long names are shortened in their middle; if that does not suffice, the columns that do
// not fit are below their row, whole.
func TestWideTablesFitTheTerminal(t *testing.T) {
	t.Parallel()
	kind, id := "accounting.invoices.monthly-statement.render-and-send", strings.Repeat("customer-", 9)+"17"
	const at = "2026-11-30 18:57:51.091Z"
	for _, c := range []struct {
		name, kind string
		screen     screen
		lines      []string
	}{
		{name: "it fits", screen: screen{width: 120}, kind: "a", lines: []string{
			"KIND  STATE   TASKS  ENQUEUED                  UPDATED",
			"a     dead   12,345  " + at + "  " + at}},
		{name: "shortened", screen: screen{width: 107}, kind: kind, lines: []string{
			"KIND                                      STATE   TASKS  ENQUEUED                  UPDATED",
			"accounting.invoices.monthl…nder-and-send  dead   12,345  " + at + "  " + at}},
		{name: "below", screen: screen{width: 80}, kind: kind, lines: []string{
			"KIND                                                   STATE   TASKS",
			"    ENQUEUED                  UPDATED",
			kind + "  dead   12,345",
			"    " + at + "  " + at}},
		{name: "wrapped", screen: screen{width: 80}, kind: id, lines: []string{
			"KIND", "    STATE   TASKS  ENQUEUED                  UPDATED",
			"    " + id[:76], "    " + id[76:], "    dead   12,345  " + at + "  " + at}},
	} {
		table := newTable([]any{"kind", "state", "tasks", "", "enqueued", "updated"}, 3)
		table.AppendRow([]any{c.kind, red.on("dead"), "12,345", "", at, at})
		table.SuppressEmptyColumns()
		renderTable(&c.screen, table)
		got := strings.TrimSpace(string(unpainted(c.screen.Bytes(), false)))
		if want := strings.TrimSpace(strings.Join(c.lines, "\n")); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, want)
		}
	}
}

// The help of each command fits a terminal of 120 columns.
func TestHelpFitsTheTerminal(t *testing.T) {
	t.Parallel()
	n := 0
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		n++
		for line := range strings.Lines(cmd.UsageString()) {
			if width := text.StringWidthWithoutEscSequences(strings.TrimRight(line, "\n")); width > 120 {
				t.Errorf("%s: %d columns: %s", cmd.CommandPath(), width, line)
			}
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newApp().newRootCommand())
	if n < maxCommands {
		t.Errorf("only %d commands were examined", n)
	}
}
