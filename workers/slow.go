package workers

import (
	"context"
	"time"
)

// maxWait is how long a task waits for a slot before it is given back.
const maxWait = 5 * time.Second

// maxWait returns how long a task of the pool may wait for a slot.
func (p *Pool) maxWait() time.Duration { return min(maxWait, p.config.LeaseTTL) }

// giveBackLate gives back, until quit is done, tasks that wait too long for a slot because their handlers have become
// slow.
func (p *Pool) giveBackLate(quit context.Context) {
	t := time.NewTicker(p.maxWait() / 5)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			for _, k := range p.registered() {
				k.giveBackLate(time.Now())
			}
		case <-quit.Done():
			return
		}
	}
}

// giveBackLate gives back the kind's late tasks. From then on the kind asks for as many as find a slot at once, until a
// slot is free: handlers of this kind may hold its slots, or those of other kinds all slots of the pool.
func (k *kind) giveBackLate(now time.Time) {
	late := k.pool.slots.TakeOlder(k.line, now.Add(-k.pool.maxWait()))
	if len(late) > 0 || k.pool.slots.Free(k.line) > 0 {
		k.isLate.Store(len(late) > 0)
	}
	for _, r := range late {
		k.Tasks.SetPace(k.pool.maxWait())
		k.noticed(NoticeGivenBack)
		r.GiveBack()
	}
}
