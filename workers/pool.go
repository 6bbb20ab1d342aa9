package workers

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// Pool works on tasks: one per process, as a rule. Make it with [New], add kinds with [Register]
// and [RegisterAtLeastOnce], then call [Pool.Run] once.
type Pool struct {
	config   Config
	js       jetstream.JetStream
	id       string
	quotedID []byte // id as JSON
	flusher  *flusher
	layout   layout
	turns    turns
	asking   chan struct{}   // one token for each question about a consumer
	stopping context.Context // done when nothing more is to begin; Run sets it

	repeated     *repeated // warnings
	quarantine   quarantine
	handlerConns chan struct{} // one token for each connection in the hands of a handler
	guardPrefix  string
	guards       atomic.Uint64
	togetherTime time.Duration // constant, as is aheadTime
	aheadTime    time.Duration

	// work is what handlers' contexts derive from: done when they must end, with the cause
	// ErrStopping. Run makes it.
	work     context.Context
	stopWork context.CancelCauseFunc

	// lasting is what operations on the database derive from that outlive work; cut ends it, when
	// the pool has been stopping for too long.
	lasting context.Context
	cut     context.CancelFunc

	mu     sync.Mutex
	kinds  []*kind
	byName map[ledger.Kind]*kind
	ran    bool
}

// New returns a pool without kinds. It connects to nothing yet. It returns the error of
// [Config.Validate].
func New(c Config) (*Pool, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	p, err := newPool(c.withDefaults())
	if err != nil {
		return nil, err
	}
	if p.js, err = jetstream.New(c.NATS); err != nil {
		return nil, fmt.Errorf("workers: %w", err)
	}
	p.handlerConns = make(chan struct{}, c.DB.Config().MaxConns-reservedConns)
	p.asking = make(chan struct{}, manyAsking)
	p.flusher = newFlusher(p)
	p.turns.set(c.Slots)
	return p, nil
}

// newPool returns what a pool is without its connections.
func newPool(c Config) (p *Pool, err error) {
	p = &Pool{config: c, togetherTime: togetherTime, aheadTime: aheadTime, byName: make(map[ledger.Kind]*kind), repeated: newRepeated(), guardPrefix: strings.ToLower(rand.Text()[:10]) + "."}
	p.lasting, p.cut = context.WithCancel(context.Background())
	p.id = c.Name + "-" + strings.ToLower(rand.Text()[:8])
	if p.quotedID, err = json.Marshal(p.id); err != nil {
		return nil, fmt.Errorf("workers: name: %w", err)
	}
	return p, nil
}

// ID returns what is unique about this worker: its name and a random end. It is the actor of
// the worker's events, and its lease is "worker/<id>".
func (p *Pool) ID() string { return p.id }

// SetSlots changes how many handlers run at a time, of all kinds together, as [Config].Slots says;
// 0 is no limit but those of the kinds. Where there are fewer now, handlers that run are left to
// return. It returns an error if n is negative. It is safe for concurrent use, at any time.
func (p *Pool) SetSlots(n int) error {
	if n < 0 {
		return fmt.Errorf("workers: Slots must not be negative, is %d", n)
	}
	p.turns.set(n)
	return nil
}

// SetKindSlots changes how many handlers of one kind run at a time, as [KindConfig].Slots says; 0 is
// the default. In all else it is like [Pool.SetSlots]. It returns an error if n is out of bounds or
// the kind is not registered.
func (p *Pool) SetKindSlots(kind ledger.Kind, n int) error {
	p.mu.Lock()
	k := p.byName[kind]
	p.mu.Unlock()
	if k == nil {
		return fmt.Errorf("workers: kind %q is not registered", kind)
	}
	if err := setPositive("Slots", &n, k.guarantee.slots(), maxSlots); err != nil {
		return fmt.Errorf("workers: kind %s: %w", kind, err)
	}
	k.hand.setSlots(k.config.WhenFull.fits(n))
	p.turns.setLine(&k.line, n)
	p.warnOfConnections()
	return nil
}

