package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
	"github.com/taskledger/taskledger/workers"
)

// newTopSample returns a sample of four kinds with one trouble each, of a number of quiet kinds and of one worker.
func newTopSample(quiet int) sample {
	n := sample{At: time.Date(2026, 12, 24, 18, 0, 30, 0, time.UTC), ToPublish: 3,
		Workers: []workers.Worker{{ID: "shop-1\x1b[2J", Alive: true, Kinds: []workers.WorkerKind{
			{Kind: "coupon.send", Load: &workers.WorkerLoad{Slots: 4, Running: 3, InFlight: 5, PerMinute: 12}}}}},
		Conditions: []health.Condition{{Name: health.RelayStopped, Text: "no relay is running", Cure: "start a relay"}},
	}
	tasks := func(s ledger.State, count int64) map[ledger.State]int64 { return map[ledger.State]int64{s: count} }
	listed := []listedKind{
		{Kind: "dead.kind", Tasks: tasks(ledger.StateDead, 7), Workers: 1},
		{Kind: "failing.kind", Tasks: tasks(ledger.StateRetrying, 5), Workers: 1},
		{Kind: "lonely.kind", Tasks: tasks(ledger.StateAvailable, 1200)},
		{Kind: "paused.kind", Workers: 1, Paused: &operator.PausedKind{}},
	}
	for i := range quiet {
		listed = append(listed, listedKind{Kind: ledger.Kind(fmt.Sprintf("quiet.%02d", i)), Workers: 1})
	}
	minute := n.At.Truncate(time.Minute)
	n.addKinds(listed, []projector.KindStats{
		{Kind: "failing.kind", Minute: minute, Succeeded: 3, Failed: 3},
		{Kind: "quiet.00", Minute: minute.Add(-time.Minute), Succeeded: 60},
	}, map[ledger.Kind]time.Time{"lonely.kind": n.At.Add(-5 * time.Minute)}, 90*time.Second)
	return n
}

// A screen of any size has no more lines and columns than the terminal. The worst kinds come first.
func TestTopFitsTheTerminal(t *testing.T) {
	t.Parallel()
	n := newTopSample(50)
	for _, size := range [][2]int{{200, 70}, {120, 40}, {80, 24}, {40, 10}, {10, 3}, {1, 1}} {
		lines := n.screen("the database is away", size[0], size[1])
		if len(lines) > size[1] {
			t.Errorf("%d lines on a screen of %d", len(lines), size[1])
		}
		for _, line := range lines {
			if w := text.StringWidthWithoutEscSequences(line); w > size[0] {
				t.Errorf("%d columns on a screen of %d: %q", w, size[0], line)
			}
		}
	}
	screen := string(unpainted([]byte(strings.Join(n.screen("", 120, 70), "\n")), false))
	at := 0
	for _, want := range []string{"no relay is running", "start a relay", "lonely.kind", "no worker", "1,200", "5m",
		"failing.kind", "failing", "2.0/min", "2.0/min", "paused.kind", "dead.kind", "quiet.00", "40/min", "quiet.01",
		`shop-1\x1b[2J  ████████░░  3/4`, "coupon.send"} {
		i := strings.Index(screen[at:], want)
		if i < 0 {
			t.Fatalf("no %q in\n%s", want, screen[at:])
		}
		at += i + len(want)
	}
	if strings.Contains(screen, "\x1b") {
		t.Errorf("a name reaches the terminal as it is: %q", screen)
	}
	small := n.screen("", 120, 24)
	if !slices.ContainsFunc(small, func(l string) bool { return strings.Contains(l, "more: taskledger show kinds") }) {
		t.Errorf("the kinds that do not fit are not counted:\n%s", strings.Join(small, "\n"))
	}
}

// Without a terminal a sample is one line.
func TestTopAsALine(t *testing.T) {
	t.Parallel()
	want := "2026-12-24T18:00:30Z  succeeded 42/min, failed 2.0/min, waiting 1,200, running 0, retrying 5, dead 7, " +
		"workers 1, to publish 3, to project 0; degraded: relay_stopped"
	if got := newTopSample(1).line(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
