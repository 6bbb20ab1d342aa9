package whatif

import (
	"slices"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// Outcome is how a task ended, in fact or in a simulation.
type Outcome string

// The outcomes of tasks.
const (
	Succeeded Outcome = "succeeded" // without a person, in a simulation
	Rescued   Outcome = "rescued"   // in fact: it was dead or expired, was released, and then succeeded
	Dead      Outcome = "dead"
	Expired   Outcome = "expired"
	Other     Outcome = "other"   // in fact: cancelled, discarded or not finished
	Unknown   Outcome = "unknown" // in a simulation: more attempts than were recorded, see the package comment
)

// attempt is a failed attempt.
type attempt struct {
	began, ended time.Time
}

// taskHistory is the history of a task as its events show it.
type taskHistory struct {
	enqueued   time.Time
	firstBegan time.Time // the first attempt; zero: there was none
	failures   []attempt
	succeeded  attempt // zero: it never did
	outcome    Outcome
	endedAt    time.Time // of the outcome; of a rescued task when it succeeded
}

// readPast returns the history that the events of a task show, up to its first success.
func readPast(events []ledger.Event) taskHistory {
	p := taskHistory{outcome: Other, enqueued: events[0].RecordedAt}
	isDead := false
	for i, e := range events {
		switch e.Type {
		case ledger.EventStarted:
			if p.firstBegan.IsZero() {
				p.firstBegan, _ = e.BeganAt()
			}
		case ledger.EventFailed, ledger.EventSucceeded:
			a := attemptOf(e, events[:i])
			if p.firstBegan.IsZero() {
				p.firstBegan = a.began
			}
			if e.Type == ledger.EventFailed {
				p.failures = append(p.failures, a)
				continue
			}
			p.succeeded, p.endedAt, p.outcome = a, e.RecordedAt, Succeeded
			if isDead {
				p.outcome = Rescued
			}
			return p
		case ledger.EventBuried:
			isDead, p.outcome, p.endedAt = true, Dead, e.RecordedAt
		case ledger.EventExpired:
			isDead, p.outcome, p.endedAt = true, Expired, e.RecordedAt
		case ledger.EventCancelled, ledger.EventDiscarded:
			p.outcome, p.endedAt = Other, e.RecordedAt
		case ledger.EventReleased, ledger.EventLinedUp:
			if p.outcome != Other {
				p.outcome, p.endedAt = Other, time.Time{}
			}
		case ledger.EventEnqueued, ledger.EventScheduled, ledger.EventProgressed, ledger.EventInterrupted,
			ledger.EventSnoozed:
			// They neither begin nor end anything here.
		}
	}
	return p
}

// runOf returns the events of the run that contains a version, from the event with its args on.
func runOf(events []ledger.Event, v ledger.Version) []ledger.Event {
	begin, end := 0, len(events)
	for i := 1; i < len(events) && end == len(events); i++ {
		switch {
		case !events[i].HasArgs():
		case events[i].Version <= v:
			begin = i
		default:
			end = i
		}
	}
	return events[begin:end]
}

// attemptOf returns the attempt that an event ended, after the events before it.
func attemptOf(e ledger.Event, before []ledger.Event) attempt {
	a := attempt{began: e.RecordedAt, ended: e.RecordedAt}
	if began, ok := e.BeganAt(); ok {
		a.began = began
		return a
	}
	for _, b := range slices.Backward(before) {
		if b.Attempt != e.Attempt {
			break
		}
		if b.Type == ledger.EventStarted {
			a.began, _ = b.BeganAt()
		}
	}
	return a
}
