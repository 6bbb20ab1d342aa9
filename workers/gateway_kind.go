package workers

import (
	"container/list"
	"slices"
	"time"

	"github.com/taskledger/taskledger/internal/remote"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/attempt"
)

// gatewayKind is a kind of a gateway's pool. The mutex of the pool guards the fields after guarantee.
type gatewayKind struct {
	*kind
	pool *gatewayPool

	requests list.List // of *remoteRequest with credit, the oldest first
	waiting  list.List // of *delivery that no session has
	out      int
	credit   int // of its requests
	slots    int // as set last
	askedAt  time.Time
}

// unregister removes a kind of a gateway without slots and tasks. Tasks that are offered later are given back.
func (p *Pool) unregister(k *kind) {
	p.mu.Lock()
	delete(p.byName, k.Name)
	for i := range p.kinds {
		if p.kinds[i] == k {
			p.kinds = append(p.kinds[:i:i], p.kinds[i+1:]...)
			break
		}
	}
	p.mu.Unlock()
	p.asker.mu.Lock()
	p.asker.machine.Want(k.Name, 0)
	p.asker.mu.Unlock()
}

// handle makes the pool a worker of kinds, with a guarantee.
func (p *gatewayPool) handle(kinds []ledger.Kind, g Guarantee) error {
	if isHandled, err := p.touch(kinds, g); isHandled || err != nil {
		return err
	}
	p.addMu.Lock()
	defer p.addMu.Unlock()
	isHandled, err := p.touch(kinds, g) // another call may have added them
	if isHandled || err != nil {
		return err
	}
	var added []*gatewayKind
	p.mu.Lock()
	for _, name := range kinds {
		isAdded := slices.ContainsFunc(added, func(k *gatewayKind) bool { return k.Name == name }) // it is named twice
		if k := p.kinds[name]; k == nil && !isAdded {
			added = append(added, &gatewayKind{pool: p, askedAt: time.Now()})
			added[len(added)-1].kind, err = p.pool.registerRemote(added[len(added)-1], name, g)
			if err != nil {
				added = added[:len(added)-1]
				break
			}
		}
	}
	p.mu.Unlock()
	if err == nil {
		ctx, cancel := p.pool.runner.Operation()
		defer cancel()
		err = p.pool.takeLease(ctx)
	}
	if err != nil {
		for _, k := range added {
			p.pool.unregister(k.kind)
		}
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range added {
		p.kinds[k.Name] = k
	}
	p.pool.asker.wake()
	return nil
}

// touch reports whether the pool is a worker of all kinds. It returns a [*GuaranteeError] if it is with another
// guarantee.
func (p *gatewayPool) touch(kinds []ledger.Kind, g Guarantee) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isEnded {
		return false, p.endError()
	}
	all := true
	for _, name := range kinds {
		switch k := p.kinds[name]; {
		case k == nil:
			all = false
		case k.guarantee != g:
			return false, &GuaranteeError{Kind: name, Wanted: g, Found: k.guarantee, Worker: p.pool.id}
		default:
			k.askedAt = time.Now()
		}
	}
	return all, nil
}

// remoteStartedAfter is how long an attempt may take before its start is recorded. Until then it begins a second time
// if this process ends, and the handler takes longer than a dispatcher waits for a silent worker.
const remoteStartedAfter = 200 * time.Millisecond

// registerRemote adds a kind whose handler waits for the workers of a gateway.
func (p *Pool) registerRemote(of *gatewayKind, name ledger.Kind, g Guarantee) (*kind, error) {
	r := Registration{name: name, guarantee: g, handler: of.deliver, remote: of, config: &KindConfig{Timeout: -1}}
	switch g {
	case AtLeastOnce:
		r.config.startedAfter = remoteStartedAfter
	case ExactlyOnce:
		r.config.startedAfter = 365 * 24 * time.Hour // the claim records it
	case AtMostOnce: // its start is recorded first
	}
	if err := p.register(r); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byName[name], nil
}

// setSlots makes the slots of kinds follow the attempts and requests. The pool is locked.
func (p *gatewayPool) setSlots(kinds map[*gatewayKind]*list.Element) {
	if n := p.out + p.credit; n != p.slots {
		p.slots = n
		p.pool.slots.SetSlots(n)
	}
	for k := range kinds {
		if n := k.out + k.credit; n != k.slots {
			k.slots = n
			p.pool.slots.SetLineSlots(k.line, n)
			k.Tasks.SetSlots(n)
		}
	}
}

// noteEnd is called when the outcome of an attempt is recorded, or cannot be.
func (k *gatewayKind) noteEnd(job *Job, end attempt.End) {
	d := job.delivery
	if d == nil { // its handler has not begun
		return
	}
	p := k.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	d.end = end
	close(d.ended)
	if end.Outcome == attempt.OutcomeRetried && d.isOver && d.reason == "" {
		p.unrecorded[d.reported()] = d
		p.unrecordedList.PushBack(d.reported())
		for p.unrecordedList.Len() > maxEnded {
			delete(p.unrecorded, p.unrecordedList.Remove(p.unrecordedList.Front()).(reported))
		}
	}
	if d.session == nil {
		return
	}
	delete(d.session.held, d)
	delete(p.fences, d.fence)
	if d.reason == remote.Fenced && k.guarantee != ExactlyOnce {
		return // another process may have moved the attempt: the ledger decides
	}
	over := d.withoutContent()
	p.over[d.fence] = over
	p.overList.PushBack(over)
	for p.overList.Len() > maxEnded {
		delete(p.over, p.overList.Remove(p.overList.Front()).(*delivery).fence)
	}
}

// enter adds an attempt in its slot, and gives it to a request if there is one for its kind.
func (p *gatewayPool) enter(d *delivery) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := d.kind
	p.out++
	k.out++
	if front := k.requests.Front(); front != nil {
		r := front.Value.(*remoteRequest)
		r.take(d)
		p.credit--
		for of := range r.kinds {
			of.credit--
		}
		if r.credit == 0 {
			p.withdraw(r)
		}
		p.setSlots(r.kinds)
		return
	}
	d.waits = k.waiting.PushBack(d)
}

// leave removes an attempt whose handler returns.
func (p *gatewayPool) leave(d *delivery) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out--
	d.kind.out--
	p.setSlots(map[*gatewayKind]*list.Element{d.kind: nil})
}
