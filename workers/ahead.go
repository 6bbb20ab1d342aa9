package workers

import (
	"context"
	"sync/atomic"
	"time"
)

// What a kind holds beyond what its slots can run is about what they will use while more is on its
// way. So a slow handler's tasks wait in the stream, where any worker can have them, and a quick
// one's are here when they are wanted.
const (
	aheadTime  = 100 * time.Millisecond
	aheadMost  = maxBatch
	aheadBytes = 8 << 20
	headBytes  = 64 << 10 // more than what is around a payload: subjects and headers

	maxWaitAhead = 5 * time.Second
)

// pace is how long a kind's tasks take lately, from their arrival to the end of the attempt. It is
// safe for concurrent use; of two that end at once one may not count.
type pace struct {
	took   atomic.Int64
	within time.Duration // aheadTime
}

// note takes a task into the average.
func (p *pace) note(took time.Duration) {
	old := p.took.Load()
	if old == 0 {
		old = int64(took)
	}
	p.took.Store(max(1, old+(int64(took)-old)/8))
}

// ahead is how many tasks to hold beyond so many slots: what they would use within aheadTime. Since
// the wait is a part of what tasks take, this settles at less: where w is the wait and s the time in
// a slot, at w(w+s) = s·aheadTime; and at next to nothing where others have the pool's slots. Nothing
// as long as no attempt has ended.
func (p *pace) ahead(slots int) int {
	took := p.took.Load()
	if took == 0 {
		return 0
	}
	return int(min(aheadMost, int64(slots)*int64(p.within)/took))
}

// relieve gives back, until quit is done, what has waited for longer than anything should that is
// beyond the slots: its handlers are not what they were.
func (p *Pool) relieve(quit context.Context, kinds []*kind) {
	shortest := kinds[0].patience()
	for _, k := range kinds {
		shortest = min(shortest, k.patience())
	}
	t := time.NewTicker(shortest / 5)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			for _, a := range p.turns.late(kinds, time.Now()) {
				k, answer := a.kind, nakAnswer
				if k.config.WhenFull == GiveBack {
					answer = nakAfter(giveBackAfter)
				}
				k.hand.pace.took.Store(int64(k.patience()))
				k.noticed(NoticeGivenBack)
				k.giveBackBy(a, answer)
			}
		case <-quit.Done():
			return
		}
	}
}
