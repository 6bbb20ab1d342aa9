package workers

import (
	"container/list"
	"context"
	"time"

	"github.com/taskledger/taskledger/internal/remote"
)

// remoteRequest is a request that waits for tasks. The mutex of the pool guards it.
type remoteRequest struct {
	session  *remoteSession
	received batches
	timeout  time.Duration
	isFirst  bool // of its session
	kinds    map[*gatewayKind]*list.Element
	credit   int
	got      []*delivery
	wake     chan struct{} // holds a token if got has grown, or isEnded is set
	isEnded  bool          // another request of the session has begun
}

func (r *remoteRequest) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// ask returns tasks for a request.
func (p *gatewayPool) ask(ctx context.Context, a remote.Ask, received batches) (remote.Answer, error) {
	r, err := p.begin(a, received)
	if err != nil {
		return remote.Answer{}, err
	}
	wait := a.Wait
	if r.isFirst && a.FirstWait > 0 {
		wait = a.FirstWait
	}
	timeUp := time.NewTimer(wait)
	defer timeUp.Stop()
	for has := p.has(r); has == 0; has = p.has(r) {
		select {
		case <-r.wake:
			continue
		case <-timeUp.C:
		case <-ctx.Done():
		}
		break
	}
	if ctx.Err() != nil {
		p.giveBack(r)
	}
	p.gather(r)
	return p.answer(r)
}

// begin adds a request, and gives it the tasks of answers that may be lost.
func (p *gatewayPool) begin(a remote.Ask, received batches) (*remoteRequest, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isEnded {
		return nil, p.endError()
	}
	s := p.sessions[a.Session]
	isFirst := s == nil
	if isFirst {
		s = &remoteSession{id: a.Session, isHere: a.IsHere, held: make(map[*delivery]struct{})}
		p.sessions[a.Session] = s
	}
	read := received.of(p.process)
	s.worker, s.seenAt, s.batch = a.Worker, time.Now(), max(s.batch, read)
	if s.request != nil {
		s.request.isEnded = true
		s.request.signal()
		p.close(s.request)
	}
	r := &remoteRequest{
		session: s, received: received, timeout: a.Timeout, isFirst: isFirst,
		kinds: make(map[*gatewayKind]*list.Element, len(a.Kinds)), wake: make(chan struct{}, 1),
	}
	s.request = r
	for _, b := range s.unread {
		if b.number <= read {
			for _, d := range b.deliveries {
				d.isRead = true
			}
			continue
		}
		for _, d := range b.deliveries {
			if !d.isOver {
				d.again, d.expires = true, time.Now().Add(p.term())
				r.got = append(r.got, d)
			}
		}
	}
	s.unread = nil
	if len(r.got) > 0 {
		return r, nil
	}
	r.credit = a.Limit
	for _, name := range a.Kinds {
		k := p.kinds[name]
		if k == nil || r.kinds[k] != nil { // it was removed just now, or is named twice
			continue
		}
		for r.credit > 0 && k.waiting.Len() > 0 {
			r.take(k.waiting.Remove(k.waiting.Front()).(*delivery))
		}
	}
	if r.credit > 0 {
		for _, name := range a.Kinds {
			if k := p.kinds[name]; k != nil && r.kinds[k] == nil {
				r.kinds[k] = k.requests.PushBack(r)
				k.credit += r.credit
				k.askedAt = time.Now()
			}
		}
		p.credit += r.credit
		p.setSlots(r.kinds)
	}
	return r, nil
}

// take gives a delivery to a request. The pool is locked. The credit of its kinds is the caller's to change.
func (r *remoteRequest) take(d *delivery) {
	r.credit--
	r.got = append(r.got, d)
	s := r.session
	d.session, d.timeout = s, r.timeout
	d.expires = time.Now().Add(d.kind.pool.term())
	d.seal()
	s.held[d] = struct{}{}
	d.kind.pool.fences[d.fence] = d
	close(d.given)
	r.signal()
}

// withdraw takes a request out of the lists of its kinds, with its credit. The pool is locked.
func (p *gatewayPool) withdraw(r *remoteRequest) {
	for k, at := range r.kinds {
		k.requests.Remove(at)
		k.credit -= r.credit
	}
	p.credit -= r.credit
	r.credit = 0
}

// has returns the number of tasks of a request; -1 if it has ended.
func (p *gatewayPool) has(r *remoteRequest) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.isEnded {
		return -1
	}
	return len(r.got)
}

// giveBack gives back the tasks of a request whose client has gone before an answer.
func (p *gatewayPool) giveBack(r *remoteRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.isEnded {
		return
	}
	p.withdraw(r)
	p.setSlots(r.kinds)
	var kept []*delivery
	for _, d := range r.got {
		if d.again || d.isOver {
			kept = append(kept, d)
			continue
		}
		d.refuse(errNotTaken)
	}
	r.got = kept
}

// gather waits for attempts that are about to begin, while the request holds a task and credit.
func (p *gatewayPool) gather(r *remoteRequest) {
	timeUp := time.NewTimer(gatherTime)
	defer timeUp.Stop()
	for p.mayGrow(r) {
		select {
		case <-r.wake:
		case <-timeUp.C:
			return
		}
	}
}

// mayGrow reports whether attempts of the request's kinds are ready.
func (p *gatewayPool) mayGrow(r *remoteRequest) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.isEnded || len(r.got) == 0 || r.credit == 0 {
		return false
	}
	for k := range r.kinds {
		if p.pool.slots.Ready(k.line) > 0 {
			return true
		}
	}
	return false
}

// answer ends a request.
func (p *gatewayPool) answer(r *remoteRequest) (remote.Answer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := r.session
	if r.isEnded && p.isEnded && len(r.got) == 0 {
		return remote.Answer{}, p.endError()
	}
	p.close(r)
	answer := remote.Answer{Batch: r.received.String()}
	if len(r.got) > 0 {
		answer.Batch = r.received.with(batchOf{p.process, s.batch})
	}
	for _, d := range r.got {
		if !d.isOver {
			answer.Tasks = append(answer.Tasks, d.task())
		}
	}
	return answer, nil
}

// close ends a request, and stores its tasks as a batch: they are given again unless the next request has received it.
// The pool is locked.
func (p *gatewayPool) close(r *remoteRequest) {
	s := r.session
	if s.request != r {
		r.got = nil // the request that has ended this one gives its tasks
		return
	}
	s.request, s.seenAt = nil, time.Now()
	p.withdraw(r)
	p.setSlots(r.kinds)
	if len(r.got) > 0 {
		s.batch++
		s.unread = append(s.unread, remoteBatch{s.batch, r.got})
	}
}
