package main

import (
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
)

const (
	redrawEvery   = 100 * time.Millisecond
	progressEvery = 2 * time.Second // between lines, without a terminal
)

// progress shows people the progress of a long operation, with its rate and the time left: as a bar on a terminal, else
// as a line at intervals.
func (a *app) progress(done string, total int64) (show func(at int64), stop func()) {
	if !a.onTerminal() || a.config.output != formatTable {
		began := time.Now()
		last, first := began, int64(-1)
		return func(at int64) {
			if first < 0 {
				first = at // of an operation that continues
			}
			if time.Since(last) > progressEvery {
				last = time.Now()
				fmt.Fprintf(a.stderr, "%s %s of %s%s\n", done, count(at), count(total),
					pace(at-first, total-at, time.Since(began)))
			}
		}, func() {}
	}
	bar := &progress.Tracker{Message: done, Total: total}
	w := progress.NewWriter()
	w.SetOutputWriter(a.stderr)
	w.SetUpdateFrequency(redrawEvery)
	w.SetTrackerLength(40)
	w.Style().Visibility.ETA = true
	w.Style().Visibility.Speed = true
	w.AppendTracker(bar)
	go w.Render()
	return func(at int64) { bar.SetValue(at) }, func() {
		w.Stop()
		for w.IsRenderInProgress() {
			time.Sleep(time.Millisecond)
		}
	}
}

// pace returns the rate of what is done, and how long the rest takes.
func pace(done, left int64, took time.Duration) string {
	if done <= 0 || left < 0 || took <= 0 {
		return ""
	}
	rate := float64(done) / took.Seconds()
	rest := time.Duration(float64(left) / rate * float64(time.Second))
	return fmt.Sprintf(", %s/s, %s left", count(int64(rate)), age(rest))
}
