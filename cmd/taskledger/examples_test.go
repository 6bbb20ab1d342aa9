package main

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The file of schedules that docs/periodic.md prints is accepted.
func TestScheduleFileOfExamples(t *testing.T) {
	t.Parallel()
	environment := map[string]string{envDatabaseURL: ledgertest.URL(t, "operator")}
	file, err1 := os.ReadFile("../../examples/schedules.yaml")
	doc, err2 := os.ReadFile("../../docs/periodic.md")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	_, schedules, _ := strings.Cut(string(file), "\n") // after the comment
	if !strings.Contains(string(doc), "```yaml\n"+schedules+"```") {
		t.Error("docs/periodic.md does not print examples/schedules.yaml")
	}
	for _, want := range []string{"create", "keep"} {
		stdout, stderr, exit := run(t, environment,
			"apply", "schedules", "-f", "../../examples/schedules.yaml", "-o", "jsonl")
		if exit != exitOK {
			t.Fatalf("exit %d: %s", exit, stderr)
		}
		for _, name := range []string{"nightly-report", "heartbeat", "crm-sync"} {
			wantLine(t, stdout, name, want)
		}
	}
}

// wantLine checks that a line of output has all of these words.
func wantLine(t *testing.T, output string, words ...string) {
	t.Helper()
	for line := range strings.Lines(output) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			return
		}
	}
	t.Errorf("no line with %q:\n%s", words, output)
}
