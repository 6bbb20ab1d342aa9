package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// report is the outcome of a run.
type report struct {
	config     config
	record     *record
	violations []violation
	skipped    []string
	began      time.Time
	stopped    time.Time     // when production and faults ended
	endedAfter time.Duration // from then until all tasks had ended
	waiting    int           // in an overload: the most that were counted at once
	memory     []string      // of an overload
}

// shown bounds the breaches of one rule, and the acts before them.
const shown = 20

func (r *report) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer func() { _ = w.Flush() }() // there is no other place to report that this cannot be printed
	line := func(format string, a ...any) { _, _ = fmt.Fprintf(w, format+"\n", a...) }
	events := 0
	for _, e := range r.record.tasks {
		events += len(e)
	}
	line("seed %d: %v, %d tasks, %d events, %d completions, %d messages at the subscriber, all ended after %.1f s",
		r.config.seed, r.stopped.Sub(r.began).Round(time.Second), len(r.record.tasks), events, len(r.record.done),
		len(r.record.seen), r.endedAfter.Seconds())
	calls := make(map[op]int)
	for _, c := range r.record.calls {
		calls[c.op]++
	}
	line("transactions: %d committed, %d rolled back, %d refused, %d without an answer", calls[opCommitted],
		calls[opRolledBack], calls[opRefused], calls[opBegun]+calls[opUnknown])
	outcomes := make(map[ledger.EventType]int)
	for _, events := range r.record.tasks {
		outcomes[events[len(events)-1].Type]++
	}
	line("tasks ended: %v", outcomes)
	line("")
	line("fault\tcount\tlongest stall")
	for _, f := range faults {
		if count, stall := r.stall(f.name); count > 0 {
			line("%s\t%d\t%.1f s", f.name, count, stall.Seconds())
		}
	}
	if gap := longestGap(r.record.done, r.began, r.stopped); gap > 0 {
		line("all\t%d\t%.1f s", len(r.record.deeds), gap.Seconds())
	}
	for _, text := range append(r.skipped, r.memory...) {
		line("%s", text)
	}
	if n := r.lostByPostgres(); n > 0 {
		line("%d acknowledged transactions were lost by PostgreSQL itself", n)
	}
	line("")
	r.printViolations(line)
}

func (r *report) printViolations(line func(string, ...any)) {
	count := make(map[string]int)
	for _, v := range r.violations {
		if count[v.rule]++; count[v.rule] <= shown {
			line("VIOLATION %s", v)
		}
	}
	for _, rule := range rules {
		if n := count[rule.name]; n > shown {
			line("VIOLATION %s: and %d more", rule.name, n-shown)
		}
	}
	if len(r.violations) == 0 {
		line("every promise held")
		return
	}
	line("the last acts:")
	for _, d := range r.record.deeds[max(0, len(r.record.deeds)-shown):] {
		line("%s", d)
	}
	line("again: go run ./internal/torture -seed %d -duration %v -faults %q", r.config.seed, r.config.duration,
		r.config.faults)
}

// recovery is how long after a cure a stall still counts as the fault's.
const recovery = 5 * time.Second

// stall returns how often a fault was done, and the longest time without a completion that overlaps it.
func (r *report) stall(name string) (count int, longest time.Duration) {
	for _, d := range r.record.deeds {
		if d.fault.name == name {
			count++
			longest = max(longest, longestGap(r.record.done, d.began, earlier(d.cured.Add(recovery), r.stopped)))
		}
	}
	return count, longest
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// longestGap returns the longest time between two consecutive moments that overlaps the time from from to until.
func longestGap(moments []time.Time, from, until time.Time) (longest time.Duration) {
	all := slices.SortedFunc(slices.Values(moments), time.Time.Compare)
	i, _ := slices.BinarySearchFunc(all, from, time.Time.Compare)
	before := from
	if i > 0 {
		before = all[i-1]
	}
	for ; i < len(all) && before.Before(until); i++ {
		longest, before = max(longest, all[i].Sub(before)), all[i]
	}
	return max(longest, until.Sub(before))
}

func (r *report) lostByPostgres() (count int) {
	for k, c := range r.record.calls {
		if c.op == opCommitted && r.record.tasks[k] == nil && r.record.isLostByPostgres(c) {
			count++
		}
	}
	return count
}
