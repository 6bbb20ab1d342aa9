package console

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/printable"
)

// The size of a chart in units of its SVG.
const (
	chartWidth  = 600
	chartHeight = 150
)

// chart is a chart of stacked bars: of a step of time each, from the bottom up.
type chart struct {
	Title, Summary string
	Ranges, By     []choice
	Width, Height  int
	Bars           []bar
	Marks          []mark   // versions of programs that began
	Scale          []string // texts of the y axis, from the top
	From, Middle   time.Time
	Ticks          []string
	Legend         []series
	IsPartial      bool // older steps are still to be read
}

// choice is a link that changes a chart.
type choice struct {
	Query, Text string
	IsCurrent   bool
}

// series is the numbers of one colour.
type series struct {
	Name, Class string
	Values      []int64
}

// bar is a step of time.
type bar struct {
	X, Width, Gap float64
	Say           string
	Parts         []barPart
}

// Inner returns the width of the bar without the gap to the next one.
func (b bar) Inner() float64 { return math.Round((b.Width-b.Gap)*100) / 100 }

// barPart is a number in a bar.
type barPart struct {
	Class string
	Y, H  float64
}

// mark is the start of a version of a program with workers.
type mark struct {
	X       float64
	Version string
	At      time.Time
}

// addMarks adds marks for versions that began within the chart's time, which ends at to.
func (c *chart) addMarks(starts []versionStart, to time.Time) {
	for _, s := range starts {
		if s.At.Before(c.From) || s.At.After(to) {
			continue
		}
		c.Marks = append(c.Marks, mark{
			X: chartWidth * float64(s.At.Sub(c.From)) / float64(to.Sub(c.From)), Version: s.Version, At: s.At,
		})
	}
}

// span is a range of time that a chart can show.
type span struct {
	name, title string
	step        time.Duration
	steps       int
	layout      string // of the times in texts
}

// spans are the ranges of charts. The length of a step divides a day.
var spans = []span{
	{"1h", "1 h", time.Minute, 60, "15:04 MST"},
	{"24h", "24 h", 15 * time.Minute, 96, "15:04 MST"},
	{"7d", "7 d", 2 * time.Hour, 84, "Mon 2 Jan 15:04 MST"},
	{"30d", "30 d", 8 * time.Hour, 90, "Mon 2 Jan 15:04 MST"},
}

// findSpan returns the range of a name, the first one for another name.
func findSpan(name string) span {
	for _, s := range spans {
		if s.name == name {
			return s
		}
	}
	return spans[0]
}

// last returns the beginning of the last step of a chart that is made at a time.
func (s span) last(at time.Time) time.Time { return at.UTC().Truncate(s.step) }

// first returns the beginning of the first step.
func (s span) first(at time.Time) time.Time {
	return s.last(at).Add(-time.Duration(s.steps-1) * s.step)
}

// newChart returns the chart of series with a number for each step of a range.
func newChart(title string, s span, at time.Time, zone *time.Location, all []series) chart {
	from := s.first(at)
	c := chart{Title: title, Width: chartWidth, Height: chartHeight, From: from, Legend: all,
		Middle: from.Add(time.Duration(s.steps) * s.step / 2)}
	top, sums := int64(0), make([]int64, len(all))
	for i := range s.steps {
		sum := int64(0)
		for j, one := range all {
			sum += one.Values[i]
			sums[j] += one.Values[i]
		}
		top = max(top, sum)
	}
	top = roundUp(top)
	c.Scale = []string{compact(top), compact(top / 2), "0"}
	width := float64(chartWidth) / float64(s.steps)
	for i := range s.steps {
		b := bar{X: math.Round(float64(i)*width*100) / 100, Width: width, Gap: width * 0.1}
		var texts []string
		y := float64(chartHeight)
		for _, one := range all {
			n := one.Values[i]
			texts = append(texts, printable.Count(n)+" "+printable.Text(one.Name))
			if n == 0 {
				continue
			}
			h := float64(n) * chartHeight / float64(top)
			y -= h
			b.Parts = append(b.Parts, barPart{one.Class, math.Round(y*10) / 10, math.Round(h*10) / 10})
		}
		b.Say = from.Add(time.Duration(i)*s.step).In(zone).Format(s.layout) + ": " + strings.Join(texts, ", ")
		c.Bars = append(c.Bars, b)
	}
	var texts []string
	attempts := int64(0)
	for j, one := range all {
		texts = append(texts, fmt.Sprintf("%s %s", printable.Count(sums[j]), printable.Text(one.Name)))
		attempts += sums[j]
	}
	c.Summary = strings.Join(texts, ", ") + " in " + s.title
	if len(all) > 2 {
		c.Summary = printable.Count(attempts) + " in " + s.title
	}
	c.Ticks = []string{from.In(zone).Format(s.layout), c.Middle.In(zone).Format(s.layout), "now"}
	return c
}

// roundUp returns a number for the top of a scale: an even one of one digit and zeros, or of 1.5 and zeros, at least 2.
func roundUp(n int64) int64 {
	for unit := int64(1); unit < math.MaxInt64/100; unit *= 10 {
		for _, f := range []int64{2, 4, 6, 8, 10, 14, 20} {
			if top := f * unit; top >= n {
				return top
			}
		}
	}
	return n
}

// sparkWidth and sparkHeight are the size of a sparkline.
const (
	sparkWidth  = 84
	sparkHeight = 18
)

// spark is a sparkline: a number for each of some steps of time.
type spark struct {
	Say   string
	Parts []bar
}

// newSpark returns a sparkline of bars. The second numbers are parts of the first ones and are drawn as failures, the
// smallest as high as can be seen.
func newSpark(say string, all, bad []float64) spark {
	s, top := spark{Say: say}, 0.0
	for _, n := range all {
		top = max(top, n)
	}
	if top == 0 {
		return s
	}
	width := float64(sparkWidth) / float64(len(all))
	part := func(class string, from, n float64) barPart {
		h := math.Round(n*sparkHeight/top*10) / 10
		if class != "" {
			h = max(h, 1.5)
		}
		return barPart{class, math.Round((sparkHeight-from*sparkHeight/top-h)*10) / 10, h}
	}
	for i, n := range all {
		if n == 0 {
			continue
		}
		b := bar{X: math.Round(float64(i)*width*10) / 10, Width: math.Round(width*8) / 10}
		failed := 0.0
		if bad != nil {
			failed = bad[i]
		}
		if n > failed {
			b.Parts = append(b.Parts, part("", 0, n-failed))
		}
		if failed > 0 {
			b.Parts = append(b.Parts, part("bad", n-failed, failed))
		}
		s.Parts = append(s.Parts, b)
	}
	return s
}
