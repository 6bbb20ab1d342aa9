package workers

import (
	"sync/atomic"

	"github.com/taskledger/taskledger/workers/internal/attempt"
)

// Outcome is how an attempt ended.
type Outcome string

// The outcomes of an attempt.
const (
	OutcomeSucceeded   Outcome = "succeeded"
	OutcomeFailed      Outcome = "failed"      // and is tried again
	OutcomeBuried      Outcome = "buried"      // failed for good
	OutcomeSnoozed     Outcome = "snoozed"     // postponed by its handler
	OutcomeDiscarded   Outcome = "discarded"   // ended by its handler without a success
	OutcomeExpired     Outcome = "expired"     // the deadline of its task has passed
	OutcomeInterrupted Outcome = "interrupted" // given back because the pool stops
	OutcomeFenced      Outcome = "fenced"      // another process appended first: nothing that it wrote was committed
	OutcomeRetried     Outcome = "retried"     // the database was unavailable or demanded it: uses no attempt
)

var outcomes = [...]Outcome{
	OutcomeSucceeded,
	OutcomeFailed,
	OutcomeBuried,
	OutcomeSnoozed,
	OutcomeDiscarded,
	OutcomeExpired,
	OutcomeInterrupted,
	OutcomeFenced,
	OutcomeRetried,
}

// Notice is something unusual about an offered task.
type Notice string

// The notices.
const (
	NoticeGhost     Notice = "ghost"      // refused: its event is not in the ledger
	NoticeTakenOver Notice = "taken_over" // taken over from a worker that is gone
	NoticeGivenBack Notice = "given_back" // it waited for a slot for too long and was given back
)

var notices = [...]Notice{NoticeGhost, NoticeTakenOver, NoticeGivenBack}

// counts counts the attempts and notices of one kind. It is safe for concurrent use.
type counts struct {
	attempts [len(outcomes)]atomic.Int64
	notices  [len(notices)]atomic.Int64
}

func (c *counts) addAttempt(o attempt.Outcome) {
	for i := range outcomes {
		if outcomes[i] == Outcome(o) {
			c.attempts[i].Add(1)
		}
	}
}

func (c *counts) addNotice(n Notice) {
	for i := range notices {
		if notices[i] == n {
			c.notices[i].Add(1)
		}
	}
}

// noticed returns how often a notice occurred.
func (c *counts) noticed(n Notice) int64 {
	for i := range notices {
		if notices[i] == n {
			return c.notices[i].Load()
		}
	}
	return 0
}
