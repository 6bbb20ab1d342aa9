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
	bar, stop := a.bar(done, total)
	return func(at int64) { bar.SetValue(at) }, stop
}

// busy shows people that an operation of unknown length runs, and for how long: as a moving bar on a terminal, else as
// a line at intervals.
func (a *app) busy(doing string) (stop func()) {
	if a.onTerminal() && a.config.output == formatTable {
		_, stop := a.bar(doing, 0)
		return stop
	}
	began := time.Now()
	ended, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Fprintf(a.stderr, "%s: %s so far\n", doing, age(time.Since(began)))
			case <-ended:
				return
			}
		}
	}()
	return func() {
		close(ended)
		<-stopped
	}
}

// counted shows the progress of an operation of unknown length: next to a moving bar on a terminal, otherwise as a line
// at intervals.
func (a *app) counted(doing string) (show func(done string), stop func()) {
	if a.onTerminal() && a.config.output == formatTable {
		bar, stop := a.bar(doing, 0)
		return func(done string) { bar.UpdateMessage(doing + ": " + done) }, stop
	}
	last := time.Now()
	return func(done string) {
		if time.Since(last) > progressEvery {
			last = time.Now()
			fmt.Fprintf(a.stderr, "%s: %s\n", doing, done)
		}
	}, func() {}
}

// bar shows a bar on the terminal. A total of 0 is unknown: the bar moves, and shows the time so far.
func (a *app) bar(message string, total int64) (bar *progress.Tracker, stop func()) {
	bar = &progress.Tracker{Message: message, Total: total}
	w := progress.NewWriter()
	w.SetOutputWriter(a.stderr)
	w.SetUpdateFrequency(redrawEvery)
	w.SetTrackerLength(40)
	w.Style().Visibility.ETA = total > 0
	w.Style().Visibility.Speed = total > 0
	w.Style().Visibility.Percentage = total > 0
	w.Style().Visibility.Value = total > 0
	w.AppendTracker(bar)
	go w.Render()
	return bar, func() {
		w.Stop()
		for w.IsRenderInProgress() {
			time.Sleep(time.Millisecond)
		}
	}
}

// pace returns the rate so far, and how long the rest takes.
func pace(done, left int64, took time.Duration) string {
	if done <= 0 || left < 0 || took <= 0 {
		return ""
	}
	rate := float64(done) / took.Seconds()
	rest := time.Duration(float64(left) / rate * float64(time.Second))
	return fmt.Sprintf(", %s/s, %s left", count(int64(rate)), age(rest))
}
