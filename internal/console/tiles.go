package console

import (
	"cmp"
	"fmt"
	"html/template"
	"time"

	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/projector"
)

// tile is a number with its trend.
type tile struct {
	Title, Value, Note string
	Link               template.URL // below the console's path; "": none
	Spark              spark
}

// tileHours and tileQuarters are the steps that tiles need in addition to the minutes of the last hour: the last day,
// and the hour before the last one.
var (
	tileHours    = span{step: time.Hour, steps: 25}
	tileQuarters = span{step: 15 * time.Minute, steps: 9}
)

// newTiles returns the tiles for the last hour and day.
func newTiles(at time.Time, total *kindNow, minutes, hours, quarters []projector.KindStats) []tile {
	minute := at.UTC().Truncate(time.Minute)
	var recent, before, whole projector.KindStats
	var waits [sparkSteps]projector.Histogram
	var enqueued, done, failed [sparkSteps]float64
	for _, s := range minutes {
		i := min(max(int(s.Minute.Sub(minute.Add(time.Minute-sparkSteps*sparkStep))/sparkStep), 0), sparkSteps-1)
		waits[i] = waits[i].Merge(s.Waiting)
		enqueued[i] += float64(s.Enqueued)
		done[i] += float64(s.Succeeded)
		failed[i] += float64(s.Failed)
		if s.Minute.Before(minute) && !s.Minute.Before(minute.Add(-5*time.Minute)) {
			recent.Add(s)
		}
	}
	deaths := make([]float64, 24)
	hour := minute.Truncate(15 * time.Minute)
	for _, s := range quarters {
		if s.Minute.Before(hour.Add(-45*time.Minute)) && !s.Minute.Before(hour.Add(-105*time.Minute)) {
			before.Add(s)
		}
	}
	for _, s := range hours {
		if i := 23 - int(at.Sub(s.Minute)/time.Hour); i >= 0 && i < 24 {
			deaths[i] += float64(s.Dead)
			whole.Add(s)
		}
	}
	rate := float64(recent.Succeeded) / 300
	throughput := tile{Title: "Throughput", Value: perSecond(rate), Link: "tasks?state=succeeded",
		Spark: newSpark("succeeded in the last hour", done[:], nil), Note: "last 5 minutes"}
	if before.Succeeded > 0 {
		throughput.Note = trend(float64(total.Succeeded), float64(before.Succeeded))
	}
	errors := tile{Title: "Error rate", Value: cmp.Or(percent(total.Failed, total.Succeeded+total.Failed), "0 %"),
		Link: "failures", Spark: newSpark("failed attempts in the last hour", failed[:], failed[:]),
		Note: fmt.Sprintf("%s of %s attempts in 1 h", printable.Count(total.Failed),
			printable.Count(total.Succeeded+total.Failed))}
	if n := before.Succeeded + before.Failed; n > 0 {
		errors.Note += ", before " + cmp.Or(percent(before.Failed, n), "0 %")
	}
	var p99 [sparkSteps]float64
	for i, w := range waits {
		if w.Count() > 0 {
			p99[i] = w.Quantile(0.99).Seconds()
		}
	}
	var halves [2]projector.Histogram
	for i, w := range waits {
		halves[i*2/sparkSteps] = halves[i*2/sparkSteps].Merge(w)
	}
	change := ", last hour"
	if halves[0].Count() > 0 && halves[1].Count() > 0 {
		change = "; p99 was " + quantile(halves[0], 0.99) + " half an hour ago"
	}
	waiting := tile{Title: "Waiting, p99", Value: quantile(total.Waiting, 0.99), Spark: newSpark("p99 of the last hour",
		p99[:], nil), Note: "p50 " + quantile(total.Waiting, 0.5) + change}
	if total.Tasks.Available() > 0 { // the quantiles are of tasks that wait no longer
		waiting.Note = "oldest now < 30 s" // see projector.ReadOldest
		if !total.OldestAt.IsZero() {
			waiting.Note = "oldest now " + total.Oldest(at) + ", " + printable.Text(string(total.Kind))
		}
		waiting.Note += "; p50 " + quantile(total.Waiting, 0.5)
	}
	backlog := tile{Title: "Backlog", Value: printable.Count(total.Tasks.Available()), Link: "tasks?state=available",
		Spark: newSpark("enqueued in the last hour", enqueued[:], nil), Note: "nothing waits"}
	if total.Tasks.Available() > 0 {
		net := float64(recent.Succeeded+recent.Dead+recent.Cancelled-recent.Enqueued) / 300
		switch {
		case net > 0:
			backlog.Note = "empty in " + age(time.Duration(float64(total.Tasks.Available())/net*float64(time.Second)))
		case net < 0:
			backlog.Note = "grows by " + perSecond(-net)
		default:
			backlog.Note = "does not change"
		}
	}
	dead := tile{Title: "Dead", Value: printable.Count(total.Tasks.Dead()), Link: "failures",
		Spark: newSpark("died in 24 h", deaths, deaths), Note: fmt.Sprintf("+%s in 24 h", printable.Count(whole.Dead))}
	return []tile{throughput, errors, waiting, backlog, dead}
}

// perSecond returns a rate in a unit that fits.
func perSecond(rate float64) string {
	switch {
	case rate == 0:
		return "0/s"
	case rate < 1:
		return fmt.Sprintf("%.1f/min", rate*60)
	case rate < 100:
		return fmt.Sprintf("%.1f/s", rate)
	}
	return printable.Count(int64(rate)) + "/s"
}

// trend returns the window of the rate, and the change of the hour's number from that of the hour before.
func trend(now, before float64) string {
	switch change := 100 * (now - before) / before; {
	case change >= 300:
		return fmt.Sprintf("last 5 minutes; %s in the hour before", printable.Count(int64(before)))
	case change >= 1:
		return fmt.Sprintf("last 5 minutes; last hour ↑ %.0f %%", change)
	case change <= -1:
		return fmt.Sprintf("last 5 minutes; last hour ↓ %.0f %%", -change)
	}
	return "last 5 minutes; last hour as before"
}
