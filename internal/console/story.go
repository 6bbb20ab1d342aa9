package console

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/strictjson"
	"github.com/taskledger/taskledger/ledger"
)

// attempt is one attempt of a task, with the wait before it and the back-off after it.
type attempt struct {
	Number                      ledger.Attempt
	Available, Began, Ended, At time.Time // At is the time of its last event
	Until                       time.Time // the end of the back-off; zero: none
	Outcome                     string    // a state or the type of an event
	Worker, Error, Stack        string
	IsSame                      bool // as the Error of the attempt before
	Wait, Run, Back             barPlace
}

// barPlace is a part of a bar, in percent of the time of the task.
type barPlace struct{ X, Width float64 }

// Waited returns how long the task was available before the attempt, "" if that is unknown.
func (a *attempt) Waited() string {
	if a.Available.IsZero() || a.Began.Before(a.Available) {
		return ""
	}
	return age(a.Began.Sub(a.Available))
}

// Ran returns how long the attempt ran.
func (a *attempt) Ran() string { return age(a.Ended.Sub(a.Began)) }

// BackedOff returns the length of the back-off, "" without one.
func (a *attempt) BackedOff() string {
	if a.Until.IsZero() {
		return ""
	}
	return age(a.Until.Sub(a.Ended))
}

// newAttempts returns the attempts in events, which are in order. now ends what goes on.
func newAttempts(events []ledger.Event, now time.Time) []*attempt {
	var all []*attempt
	var available time.Time
	var open *attempt // has begun and not ended
	begin := func(e ledger.Event) *attempt {
		began, isKnown := e.BeganAt()
		if !isKnown {
			began = e.RecordedAt
		}
		a := &attempt{Number: e.Attempt, Available: available, Began: began, Ended: now, Outcome: "running",
			Worker: e.Actor}
		all = append(all, a)
		return a
	}
	for _, e := range events {
		switch e.Type {
		case ledger.EventEnqueued, ledger.EventReleased:
			available, open = e.RecordedAt, nil
			if n := len(all); n > 0 && !all[n-1].Until.IsZero() && e.Type == ledger.EventReleased {
				all[n-1].Until = e.RecordedAt
			}
		case ledger.EventStarted, ledger.EventProgressed:
			if open == nil || open.Number != e.Attempt {
				open = begin(e)
			}
			open.At = e.RecordedAt
		case ledger.EventSucceeded, ledger.EventFailed, ledger.EventInterrupted, ledger.EventSnoozed:
			if open == nil || open.Number != e.Attempt {
				open = begin(e)
			}
			open.Ended, open.At, open.Outcome, open.Worker = e.RecordedAt, e.RecordedAt, string(e.Type), e.Actor
			if e.Type == ledger.EventFailed {
				open.Error, open.Stack = lines(errorOf(e)), lines(strictjson.Text(e.Data, "error", "stack"))
				if n := len(all); n > 1 && all[n-2].Error == open.Error {
					open.IsSame = true
				}
			}
			open.Until = e.DueAt()
			open, available = nil, time.Time{}
		default: // a person or a deadline ended the run
			if open != nil {
				open.Ended, open.At, open.Outcome = e.RecordedAt, e.RecordedAt, string(e.Type)
			} else if n := len(all); n > 0 {
				all[n-1].Until = time.Time{}
			}
			open, available = nil, time.Time{}
		}
	}
	if len(all) > 0 {
		place(all, events[0].RecordedAt, later(events[len(events)-1].RecordedAt, all[len(all)-1].Ended))
	}
	return all
}

