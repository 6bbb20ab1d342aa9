package workers

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/attempt"
)

const (
	// sweepEvery is the interval at which kinds, sessions and ended attempts that are not needed any more are removed.
	sweepEvery = time.Second
	// maxEnded bounds the ended attempts of a caller whose repeated calls are answered from memory.
	maxEnded = 20_000
	// gatherTime bounds how long a request with a task waits for others that are about to begin.
	gatherTime = 2 * time.Millisecond
)

var errPoolEnded = errors.New("the worker of the caller has ended")

// gatewayPool is the worker of a caller of a gateway. It is safe for concurrent use.
type gatewayPool struct {
	// Constant.
	gateway *Gateway
	pool    *Pool
	ended   chan struct{} // closed when run has returned

	addMu sync.Mutex // held while kinds are added or removed

	mu       sync.Mutex // guards the fields below, and fields of kinds, sessions, requests and deliveries
	isEnded  bool       // no request begins any more
	kinds    map[ledger.Kind]*gatewayKind
	sessions map[string]*remoteSession
	fences   map[string]*delivery // that are given and not ended
	over     map[string]*delivery // that have ended
	overList list.List            // of them, the oldest first
	out      int                  // attempts whose handler runs
	credit   int                  // of all requests
	slots    int                  // over all kinds, as set last
}

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

// remoteSession is a process of a worker. The mutex of the pool guards it.
type remoteSession struct {
	id, worker string
	batch      int64
	unread     []remoteBatch
	held       map[*delivery]struct{}
	request    *remoteRequest // that waits, or nil
	seenAt     time.Time
}

// remoteBatch is the tasks of an answer that may be lost.
type remoteBatch struct {
	number     int64
	deliveries []*delivery
}

// remoteRequest is a request that waits for tasks. The mutex of the pool guards it.
type remoteRequest struct {
	session  *remoteSession
	received int64
	timeout  time.Duration
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

func (g *Gateway) newPool(caller string) (*gatewayPool, error) {
	pool, err := New(g.config.poolConfig(caller))
	if err != nil {
		return nil, err
	}
	pool.isGateway = true
	return &gatewayPool{
		gateway: g, pool: pool, ended: make(chan struct{}),
		kinds: make(map[ledger.Kind]*gatewayKind), sessions: make(map[string]*remoteSession),
		fences: make(map[string]*delivery), over: make(map[string]*delivery),
	}, nil
}

func (p *gatewayPool) term() time.Duration { return p.gateway.config.Term }

// run works until ctx is done, or until no worker has asked for a while.
func (p *gatewayPool) run(ctx context.Context) error {
	defer close(p.ended)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(ctx, p.endRequests)()
	go p.sweepUntil(ctx, stop)
	err := p.pool.Run(ctx)
	p.endRequests()
	return err
}

// endRequests ends all requests, and lets none begin.
func (p *gatewayPool) endRequests() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isEnded = true
	for _, s := range p.sessions {
		if s.request != nil {
			s.request.isEnded = true
			s.request.signal()
		}
	}
}

// sweepUntil removes unused kinds and sessions until ctx is done. It stops the pool if nothing is left.
func (p *gatewayPool) sweepUntil(ctx context.Context, stop func()) {
	t := time.NewTicker(sweepEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if p.sweep(ctx) {
				stop()
			}
		case <-ctx.Done():
			return
		}
	}
}