// warnOfConnections says so if ExactlyOnce handlers have more slots than connections. They wait for
// each other then, which is safe and slow.
func (p *Pool) warnOfConnections() {
	n := exactlyOnceSlots(p.registered())
	if overall := p.turns.overall(); overall > 0 {
		n = min(n, overall)
	}
	if n > cap(p.handlerConns) {
		p.config.Logger.Warn("more ExactlyOnce slots than connections for them: raise pgxpool.Config.MaxConns (pool_max_conns in the URL)",
			"slots", n, "connections", cap(p.handlerConns))
	}
}

func (p *Pool) registered() []*kind {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.kinds)
}

// Run works until ctx is done, and then returns nil, having given back what it had in hand: see
// the package comment. It may be called once. PostgreSQL or NATS being away does not end it; it
// returns an error only if it cannot go on: no kind is registered, the database is not migrated
// ([ledger.ErrNotMigrated]) or refuses the role, another worker has another guarantee for a kind
// ([*GuaranteeError]), the stream belongs to another ledger
// ([*ForeignStreamError]), the server refuses a consumer, or its shards overlap those of others
// ([*OverlapError]).
func (p *Pool) Run(ctx context.Context) error {
	p.mu.Lock()
	kinds, again := p.kinds, p.ran
	p.ran = true
	p.mu.Unlock()
	if again {
		return errors.New("workers: Run was called twice")
	}
	defer p.repeated.end()
	if len(kinds) == 0 {
		return errors.New("workers: no kind is registered")
	}
	switch err := p.firstLease(ctx); {
	case ctx.Err() != nil:
		p.endLease() // it may just have been taken
		return err
	case err != nil:
		return err
	}
	p.config.Logger.InfoContext(ctx, "worker runs", "id", p.id, "kinds", kindNames(kinds))
	p.warnOfConnections()

	p.work, p.stopWork = context.WithCancelCause(context.WithoutCancel(ctx))
	defer p.stopWork(ErrStopping)
	consumers, stopping := errgroup.WithContext(ctx)
	quit, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var loops sync.WaitGroup
	p.stopping = stopping
	p.turns.start(func(a *attempt) { a.kind.inTurn(stopping, a) })
	loops.Go(func() {
		<-stopping.Done()
		for _, a := range p.turns.stop(kinds) {
			a.kind.giveBack(a)
		}
	})
	p.updatePauses(ctx)
	p.updateOverloads(ctx)
	loops.Go(func() { p.watchKinds(quit) })
	loops.Go(func() { p.keepLease(quit) })
	loops.Go(func() { p.relieve(quit, kinds) })
	loops.Go(func() { p.flusher.run(quit) })
	loops.Go(func() { p.flusher.retry(quit) })
	loops.Go(func() { p.beat(quit, kinds) })
	loops.Go(func() { p.listen(quit, kinds) })
	consumers.Go(func() error { p.takeOwn(stopping); return nil })
	if p.config.ShardGroups > 0 {
		consumers.Go(func() error { return p.divide(stopping, kinds) })
	} else {
		for _, k := range kinds {
			consumers.Go(func() error { return k.serve(stopping, p.config.Shards) })
		}
	}
	err := consumers.Wait()
	p.giveBack(kinds)
	end()
	farewell := time.AfterFunc(farewellTime, p.cut)
	defer farewell.Stop()
	loops.Wait()
	p.endLease()
	stream.Flush(p.config.NATS) // the last answers
	if err != nil {
		return fmt.Errorf("workers: %w", err)
	}
	return nil
}

// beat keeps what is in hand from being delivered to others, until quit is done.
func (p *Pool) beat(quit context.Context, kinds []*kind) {
	t := time.NewTicker(p.config.AckWait / 3)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			for _, k := range kinds {
				k.hand.beat()
			}
		case <-quit.Done():
			return
		}
	}
}

// giveBack gives back an attempt whose handler did not begin.
func (k *kind) giveBack(a *attempt) { k.giveBackBy(a, nakAnswer) }

// giveBackBy does so by an answer to its message, unless its start is on record.
func (k *kind) giveBackBy(a *attempt, answer []byte) {
	if !a.claimed {
		k.settle(a.held, answer)
		return
	}
	ctx, cancel := k.pool.operation()
	defer cancel()
	k.interrupt(ctx, a)
}
