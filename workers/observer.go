package workers

import (
	"sync/atomic"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

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

// Observer is told what happens, for metrics. Any function may be nil. They are called from
// many goroutines, in the way of the work: they must be quick and must not block.
type Observer struct {
	// Attempt ended, after this long in its handler and in recording the outcome.
	Attempt func(kind ledger.Kind, outcome Outcome, took time.Duration)
	// Redelivered: a message came for the second time or later.
	Redelivered func(kind ledger.Kind)
	// Adopted: a message came again for a task that this process has in hand.
	Adopted func(kind ledger.Kind)
	// Ghost: a message was refused because the ledger does not have its event.
	Ghost func(kind ledger.Kind)
	// Malformed: a message was refused because it is none of ours.
	Malformed func(kind ledger.Kind)
	// TakenOver: a task was taken from a worker that is gone.
	TakenOver func(kind ledger.Kind)
}

// counts is what one kind has counted; it also tells the observer, which may be nil.
type counts struct {
	kind     ledger.Kind
	observer *Observer

	redelivered, adopted, ghosts, malformed, takenOver atomic.Int64

	attempts [len(outcomes)]atomic.Int64
}

func (c *counts) attempt(o Outcome, took time.Duration) {
	for i := range outcomes {
		if outcomes[i] == o {
			c.attempts[i].Add(1)
		}
	}
	if c.observer != nil && c.observer.Attempt != nil {
		c.observer.Attempt(c.kind, o, took)
	}
}

func (c *counts) redeliver() {
	c.redelivered.Add(1)
	if c.observer != nil && c.observer.Redelivered != nil {
		c.observer.Redelivered(c.kind)
	}
}

func (c *counts) adopt() {
	c.adopted.Add(1)
	if c.observer != nil && c.observer.Adopted != nil {
		c.observer.Adopted(c.kind)
	}
}

func (c *counts) ghost() {
	c.ghosts.Add(1)
	if c.observer != nil && c.observer.Ghost != nil {
		c.observer.Ghost(c.kind)
	}
}

func (c *counts) malform() {
	c.malformed.Add(1)
	if c.observer != nil && c.observer.Malformed != nil {
		c.observer.Malformed(c.kind)
	}
}

func (c *counts) takeOver() {
	c.takenOver.Add(1)
	if c.observer != nil && c.observer.TakenOver != nil {
		c.observer.TakenOver(c.kind)
	}
}

// Status is what a pool has done since it was made, and is doing.
type Status struct {
	ID    string       `json:"id"`
	Kinds []KindStatus `json:"kinds"` // in the order of registration
}

// KindStatus is the [Status] of one kind.
type KindStatus struct {
	Kind        ledger.Kind       `json:"kind"`
	Guarantee   Guarantee         `json:"guarantee"`
	Slots       int               `json:"slots"`
	Shards      ledger.ShardSet   `json:"shards"`  // those it takes tasks of now
	Paused      bool              `json:"paused"`  // by [Operator.PauseKind]
	InHand      int               `json:"in_hand"` // tasks whose message is not answered yet
	Running     int               `json:"running"` // slots taken by handlers, the overdue ones included
	Overdue     int               `json:"overdue"` // handlers that did not return when they were told to
	Redelivered int64             `json:"redelivered"`
	Adopted     int64             `json:"adopted"`
	Ghosts      int64             `json:"ghosts"`
	Malformed   int64             `json:"malformed"`
	TakenOver   int64             `json:"taken_over"`
	Attempts    map[Outcome]int64 `json:"attempts"`
}

// Status returns a snapshot. It is safe for concurrent use.
func (p *Pool) Status() Status {
	s := Status{ID: p.id}
	for _, k := range p.registered() {
		ks := KindStatus{
			Kind: k.name, Guarantee: k.guarantee, Slots: k.slots(), Shards: k.mine.set(),
			InHand: k.hand.size(), Running: int(k.running.Load()), Overdue: int(k.overdue.Load()),
			Redelivered: k.counts.redelivered.Load(), Adopted: k.counts.adopted.Load(),
			Ghosts: k.counts.ghosts.Load(), Malformed: k.counts.malformed.Load(), TakenOver: k.counts.takenOver.Load(),
			Attempts: make(map[Outcome]int64, len(outcomes)),
		}
		ks.Paused, _ = k.pause.state()
		for i, o := range outcomes {
			ks.Attempts[o] = k.counts.attempts[i].Load()
		}
		s.Kinds = append(s.Kinds, ks)
	}
	return s
}
