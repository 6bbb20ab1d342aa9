package workers

import (
	"container/list"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/taskledger/taskledger/ledger"
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
	gateway *gateway
	pool    *Pool
	process string        // identifies it among the gateways of a caller
	ended   chan struct{} // closed when run has returned

	addMu      sync.Mutex // held while kinds are added or removed
	handedOver sync.Once  // of handOver

	mu       sync.Mutex // guards the fields below, and fields of kinds, sessions, requests and deliveries
	isEnded  bool       // no request begins any more
	kinds    map[ledger.Kind]*gatewayKind
	sessions map[string]*remoteSession
	fences   map[string]*delivery // that are given and not ended
	over     map[string]*delivery // that have ended
	overList list.List            // of them, the oldest first
	out      int                  // attempts whose handler runs
	// unrecorded contains attempts that their workers ended and that begin again, because the outcome could not be
	// recorded. unrecordedList has their keys, the oldest first.
	unrecorded     map[reported]*delivery
	unrecordedList list.List
	credit         int // of all requests
	slots          int // over all kinds, as set last
}

func (g *gateway) newPool(caller string) (*gatewayPool, error) {
	pool, err := New(poolConfig(g.config, caller))
	if err != nil {
		return nil, err
	}
	pool.isGateway = true
	p := &gatewayPool{
		gateway: g, pool: pool, process: rand.Text()[:8], ended: make(chan struct{}),
		kinds: make(map[ledger.Kind]*gatewayKind), sessions: make(map[string]*remoteSession),
		fences: make(map[string]*delivery), over: make(map[string]*delivery),
		unrecorded: make(map[reported]*delivery),
	}
	pool.names = p.names
	return p, nil
}

// names returns the first names of the caller's workers.
func (p *gatewayPool) names() (first []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.sessions {
		i, isKnown := slices.BinarySearch(first, s.worker)
		if !isKnown && i < maxNames {
			first = slices.Insert(first, i, s.worker)
			first = first[:min(len(first), maxNames)]
		}
	}
	return first
}

// remoteNames returns the names of the workers of a gateway, nil for other pools.
func (p *Pool) remoteNames() []string {
	if p.names == nil {
		return nil
	}
	return p.names()
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

// endError returns why no request begins any more. p.mu is held.
func (p *gatewayPool) endError() error {
	if p.gateway.isStopped() {
		return ErrStopping
	}
	return errPoolEnded
}
