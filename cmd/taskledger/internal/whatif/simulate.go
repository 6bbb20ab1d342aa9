package whatif

import "time"

// fate is how a task ended in a simulation.
type fate struct {
	outcome  Outcome
	at       time.Time // of the outcome; zero if it is unknown
	attempts int
}

// maxSimulated bounds the attempts of one task in a simulation.
const maxSimulated = 100_000

// simulate returns the fate of a task with failures or without attempts, by the assumptions of the package comment.
func (p Policy) simulate(t taskHistory) fate {
	var startBy, finishBy time.Time
	if p.StartBy > 0 {
		startBy = t.enqueued.Add(p.StartBy)
	}
	if p.FinishBy > 0 {
		finishBy = t.enqueued.Add(p.FinishBy)
	}
	begins := t.firstBegan
	if begins.IsZero() && t.outcome == Expired && (p.StartBy > 0 || p.FinishBy > 0) { // it had waited in vain
		by := earliest(startBy, finishBy)
		if by.After(t.endedAt) {
			return fate{outcome: Unknown}
		}
		return fate{outcome: Expired, at: by}
	}
	if begins.IsZero() {
		return fate{outcome: t.outcome, at: t.endedAt}
	}
	if !startBy.IsZero() && begins.After(startBy) {
		return fate{outcome: Expired, at: startBy}
	}
	last := begins // the end of the last failure that is known
	if n := len(t.failures); n > 0 {
		last = t.failures[n-1].ended
	}
	for f := (fate{}); ; {
		if !finishBy.IsZero() && begins.After(finishBy) {
			return fate{outcome: Expired, at: finishBy, attempts: f.attempts}
		}
		hasSucceeded := !t.succeeded.ended.IsZero()
		if !hasSucceeded && begins.After(last) || f.attempts == maxSimulated {
			return fate{outcome: Unknown, attempts: f.attempts}
		}
		f.attempts++
		isSuccess := hasSucceeded && !begins.Before(t.succeeded.began)
		a := t.succeeded
		if !isSuccess {
			a = t.failureAt(f.attempts)
		}
		ends := begins.Add(a.ended.Sub(a.began))
		switch {
		case !finishBy.IsZero() && ends.After(finishBy):
			return fate{outcome: Expired, at: finishBy, attempts: f.attempts}
		case isSuccess:
			return fate{outcome: Succeeded, at: ends, attempts: f.attempts}
		case p.Retry != nil && f.attempts >= p.Retry.Limit():
			return fate{outcome: Dead, at: ends, attempts: f.attempts}
		case p.Retry != nil:
			begins = ends.Add(p.Retry.Delay(f.attempts, meanRandom))
		case f.attempts < len(t.failures): // as it was
			begins = t.failures[f.attempts].began
		case hasSucceeded && t.outcome == Succeeded:
			begins = t.succeeded.began
		case t.outcome == Rescued: // by a person
			return fate{outcome: Dead, at: ends, attempts: f.attempts}
		default:
			return fate{outcome: t.outcome, at: t.endedAt, attempts: f.attempts}
		}
	}
}

// meanRandom gives a random delay its mean.
const meanRandom = 0.5

// failureAt returns the n-th recorded failure, or the last one.
func (t taskHistory) failureAt(n int) attempt {
	if len(t.failures) == 0 {
		return attempt{}
	}
	return t.failures[min(n, len(t.failures))-1]
}

// earliest returns the earlier of two times. It ignores the zero time.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