// sweep reports whether nothing is left.
func (p *gatewayPool) sweep(ctx context.Context) bool {
	p.addMu.Lock()
	defer p.addMu.Unlock()
	now := time.Now()
	var unused []*gatewayKind
	p.mu.Lock()
	for id, s := range p.sessions {
		if s.request == nil && len(s.held) == 0 && now.Sub(s.seenAt) > p.term() {
			delete(p.sessions, id)
		}
	}
	for _, k := range p.kinds {
		if tasks, _ := k.Tasks.Size(); tasks == 0 && k.credit+k.out == 0 && now.Sub(k.askedAt) > p.term() {
			unused = append(unused, k)
		}
	}
	for _, k := range unused {
		delete(p.kinds, k.Name)
	}
	isUnused := len(p.sessions) == 0 && len(p.kinds) == 0
	p.isEnded = p.isEnded || isUnused
	p.mu.Unlock()
	for _, k := range unused {
		p.pool.unregister(k.kind)
	}
	if len(unused) > 0 && !isUnused {
		if err := p.pool.renewLease(ctx, p.pool.config.DB); err != nil {
			p.pool.config.Logger.WarnContext(ctx, "cannot renew the lease", "error", err)
		}
	}
	return isUnused
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

// endError returns why no request begins any more. p.mu is held.
func (p *gatewayPool) endError() error {
	if p.gateway.running.Err() != nil {
		return ErrStopping
	}
	return errPoolEnded
}

// registerRemote adds a kind whose handler waits for the workers of a gateway.
func (p *Pool) registerRemote(of *gatewayKind, name ledger.Kind, g Guarantee) (*kind, error) {
	r := Registration{name: name, guarantee: g, handler: of.deliver, remote: of, config: &KindConfig{Timeout: -1}}
	if g == ExactlyOnce {
		r.config.startedAfter = 365 * 24 * time.Hour // the claim records it
	}
	if err := p.register(r); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byName[name], nil
}

// ask returns tasks for a request.
func (p *gatewayPool) ask(ctx context.Context, a RemoteAsk) (RemoteAnswer, error) {
	r, err := p.begin(a)
	if err != nil {
		return RemoteAnswer{}, err
	}
	timeUp := time.NewTimer(a.Wait)
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
func (p *gatewayPool) begin(a RemoteAsk) (*remoteRequest, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isEnded {
		return nil, p.endError()
	}
	s := p.sessions[a.Session]
	if s == nil {
		s = &remoteSession{id: a.Session, held: make(map[*delivery]struct{})}
		p.sessions[a.Session] = s
	}
	s.worker, s.seenAt, s.batch = a.Worker, time.Now(), max(s.batch, a.Received)
	if s.request != nil {
		s.request.isEnded = true
		s.request.signal()
		p.close(s.request)
	}
	r := &remoteRequest{
		session: s, received: a.Received, timeout: a.Timeout, kinds: make(map[*gatewayKind]*list.Element, len(a.Kinds)),
		wake: make(chan struct{}, 1),
	}
	s.request = r
	for _, b := range s.unread {
		if b.number <= a.Received {
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
	s.held[d] = struct{}{}
	d.kind.pool.fences[d.fence] = d
	close(d.given)
	r.signal()
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

// withdraw takes a request out of the lists of its kinds, with its credit. The pool is locked.
func (p *gatewayPool) withdraw(r *remoteRequest) {
	for k, at := range r.kinds {
		k.requests.Remove(at)
		k.credit -= r.credit
	}
	p.credit -= r.credit
	r.credit = 0
}

// leave removes an attempt whose handler returns.
func (p *gatewayPool) leave(d *delivery) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out--
	d.kind.out--
	p.setSlots(map[*gatewayKind]*list.Element{d.kind: nil})
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

// refuse ends an attempt with an error, which its worker no longer has. The pool is locked.
func (d *delivery) refuse(err error) {
	o := newRemoteOutcome(nil, err)
	d.isOver, d.outcome, d.reason = true, o, RemoteUnknown
	d.outcomes <- o
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
func (p *gatewayPool) answer(r *remoteRequest) (RemoteAnswer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := r.session
	if r.isEnded && p.isEnded && len(r.got) == 0 {
		return RemoteAnswer{}, p.endError()
	}
	p.close(r)
	answer := RemoteAnswer{Batch: r.received}
	if len(r.got) > 0 {
		answer.Batch = s.batch
	}
	for _, d := range r.got {
		answer.Tasks = append(answer.Tasks, d.task())
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

// running returns an attempt that is at work, or nil.
func (p *gatewayPool) running(a RemoteAttempt) *delivery {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.fences[a.Fence]
	if d == nil || d.isOver || d.job.Key != a.Key || d.job.Attempt != a.Attempt || d.kind.guarantee == ExactlyOnce {
		return nil
	}
	return d
}

// end ends an attempt, which goes on to be recorded. It returns nil if the attempt is not in memory, or has ended with
// another outcome.
func (p *gatewayPool) end(a RemoteAttempt, o remoteOutcome) *delivery {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.fences[a.Fence]
	if d == nil {
		d = p.over[a.Fence]
	}
	if d == nil || d.job.Key != a.Key || d.job.Attempt != a.Attempt || d.kind.guarantee == ExactlyOnce {
		return nil
	}
	if !d.isOver {
		d.isOver, d.outcome = true, o
		d.outcomes <- o
	}
	if d.reason != "" || d.outcome.digest != o.digest {
		return nil
	}
	return d
}

// await waits until the outcome of an attempt is recorded, and returns the state of the task. It returns "" without an
// error if another outcome was recorded.
func (d *delivery) await(ctx context.Context) (ledger.State, error) {
	select {
	case <-d.ended:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	switch o := d.end.Outcome; {
	case o == attempt.OutcomeRetried: // it begins again
		return "", errors.Join(ledger.ErrUnavailable, d.end.Err)
	case o == attempt.OutcomeFenced, o == attempt.OutcomeInterrupted,
		d.outcome.err == nil && o != attempt.OutcomeSucceeded:
		return "", nil
	}
	return d.end.State, nil
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
	if d.session == nil {
		return
	}
	d.args = nil
	delete(d.session.held, d)
	delete(p.fences, d.fence)
	p.over[d.fence] = d
	p.overList.PushBack(d)
	for p.overList.Len() > maxEnded {
		delete(p.over, p.overList.Remove(p.overList.Front()).(*delivery).fence)
	}
}

// heartbeat renews the tasks of a session, and returns the finished ones.
func (p *gatewayPool) heartbeat(session string, fences []string) (ended []RemoteEnded) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if s := p.sessions[session]; s != nil {
		s.seenAt = now
	}
	for _, f := range fences {
		d := p.fences[f]
		if d == nil {
			d = p.over[f]
		}
		switch {
		case d == nil || d.session.id != session:
			ended = append(ended, RemoteEnded{Fence: f, Reason: RemoteUnknown})
		case !d.isOver:
			d.expires = now.Add(p.term())
		case d.reason != "":
			ended = append(ended, RemoteEnded{Key: d.job.Key, Fence: f, Reason: d.reason})
		}
	}
	return ended
}

// live returns the fences of attempts of a session that are not over.
func (p *gatewayPool) live(session string, fences []string) (live []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range fences {
		if d := p.fences[f]; d != nil && !d.isOver && d.session.id == session {
			live = append(live, f)
		}
	}
	return live
}

// release ends attempts of a session, or all and the session, and returns them.
func (p *gatewayPool) release(session string, fences []string) (released []*delivery) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sessions[session]
	if s == nil {
		return nil
	}
	unanswered := make(map[*delivery]bool)
	if fences == nil {
		if s.request != nil {
			for _, d := range s.request.got {
				unanswered[d] = !d.again
			}
			s.request.isEnded = true
			s.request.signal()
			p.close(s.request)
		}
		delete(p.sessions, session)
	}
	all := make(map[string]bool, len(fences))
	for _, f := range fences {
		all[f] = true
	}
	for d := range s.held {
		if d.isOver || fences != nil && !all[d.fence] {
			continue
		}
		switch g := d.kind.guarantee; {
		case g == ExactlyOnce, unanswered[d]:
			d.refuse(errNotTaken)
		case g == AtMostOnce: // its handler may have begun
			d.refuse(fmt.Errorf("%w how it ended, and has given it back", errLost))
		default:
			d.refuse(errReleased)
		}
		released = append(released, d)
	}
	return released
}
