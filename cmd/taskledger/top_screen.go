package main

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

const (
	// maxTopConditions, maxTopWorkers and maxTopBehind are the numbers of lines for other rows than kinds.
	maxTopConditions, maxTopWorkers, maxTopBehind = 3, 8, 5
	// slotBar is the number of characters of a bar of slots.
	slotBar = 10
)

// screen returns the lines of a screen, each at most width characters wide. trouble is why there is no newer sample, or
// "".
func (n sample) screen(trouble string, width, height int) []string {
	t := n.Total.Tasks
	number := func(p paint, state ledger.State, word string) string { return p.number(t[state]) + " " + word }
	lines := []string{
		bold.on("taskledger") + "  " + n.At.Local().Format(time.TimeOnly) + faint.on("  q quits"),
		strings.Join([]string{perMinute(n.Total.Succeeded) + " succeeded", failedPaint(n.Total.Failed).on(
			perMinute(n.Total.Failed)) + " failed", number("", ledger.StateAvailable, "waiting"),
			number(blue, ledger.StateRunning, "running"), number(yellow, ledger.StateRetrying, "retrying"),
			number(violet, ledger.StateScheduled, "scheduled"), number(red, ledger.StateDead, "dead")}, "   "),
		n.flow(), ""}
	if trouble != "" {
		lines = append(lines, red.on(plain(trouble)), "")
	}
	lines = append(lines, n.conditions()...)
	below := n.workers()
	lines = append(lines, n.kinds(max(1, height-len(lines)-len(below)-2))...)
	if len(lines)+len(below) > height {
		below = nil
	}
	lines = append(lines, below...)
	for i, line := range lines {
		if text.StringWidthWithoutEscSequences(line) > width {
			lines[i] = text.Trim(line, width-1) + "…\x1b[0m"
		}
	}
	return lines[:min(len(lines), height)]
}

func failedPaint(rate float64) paint {
	if rate == 0 {
		return faint
	}
	return red
}

// flow returns how far the readers of the events are behind.
func (n sample) flow() string {
	flow := fmt.Sprintf("%s to publish   %s to project",
		paint("").number(n.ToPublish), paint("").number(int64(n.ToProject)))
	for i, b := range n.Behind {
		if b.Events == 0 || i == maxTopBehind {
			break
		}
		flow += fmt.Sprintf("   %s behind: %s, %s", plain(b.Name), count(b.Events), age(b.Age))
	}
	return flow
}

func (n sample) conditions() []string {
	var lines []string
	for i, c := range n.Conditions {
		if i == maxTopConditions {
			lines = append(lines, fmt.Sprintf("and %d more: taskledger status", len(n.Conditions)-i))
			break
		}
		lines = append(lines, red.on(plain(c.Text)), faint.on("  "+c.Cure))
	}
	if len(lines) > 0 {
		lines = append(lines, "")
	}
	return lines
}

// kinds returns a table of kinds with at most this number of lines.
func (n sample) kinds(most int) []string {
	t := newTable([]any{
		"kind", "", "succeeded", "failed", "waiting", "oldest", "running", "retrying", "dead", "workers",
	}, 3, 4, 5, 6, 7, 8, 9, 10)
	shown := n.Kinds
	if len(shown)+1 > most { // with the header; the last line counts the others
		shown = shown[:max(0, most-2)]
	}
	for _, k := range shown {
		oldest := ""
		if !k.OldestAt.IsZero() && k.Tasks[ledger.StateAvailable] > 0 {
			oldest = age(n.At.Sub(k.OldestAt))
		}
		t.AppendRow(table.Row{shorten(string(k.Kind), maxKindName), yellow.on(k.Trouble), perMinute(k.Succeeded),
			failedPaint(k.Failed).on(perMinute(k.Failed)), paint("").number(k.Tasks[ledger.StateAvailable]), oldest,
			blue.number(k.Tasks[ledger.StateRunning]), yellow.number(k.Tasks[ledger.StateRetrying]),
			red.number(k.Tasks[ledger.StateDead]), count(k.Workers)})
	}
	lines := tableLines(t)
	switch more := len(n.Kinds) - len(shown); {
	case len(n.Kinds) == 0:
		lines = append(lines, "No kind has tasks or workers.")
	case more > 0:
		lines = append(lines, faint.on(fmt.Sprintf("and %d more: taskledger show kinds", more)))
	}
	return lines
}

func (n sample) workers() []string {
	lines := []string{"", "No worker is alive."}
	t := newTable([]any{"worker", "slots", "", "in flight", "ended", "kinds"}, 3, 4, 5)
	for i, w := range n.Workers {
		if i < maxTopWorkers {
			t.AppendRow(workerRow(w))
		}
	}
	if len(n.Workers) > 0 {
		lines = append([]string{""}, tableLines(t)...)
	}
	if more := len(n.Workers) - maxTopWorkers; more > 0 {
		lines = append(lines, faint.on(fmt.Sprintf("and %d more: taskledger show workers", more)))
	}
	return lines
}

// workerRow returns a worker with the sums of its kinds.
func workerRow(w workers.Worker) table.Row {
	var slots, running, inFlight int
	var ended float64
	names := make([]string, 0, len(w.Kinds))
	for _, k := range w.Kinds {
		names = append(names, string(k.Kind))
		if k.Load != nil {
			slots, running = slots+k.Load.Slots, running+k.Load.Running
			inFlight, ended = inFlight+k.Load.InFlight, ended+k.Load.PerMinute
		}
	}
	taken := 0
	if slots > 0 {
		taken = min(slotBar, (running*slotBar+slots-1)/slots)
	}
	p := blue
	if slots > 0 && running >= slots {
		p = yellow
	}
	return table.Row{plain(w.ID), p.on(strings.Repeat("█", taken)) + faint.on(strings.Repeat("░", slotBar-taken)),
		fmt.Sprintf("%d/%d", running, slots), inFlight, perMinute(ended), plain(strings.Join(names, ", "))}
}

// tableLines returns the lines of a table.
func tableLines(t table.Writer) []string {
	var b bytes.Buffer
	renderTable(&b, t)
	if b.Len() == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}
