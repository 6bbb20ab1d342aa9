package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The file of schedules that docs/periodic.md prints is accepted.
func TestScheduleFileOfExamples(t *testing.T) {
	t.Parallel()
	environment := map[string]string{envDatabaseURL: ledgertest.URL(t, "operator")}
	for _, want := range []string{"create", "keep"} {
		stdout, stderr, exit := run(t, environment,
			"schedule", "apply", "-f", "../../examples/schedules.yaml", "-o", "jsonl")
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
