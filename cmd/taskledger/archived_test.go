package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The commands show and history print the same of an archived task: from the place to which it was archived, or from
// the one that --archive names.
func TestArchivedTaskIsShown(t *testing.T) {
	t.Parallel()
	environment := map[string]string{envDatabaseURL: ledgertest.URL(t, ledgertest.Owner)}
	pool, err := pgxpool.New(t.Context(), environment[envDatabaseURL])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	b := &servicetest.Bundle{T: t, DB: pool, AllAsOwner: true}
	key := ledgertest.Key(t, "coupon.send/A-1")
	ledgertest.Enqueue(t, b.DB, key, `{"percent":10}`)
	ledgertest.Append(t, b.DB, key, ledger.EventStarted, ledger.EventSucceeded)
	do := func(exit int, line string) (stdout, stderr string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		stdout, stderr, got := runUntil(ctx, t, environment, func() {}, strings.Fields(line)...)
		if got != exit {
			t.Fatalf("%s: exit code %d: %s", line, got, stderr)
		}
		return stdout, stderr
	}
	history, _ := do(exitOK, "history coupon.send A-1 -o jsonl")
	var task, archived ledger.Task
	decode := func(text string, into any) {
		t.Helper()
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err, text)
		}
	}
	text, _ := do(exitOK, "show task coupon.send A-1 -o json")
	decode(text, &task)

	b.Project()
	place := filepath.Join(t.TempDir(), "archive")
	if text, _ := do(exitOK, "archive --older-than 0s --to "+place); !strings.Contains(text, "archived: 1 tasks") {
		t.Fatal(text)
	}
	const known = "coupon.send/A-1 was archived: it is succeeded, at version 3\n"
	if got, _ := do(exitOK, "enqueue coupon.send A-1 --check-archive"); got != known {
		t.Errorf("an enqueue that checks the archive: %s", got)
	}
	if got, _ := do(exitOK, "history coupon.send A-1 -o jsonl"); got != history {
		t.Errorf("history: got\n%s\nwant\n%s", got, history)
	}
	text, _ = do(exitOK, "show task coupon.send A-1 -o json")
	decode(text, &archived)
	if archived.ArchivedAt.IsZero() || archived.State != task.State || string(archived.Args) != string(task.Args) ||
		!archived.UpdatedAt.Equal(task.UpdatedAt) {
		t.Errorf("%+v", archived)
	}
	var events []ledger.Event
	for line := range strings.Lines(history) {
		var e ledger.Event
		decode(line, &e)
		events = append(events, e)
	}
	at := events[1].RecordedAt.Format("2006-01-02T15:04:05.999999Z")
	for _, asOf := range []string{fmt.Sprint(events[1].Position), at} {
		text, _ := do(exitOK, "show task coupon.send A-1 --as-of "+asOf+" -o json")
		decode(text, &archived)
		if archived.State != ledger.StateRunning || archived.Version != 2 {
			t.Errorf("as of %s: %+v", asOf, archived)
		}
	}
	if text, _ := do(exitOK, "history coupon.send A-1"); !strings.Contains(text, ", archived ") {
		t.Error(text)
	}
	do(exitUsage, "show task coupon.send A-1 --as-of 2020-01-01T00:00:00Z")
	do(exitNotFound, "show task coupon.send A-2")

	for line, want := range map[string]string{
		"events --key coupon.send/A-1":               "by: taskledger history coupon.send A-1\n",
		"events --key coupon.send/A-":                "left out; one is shown by: taskledger history",
		"events":                                     "left out; one is shown by: taskledger history",
		"events --kind coupon.send --count":          "left out; one is shown by: taskledger history",
		"events --tail 50":                           "left out; one is shown by: taskledger history",
		"state 0s":                                   "by: taskledger show task --as-of 0s KIND BIZ_ID\n",
		"state 0s --list":                            "by: taskledger show task --as-of 0s KIND BIZ_ID\n",
		"show tasks --kind coupon.send --biz-id A-1": "by: taskledger show task coupon.send A-1\n",
		"show tasks":                                 "left out; one is shown by: taskledger show task",
	} {
		if _, stderr := do(exitOK, line); strings.Count(stderr, "archived") != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%s: %q", line, stderr)
		}
	}
	for _, line := range []string{
		"events --tail 1", "events --kind coupon.print", "state 0s --kind coupon.print", "events --from 4",
		"show tasks --state running", "show tasks --kind coupon.print",
	} {
		if _, stderr := do(exitOK, line); strings.Contains(stderr, "archived") {
			t.Errorf("%s: %q", line, stderr)
		}
	}
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	if _, stderr := do(exitConflict, "import archive "+nowhere); !strings.Contains(stderr, nowhere) {
		t.Errorf("import: %s", stderr)
	}
	moved := place + "-moved"
	if err := os.Rename(place, moved); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"show task coupon.send A-1", "history coupon.send A-1"} {
		_, stderr := do(exitUnavailable, line)
		if !strings.Contains(stderr, place) || !strings.Contains(stderr, "--archive") {
			t.Errorf("%s: %s", line, stderr)
		}
		do(exitOK, line+" --archive "+moved)
	}
	if _, stderr := do(exitNotFound, "tree coupon.send A-1"); !strings.Contains(stderr,
		"show it with: taskledger history coupon.send A-1;") {
		t.Error(stderr)
	}
	damaged := filepath.Join(t.TempDir(), "damaged")
	if err := os.CopyFS(damaged, os.DirFS(moved)); err != nil {
		t.Fatal(err)
	}
	segments, err := filepath.Glob(filepath.Join(damaged, "volumes", "*", "*.zst"))
	if err != nil || len(segments) != 1 {
		t.Fatal(segments, err)
	}
	if err := os.Truncate(segments[0], 40); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(damaged, place); err != nil {
		t.Fatal(err)
	}
	if _, stderr := do(exitIntegrity, "show task coupon.send A-1"); !strings.Contains(stderr, "restore this file") {
		t.Error(stderr)
	}
	ledgertest.Enqueue(t, b.DB, key, `{}`)
	if text, _ := do(exitOK, "history coupon.send A-1 -o jsonl --archive "+moved); strings.Count(text, "\n") != 4 ||
		!strings.HasPrefix(text, history) {
		t.Errorf("enqueued again:\n%s", text)
	}
}

// The failure of a wait for a task whose key was archived names the option that answers at once.
func TestWaitForArchivedTaskIsHinted(t *testing.T) {
	t.Parallel()
	task := ledger.Task{Key: ledgertest.Key(t, "coupon.send/A-1"), State: ledger.StateDiscarded, Reason: "archived"}
	if f := describe(&ledger.TaskError{Task: task}); !strings.Contains(f.hint, "--check-archive") {
		t.Errorf("%+v", f)
	}
	task.Reason = "limit"
	if f := describe(&ledger.TaskError{Task: task}); f.hint != "" {
		t.Errorf("%+v", f)
	}
}
