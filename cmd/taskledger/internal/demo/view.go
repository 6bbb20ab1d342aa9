package demo

import (
	"context"
	_ "embed"
	"fmt"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/taskledger/taskledger/internal/loop"
)

//go:embed sql/progress.sql
var progressSQL string

const (
	redrawEvery = 200 * time.Millisecond
	lineEvery   = 5 * time.Second
)

// figures are what the view shows.
type figures struct{ orders, coupons int64 }

// show keeps the view up to date until the function it returns is called, which may be called
// more than once.
func (d *demo) show(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		if d.config.Terminal {
			d.showTerminal(ctx)
		} else {
			d.showLines(ctx)
		}
	})
	return func() { cancel(); done.Wait() }
}

func (d *demo) figures(ctx context.Context) (f figures) {
	_ = d.db.QueryRow(ctx, progressSQL).Scan(&f.orders, &f.coupons) // shown again soon
	return f
}

// showTerminal draws a progress bar with a table above it.
func (d *demo) showTerminal(ctx context.Context) {
	bar := &progress.Tracker{Message: "coupons", Total: int64(d.shop.orders) - d.shop.refused(poisonRefusals)}
	w := progress.NewWriter()
	w.SetOutputWriter(d.config.View)
	w.SetUpdateFrequency(redrawEvery)
	w.SetTrackerLength(40)
	w.Style().Visibility.ETA = true
	w.AppendTracker(bar)
	go w.Render()
	defer func() {
		for w.IsRenderInProgress() {
			time.Sleep(time.Millisecond)
		}
	}()
	defer w.Stop()
	for {
		f := d.figures(context.WithoutCancel(ctx))
		bar.SetValue(f.coupons)
		w.SetPinnedMessages(d.table(f))
		if loop.Sleep(ctx, redrawEvery) != nil {
			bar.SetValue(d.figures(context.WithoutCancel(ctx)).coupons)
			return
		}
	}
}

func (d *demo) table(f figures) string {
	d.calendar.mu.Lock()
	now, past := d.calendar.now, len(d.calendar.log)
	d.calendar.mu.Unlock()
	if now == "" {
		now = "none: calm"
	}
	t := table.NewWriter()
	t.SetStyle(table.StyleRounded)
	t.AppendHeader(table.Row{"orders", "rolled back", "coupons", "redelivered", "fenced", "killed", "wiped", fmt.Sprintf("trouble (%d settled)", past)})
	t.AppendRow(table.Row{f.orders, d.shop.rolledBack.Load(), f.coupons, d.tally.redelivered.Load(), d.tally.fenced.Load(),
		d.children.kills.Load(), d.wipes.Load(), now})
	return t.Render()
}

// showLines writes a line now and then, for what is not a terminal.
func (d *demo) showLines(ctx context.Context) {
	begin := time.Now()
	for {
		if loop.Sleep(ctx, lineEvery) != nil {
			return
		}
		f := d.figures(ctx)
		d.calendar.mu.Lock()
		now := d.calendar.now
		d.calendar.mu.Unlock()
		if now != "" {
			now = "; trouble: " + now
		}
		_, _ = fmt.Fprintf(d.config.View, "%3.0fs  %d of %d orders placed, %d coupons sent%s\n",
			time.Since(begin).Seconds(), f.orders, d.shop.orders, f.coupons, now)
	}
}
