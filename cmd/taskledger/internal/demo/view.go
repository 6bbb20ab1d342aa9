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

// figures are the numbers in the view.
type figures struct{ orders, coupons int64 }

// show updates the view until the returned function is called. That function may be called more than
// once.
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
	_ = d.db.QueryRow(ctx, progressSQL).Scan(&f.orders, &f.coupons) // an error shows zeros until the next update
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
	current, past := d.troubles.status()
	if current == "" {
		current = "none"
	}
	t := table.NewWriter()
	t.SetStyle(table.StyleRounded)
	t.AppendHeader(table.Row{"orders", "rolled back", "coupons", "taken over", "fenced", "killed", "wiped",
		fmt.Sprintf("trouble (%d over)", past)})
	t.AppendRow(table.Row{f.orders, d.shop.rolledBack.Load(), f.coupons, d.counters.takenOver.Load(),
		d.counters.fenced.Load(), d.children.kills.Load(), d.wipes.Load(), current})
	return t.Render()
}

// showLines writes a line every [lineEvery], for a view that is not a terminal.
func (d *demo) showLines(ctx context.Context) {
	begin := time.Now()
	for {
		if loop.Sleep(ctx, lineEvery) != nil {
			return
		}
		f := d.figures(ctx)
		current, _ := d.troubles.status()
		if current != "" {
			current = "; trouble: " + current
		}
		_, _ = fmt.Fprintf(d.config.View, "%3.0fs  %d of %d orders placed, %d coupons sent%s\n",
			time.Since(begin).Seconds(), f.orders, d.shop.orders, f.coupons, current)
	}
}
