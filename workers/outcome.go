package workers

import "sync/atomic"

// Outcome is how an attempt ended.
type Outcome string

// The outcomes of an attempt.
const (
	OutcomeSucceeded   Outcome = "succeeded"
	OutcomeFailed      Outcome = "failed"      // and will be tried again
	OutcomeBuried      Outcome = "buried"      // failed for good
	OutcomeSnoozed     Outcome = "snoozed"     // put off by its handler
	OutcomeDiscarded   Outcome = "discarded"   // not to be done, says its handler
	OutcomeExpired     Outcome = "expired"     // its task's deadline has passed
	OutcomeInterrupted Outcome = "interrupted" // given back because the pool stops
	OutcomeFenced      Outcome = "fenced"      // somebody else appended first: nothing it wrote was committed
	OutcomeRetried     Outcome = "retried"     // the database was away or asked for a retry: no attempt used
)

var outcomes = [...]Outcome{OutcomeSucceeded, OutcomeFailed, OutcomeBuried, OutcomeSnoozed, OutcomeDiscarded, OutcomeExpired, OutcomeInterrupted, OutcomeFenced, OutcomeRetried}

// counts is what one kind has counted.
type counts struct {
	redelivered, adopted, ghosts, malformed, takenOver, fetcherRuns, givenBack atomic.Int64

	attempts [len(outcomes)]atomic.Int64
}

func (c *counts) attempt(o Outcome) {
	for i := range outcomes {
		if outcomes[i] == o {
			c.attempts[i].Add(1)
		}
	}
}

func (c *counts) notice(n Notice) {
	switch n {
	case NoticeRedelivered:
		c.redelivered.Add(1)
	case NoticeAdopted:
		c.adopted.Add(1)
	case NoticeGhost:
		c.ghosts.Add(1)
	case NoticeMalformed:
		c.malformed.Add(1)
	case NoticeTakenOver:
		c.takenOver.Add(1)
	case NoticeFetcherRuns:
		c.fetcherRuns.Add(1)
	case NoticeGivenBack:
		c.givenBack.Add(1)
	}
}
