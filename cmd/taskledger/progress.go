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

// progress shows people the progress of a long operation: as a bar on a terminal, else as a line at
// intervals.
func (a *app) progress(done string, total int64) (show func(at int64), stop func()) {
	if !a.onTerminal() || a.config.output != formatTable {
		last := time.Now()
		return func(at int64) {
			if time.Since(last) > progressEvery {
				last = time.Now()
				fmt.Fprintf(a.stderr, "%s %s of %s\n", done, count(at), count(total))
			}
		}, func() {}
	}
	bar := &progress.Tracker{Message: done, Total: total}
	w := progress.NewWriter()
	w.SetOutputWriter(a.stderr)
	w.SetUpdateFrequency(redrawEvery)
	w.SetTrackerLength(40)
	w.Style().Visibility.ETA = true
	w.AppendTracker(bar)
	go w.Render()
	return func(at int64) { bar.SetValue(at) }, func() {
		w.Stop()
		for w.IsRenderInProgress() {
			time.Sleep(time.Millisecond)
		}
	}
}
