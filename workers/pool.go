package workers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/attempt"
	"github.com/taskledger/taskledger/workers/internal/inflight"
	"github.com/taskledger/taskledger/workers/internal/slots"
)

// Pool runs the handlers of tasks, usually one pool per process. Create it with [New], add kinds with [Pool.Register],
// then call [Pool.Run] once.
type Pool struct {
	// Constant after New.
	config    Config
	id        string
	runner    *attempt.Runner
	aheadTime time.Duration   // inflight.AheadTime; tests change it before Run
	isGateway bool            // kinds come and go while it runs, see gatewayPool; set before Run
	names     func() []string // of the workers of a gateway, nil without one; set before Run

	// Each is safe for concurrent use.
	slots slots.Pool[*run]
	loads loads
	asker *asker // nil in a caller

	stopping context.Context // done when no attempt may begin any more; set by Run before it starts goroutines

	leaseMu sync.Mutex // held while the lease is written, so that an older list of kinds replaces no newer one

	mu     sync.Mutex // guards the fields below
	kinds  []*kind
	byName map[ledger.Kind]*kind
	hasRun bool
}

// New returns a pool without kinds. It does not connect to anything yet. It returns the error of [Config.Validate].
func New(c Config) (*Pool, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	p, err := newPool(c.withDefaults(), int(c.DB.Config().MaxConns)-reservedConns)
	if err != nil {
		return nil, err
	}
	if p.asker, err = newAsker(p); err != nil {
		return nil, fmt.Errorf("workers: %w", err)
	}
	p.slots.SetSlots(c.Slots)
	p.slots.Start(func(r *run) { r.kind.begin(r) })
	p.slots.OrderBy(func(r *run) int { return int(r.priority.Level()) - 1 })
	return p, nil
}

// newPool returns a pool without a connection to NATS. Its handlers may use this many connections.
func newPool(c Config, connections int) (*Pool, error) {
	p := &Pool{
		config: c, aheadTime: inflight.AheadTime, byName: make(map[ledger.Kind]*kind),
		id: c.Name + "-" + strings.ToLower(rand.Text()[:8]),
	}
	var err error
	p.runner, err = attempt.NewRunner(attempt.Config{
		DB: c.DB, ID: p.id, LeaseTTL: c.LeaseTTL, Logger: c.Logger, Connections: connections,
	})
	if err != nil {
		return nil, fmt.Errorf("workers: %w", err)
	}
	return p, nil
}

// ID returns the unique identity of this worker: its name and a random suffix. It is the actor of the worker's
// events, and its lease is "worker/<id>".
func (p *Pool) ID() string { return p.id }

// SetSlots changes how many handlers of all kinds run at a time, see [Config].Slots; 0 means that only the kinds' own
// slots limit them. Running handlers are not interrupted. It returns an error if n is negative. It is safe for
// concurrent use, at any time.
func (p *Pool) SetSlots(n int) error {
	if n < 0 {
		return fmt.Errorf("workers: Slots must be at least 0, got %d", n)
	}
	p.slots.SetSlots(n)
	return nil
}

// SetKindSlots changes how many handlers of one kind run at a time, see [KindConfig].Slots; 0 means the default.
// Otherwise it is like [Pool.SetSlots]. It returns an error if n is out of bounds or the kind is not registered.
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
	k.Tasks.SetSlots(n)
	p.slots.SetLineSlots(k.line, n)
	p.warnOfConnections()
	return nil
}

// warnOfConnections logs a warning if ExactlyOnce handlers have more slots than connections. Then they wait for each
// other, which is safe but slow.
func (p *Pool) warnOfConnections() {
	n := 0
	for _, k := range p.registered() {
		if k.guarantee == ExactlyOnce {
			n += k.slots()
		}
	}
	if overall := p.slots.Slots(); overall > 0 {
		n = min(n, overall)
	}
	if n > p.runner.Connections() {
		p.config.Logger.Warn("more ExactlyOnce slots than connections for them: raise pgxpool.Config.MaxConns "+
			"(pool_max_conns in the URL); taskledger.Client.Worker counts the slots by itself",
			"slots", n, "connections", p.runner.Connections())
	}
}

func (p *Pool) registered() []*kind {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.kinds)
}

// Run works until ctx is done, then gives back all tasks in flight and returns nil; see the package comment. It may be
// called once. It survives outages of PostgreSQL and NATS.
//
// It returns an error only if retrying is useless: no kind is registered, the database is not migrated
// ([ledger.ErrNotMigrated]) or refuses the role, another worker runs a kind with another guarantee
// ([*GuaranteeError]), or the connection to NATS is closed for good.
func (p *Pool) Run(ctx context.Context) error {
	p.mu.Lock()
	kinds, hasRun := p.kinds, p.hasRun
	p.hasRun = true
	p.mu.Unlock()
	if hasRun {
		return errors.New("workers: Run was called twice")
	}
	defer p.runner.Close()
	if len(kinds) == 0 && !p.isGateway {
		return errors.New("workers: no kind is registered")
	}
	if !p.isGateway { // else each kind takes the lease
		switch err := p.firstLease(ctx); {
		case ctx.Err() != nil:
			p.releaseFirstLease()
			return err
		case err != nil:
			return err
		}
	}
	p.config.Logger.InfoContext(ctx, "worker runs", "id", p.id, "kinds", kindNames(kinds))
	p.warnOfConnections()
	err := p.work(ctx)
	p.config.Logger.InfoContext(ctx, "worker has stopped", "id", p.id)
	if err != nil {
		return fmt.Errorf("workers: %w", err)
	}
	return nil
}

// work takes tasks until ctx is done or retrying is useless, and then gives back all tasks in flight.
func (p *Pool) work(ctx context.Context) error {
	stopping, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	quit, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	p.stopping = stopping
	p.runner.Start(stopping)
	defer p.runner.CancelHandlers(ErrStopping)
	p.look(ctx)

	var loops sync.WaitGroup
	loops.Go(func() { p.stopSlots(stopping) })
	loops.Go(func() { p.watch(quit) })
	loops.Go(func() { p.keepLease(quit) })
	loops.Go(func() { p.giveBackLate(quit) })
	loops.Go(func() { p.runner.Complete(quit) })
	loops.Go(func() { p.runner.CompleteAgain(quit) })
	loops.Go(func() {
		if err := p.asker.run(stopping, quit); err != nil {
			stop(err)
		}
	})
	<-stopping.Done()
	p.giveBack(p.registered())
	end()
	timeout := time.AfterFunc(releaseTimeout, p.runner.CancelOperations)
	defer timeout.Stop()
	loops.Wait()
	p.releaseLease()
	stream.Flush(p.config.NATS) // the last report
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(stopping)
}

// stopSlots gives back the attempts that wait for a slot, once stopping is done.
func (p *Pool) stopSlots(stopping context.Context) {
	<-stopping.Done()
	p.slots.Stop()
	for _, k := range p.registered() {
		for _, r := range p.slots.Drain(k.line) {
			r.GiveBack()
		}
	}
}
