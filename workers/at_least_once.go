package workers

import (
	"github.com/taskledger/taskledger/internal/fault"
)

// atLeast runs an attempt whose effects are outside of the database. Its success is recorded
// together with those of others.
func (k *kind) atLeast(a *attempt) {
	handlerErr := errGoexit // unless the handler returns
	defer func() { k.endAtLeast(a, handlerErr) }()
	a.begin()
	handlerErr = a.call(nil)
}

func (k *kind) endAtLeast(a *attempt, err error) {
	cause, ok := a.end()
	if !ok {
		return
	}
	k.hand.over(a.held)
	if err != nil || a.lost {
		k.conclude(a, cause, err)
		return
	}
	fault.Point(pointHandler)
	k.pool.flusher.add(completion{attempt: a, data: a.succeeded()})
}