// place sets the places of attempts in the time of the task. A part that is too short to be seen gets half a percent.
func place(all []*attempt, from, to time.Time) {
	if until := all[len(all)-1].Until; until.After(to) {
		to = until
	}
	whole := max(to.Sub(from).Seconds(), 1e-6)
	part := func(a, b time.Time) barPlace {
		if a.IsZero() || b.Before(a) {
			return barPlace{}
		}
		x := min(max(100*a.Sub(from).Seconds()/whole, 0), 99.5)
		width := min(max(100*b.Sub(a).Seconds()/whole, 0.5), 100-x)
		return barPlace{math.Round(x*100) / 100, math.Round(width*100) / 100}
	}
	for _, a := range all {
		a.Wait, a.Run, a.Back = part(a.Available, a.Began), part(a.Began, a.Ended), part(a.Ended, a.Until)
		if a.Until.IsZero() {
			a.Back = barPlace{}
		}
	}
}

// errorOf returns the error of an event with its type.
func errorOf(e ledger.Event) string {
	text := e.ErrorText()
	if name := strictjson.Text(e.Data, "error", "type"); name != "" && name != "*errors.errorString" {
		text = name + ": " + text
	}
	return text
}

// maxStory is the number of characters of an error in a story.
const maxStory = 240

// tellStory returns the state of a task and how it came to it, in a sentence. Its last run was enqueued at enqueuedAt.
func tellStory(t ledger.Task, attempts []*attempt, enqueuedAt, now time.Time) string {
	lived := age(t.UpdatedAt.Sub(enqueuedAt))
	n := fmt.Sprintf("%d attempts", t.Attempt)
	if t.Attempt == 1 {
		n = "1 attempt"
	}
	because := func(text string) string {
		if text == "" {
			return "."
		}
		return ": " + printable.Short(text, maxStory)
	}
	var last *attempt
	if len(attempts) > 0 {
		last = attempts[len(attempts)-1]
	}
	switch t.State {
	case ledger.StateSucceeded:
		text := fmt.Sprintf("Succeeded after %s, %s after it was enqueued", n, lived)
		if last != nil && last.Worker != "" { // else it is erased
			text += fmt.Sprintf("; it ran for %s on %s", last.Ran(), printable.Text(last.Worker))
		}
		return text + "."
	case ledger.StateDead:
		return fmt.Sprintf("Dead after %s, %s after it was enqueued", n, lived) + because(t.Error)
	case ledger.StateCancelled, ledger.StateExpired, ledger.StateDiscarded:
		text := strings.ToUpper(string(t.State[:1])) + string(t.State[1:]) + " " + age(now.Sub(t.UpdatedAt)) + " ago"
		if t.Actor != "" {
			text += " by " + printable.Text(t.Actor)
		}
		return text + because(t.Reason)
	case ledger.StateRetrying:
		text := fmt.Sprintf("Attempt %d failed %s ago%s", t.Attempt, age(now.Sub(t.UpdatedAt)), because(t.Error))
		return strings.TrimSuffix(text, ".") + dueIn(t, now, ". It is tried again")
	case ledger.StateScheduled:
		if len(t.After) > 0 && t.DueAt.IsZero() {
			return fmt.Sprintf("Scheduled: it begins when %s succeeded.", haveTasks(len(t.After)))
		}
		return "Scheduled" + dueIn(t, now, ": it is due")
	case ledger.StateRunning:
		if last != nil {
			return fmt.Sprintf("Attempt %d runs on %s for %s.", t.Attempt, printable.Text(last.Worker),
				age(now.Sub(last.Began)))
		}
		return fmt.Sprintf("Attempt %d is running.", t.Attempt)
	case ledger.StateInLine:
		return fmt.Sprintf("Waits for its turn in line %s for %s.", printable.Text(t.OrderKey),
			age(now.Sub(t.UpdatedAt)))
	case ledger.StateAvailable:
		return fmt.Sprintf("Waits for a worker for %s.", age(now.Sub(t.UpdatedAt)))
	default:
		return ""
	}
}

func haveTasks(n int) string {
	if n == 1 {
		return "1 task has"
	}
	return tasks(n) + " have"
}

func dueIn(t ledger.Task, now time.Time, text string) string {
	switch d := t.DueAt.Sub(now); {
	case t.DueAt.IsZero():
		return "."
	case d <= 0:
		return text + " at once: it has been due for " + age(-d) + "."
	default:
		return text + " in " + age(d) + "."
	}
}
