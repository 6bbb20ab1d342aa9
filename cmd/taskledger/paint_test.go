package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/ledger"
)

// Each state and event with a paint keeps its name, and the columns of a table are as wide as without paints.
func TestPaintsChangeNoWidth(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	table := newTable([]any{"state", "tasks", "note"}, 2)
	for _, s := range []ledger.State{ledger.StateAvailable, ledger.StateDead} {
		table.AppendRow([]any{painted(s), red.number(int64(len(s))), plain("a\x1b[31mb")})
	}
	table.AppendRow([]any{painted(ledger.StateRunning), red.number(0), "c"})
	renderTable(&b, table)
	onTerminal := string(unpainted(b.Bytes(), true))
	for _, want := range []string{"\x1b[1mSTATE", "\x1b[31mdead\x1b[0m", "\x1b[31m4\x1b[0m", "\x1b[2m0\x1b[0m"} {
		if !strings.Contains(onTerminal, want) {
			t.Errorf("no %q in %q", want, onTerminal)
		}
	}
	want := "STATE      TASKS  NOTE\n" +
		"available      9  a\\x1b[31mb\n" +
		"dead           4  a\\x1b[31mb\n" +
		"running        0  c\n"
	if got := string(unpainted(b.Bytes(), false)); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
}

// Colours are for terminals, unless the user forbids them.
func TestColoursAreForTerminals(t *testing.T) {
	t.Parallel()
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("SKIPPED without a terminal: %v", err)
	}
	defer terminal.Close()
	for _, c := range []struct {
		name        string
		to          *os.File
		environment map[string]string
		want        bool
	}{
		{name: "a terminal", to: terminal, environment: map[string]string{"TERM": "xterm"}, want: true},
		{name: "NO_COLOR", to: terminal, environment: map[string]string{"TERM": "xterm", "NO_COLOR": "1"}},
		{name: "a dumb terminal", to: terminal, environment: map[string]string{"TERM": "dumb"}},
		{name: "a file", to: file, environment: map[string]string{"TERM": "xterm"}},
	} {
		a := newApp()
		a.getenv = func(name string) string { return c.environment[name] }
		if got := a.hasColour(c.to); got != c.want {
			t.Errorf("%s: colours %v", c.name, got)
		}
	}
}
