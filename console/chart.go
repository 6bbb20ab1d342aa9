package console

import (
	"fmt"
	"time"

	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/projector"
	"github.com/taskledger/taskledger/workers"
)

// The size of a chart in units of its SVG.
const (
	chartWidth  = 600
	chartHeight = 120
)

// chart is a bar chart of attempts: succeeded at the bottom, failed on top.
type chart struct {
	Title, Summary string
	Width, Height  int
	Bars           []bar
	Marks          []mark // versions of programs that began
	Max            int64  // at the top
	From, Middle   time.Time
}

// bar is a step of time.
type bar struct {
	X, Width         float64
	GoodY, GoodH     float64
	BadY, BadH       float64
	Label            string
	IsEmpty, HasFail bool
}

// mark is the start of a version of a program with workers.
type mark struct {
	X       float64
	Version string
	At      time.Time
}

// addMarks adds marks for versions that began within the chart's time, which ends at to.
func (c *chart) addMarks(starts []workers.VersionStart, to time.Time) {
	for _, s := range starts {
		if s.At.Before(c.From) || s.At.After(to) {
			continue
		}
		c.Marks = append(c.Marks, mark{
			X: chartWidth * float64(s.At.Sub(c.From)) / float64(to.Sub(c.From)), Version: s.Version, At: s.At,
		})
	}
}

// newChart returns the chart of n steps from a time on.
func newChart(title string, all []projector.KindStats, from time.Time, step time.Duration, n int) chart {
	c := chart{Title: title, Width: chartWidth, Height: chartHeight, From: from,
		Middle: from.Add(time.Duration(n) * step / 2)}
	good, bad := make([]int64, n), make([]int64, n)
	sumGood, sumBad := int64(0), int64(0)
	for _, s := range all {
		if i := int(s.Minute.Sub(from) / step); i >= 0 && i < n && !s.Minute.Before(from) {
			good[i] += s.Succeeded
			bad[i] += s.Failed
			sumGood += s.Succeeded
			sumBad += s.Failed
		}
	}
	for i := range n {
		c.Max = max(c.Max, good[i]+bad[i])
	}
	scale := 0.0
	if c.Max > 0 {
		scale = float64(chartHeight) / float64(c.Max)
	}
	width := float64(chartWidth) / float64(n)
	for i := range n {
		b := bar{X: float64(i) * width, Width: width * 0.8,
			GoodH: float64(good[i]) * scale, BadH: float64(bad[i]) * scale}
		b.GoodY = chartHeight - b.GoodH
		b.BadY = b.GoodY - b.BadH
		b.IsEmpty, b.HasFail = good[i]+bad[i] == 0, bad[i] > 0
		b.Label = fmt.Sprintf("%s: %s succeeded, %s failed", from.Add(time.Duration(i)*step).Format("15:04 MST"),
			printable.Count(good[i]), printable.Count(bad[i]))
		c.Bars = append(c.Bars, b)
	}
	c.Summary = fmt.Sprintf("%s: %s succeeded, %s failed; at most %s in a step", title, printable.Count(sumGood),
		printable.Count(sumBad), printable.Count(c.Max))
	return c
}
