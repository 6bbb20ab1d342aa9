package workers

import (
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/attempt"
)

// recall rereads the heads of tasks to which others have appended. Their attempts end if that is true.
func (p *Pool) recall(moved []ledger.Key) {
	begun := make(map[*kind][]*attempt.Attempt)
	p.mu.Lock()
	for _, key := range moved {
		if k := p.byName[key.Kind]; k != nil {
			if a, hasBegun := k.Tasks.Recall(key.BizID); hasBegun {
				begun[k] = append(begun[k], a)
			}
		}
	}
	p.mu.Unlock()
	for k, attempts := range begun {
		k.FenceMoved(attempts)
	}
}
