package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// change is the start or the end of a task's attempt.
type change struct {
	at time.Time
	by int // 1: start, -1: end
}

// permitLasts is how long an attempt surely keeps its permit after its handler began, if its start is not recorded: the
// permit expires 10 s after it was taken, and a worker that has waited too long since then takes a new permit.
const permitLasts = 3 * time.Second

// unrecorded returns the changes of an attempt before its first event e, which ends it or records its start late. The
// worker's clock is the database's: they share a machine.
func unrecorded(e ledger.Event) []change {
	var data struct {
		StartedAt  time.Time `json:"started_at"`
		DurationMS float64   `json:"duration_ms"`
	}
	if json.Unmarshal(e.Data, &data) != nil { // a start without data
		return nil
	}
	began := data.StartedAt
	if e.Type.State() == ledger.StateRunning {
		began = e.RecordedAt.Add(-time.Duration(data.DurationMS * float64(time.Millisecond)))
	}
	if began.IsZero() || !began.Before(e.RecordedAt) {
		return nil
	}
	end := e.RecordedAt
	if last := began.Add(permitLasts); last.Before(end) {
		end = last
	}
	return []change{{began, 1}, {end, -1}}
}

// exceeded finds the moments at which more tasks of a limit ran than it allows. An attempt has ended before its end is
// committed, and the next one takes its permit afterwards.
func exceeded(r *record) (all []string) {
	if r.isClockSet() {
		return nil
	}
	for _, l := range r.limits {
		var changes []change
		for k, events := range r.tasks {
			if l.Kinds[k.Kind] == 0 || l.MaxRunning == nil {
				continue
			}
			runs := false
			for _, e := range events {
				is := e.Type.State() == ledger.StateRunning
				if !runs {
					changes = append(changes, unrecorded(e)...)
				}
				switch {
				case is && !runs:
					changes = append(changes, change{e.RecordedAt, 1})
				case !is && runs:
					changes = append(changes, change{e.RecordedAt, -1})
				}
				runs = is
			}
		}
		slices.SortFunc(changes, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.by, b.by)) })
		running, most := 0, 0
		var at time.Time
		for _, c := range changes {
			if running += c.by; running > most {
				most, at = running, c.at
			}
		}
		if l.MaxRunning != nil && most > *l.MaxRunning {
			all = append(all, fmt.Sprintf("%d tasks of limit %s ran at %s, at most %d may", most, l.Name,
				at.Format("15:04:05.000"), *l.MaxRunning))
		}
	}
	return all
}

// tooFast finds windows in which more tasks have started than a rate allows. It counts exactly: a token is taken at the
// time of the event, however late its statement takes it.
func tooFast(r *record) (all []string) {
	if r.isClockSet() {
		return nil
	}
	for _, l := range r.limits {
		if l.Rate == nil {
			continue
		}
		var starts []time.Time
		for k, events := range r.tasks {
			for _, e := range events {
				if l.Kinds[k.Kind] > 0 && e.Type == ledger.EventStarted {
					starts = append(starts, e.RecordedAt)
				}
			}
		}
		slices.SortFunc(starts, time.Time.Compare)
		length := l.Rate.Period * time.Duration(l.Rate.Burst) / time.Duration(l.Rate.Starts)
		for i := l.Rate.Burst; i < len(starts); i++ {
			if took := starts[i].Sub(starts[i-l.Rate.Burst]); took < length {
				all = append(all, fmt.Sprintf("%d tasks of limit %s have started within %s, at most %d may in %s",
					l.Rate.Burst+1, l.Name, took, l.Rate.Burst, length))
				break
			}
		}
	}
	return all
}

// isClockSet reports whether a fault has set the database's clock, by which the ledger's times are not in order.
func (r *record) isClockSet() bool {
	return slices.ContainsFunc(r.deeds, func(d injection) bool { return d.fault.name == "clock" })
}
