package workers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/taskledger/taskledger/workers/internal/attempt"
	"github.com/taskledger/taskledger/workers/internal/inflight"
	"github.com/taskledger/taskledger/workers/internal/queue"
	"github.com/taskledger/taskledger/workers/internal/slots"
)

// kind is a pool's state of one kind. An offered task whose head must be read passes through undecided. In the line it
// waits for a slot, and then its handler runs. It stays in flight until its outcome is recorded.
type kind struct {
	*attempt.Kind

	// Constant after newKind.
	pool      *Pool
	guarantee Guarantee
	handler   Handler
	hooks     *hookList
	isClaimed bool                    // its tasks are begun in SQL by the workers of a gateway, and never here
	ended     func(*Job, attempt.End) // of a gateway: called once for each attempt with a job; or nil
	config    KindConfig
	line      *slots.Line[*run]           // ready attempts, which wait for a slot; guarded by Pool.slots
	undecided *queue.Queue[*attempt.Task] // tasks whose head is to be read; safe for concurrent use

	// Each is safe for concurrent use.
	isPaused atomic.Bool // by an operator; set by watch
	isLate   atomic.Bool // its tasks wait too long for slots
	isShed   atomic.Bool // the oldest waiting tasks are discarded; set by watch
	claims   claims
	isBusy   atomic.Bool // a goroutine runs dispatch
	counts   counts
}

func (p *Pool) register(r Registration) error {
	config, err := r.config.withDefaults(r.guarantee, p.config.LeaseTTL)
	if err := errors.Join(r.fault, err, r.name.Validate()); err != nil {
		return fmt.Errorf("workers: register kind %q: %w", r.name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hasRun && !p.isGateway {
		return fmt.Errorf("workers: register kind %q: Run was already called", r.name)
	}
	if p.byName[r.name] != nil {
		return fmt.Errorf("workers: register kind %q: it is already registered", r.name)
	}
	k := p.newKind(r, config)
	p.kinds = append(p.kinds, k)
	p.byName[r.name] = k
	return nil
}

func (p *Pool) newKind(r Registration, config KindConfig) *kind {
	logger := p.config.Logger.With("kind", string(r.name))
	if r.remote != nil {
		config.Slots = 0 // until a worker asks
	}
	k := &kind{
		pool: p, guarantee: r.guarantee, handler: wrap(r.handler, p.config.Middleware), config: config,
		hooks:     newHookList(slices.Concat(p.config.Hooks, config.Hooks), logger, p.runner.Grace()),
		line:      slots.NewLine[*run](config.Slots),
		undecided: queue.New[*attempt.Task](),
	}
	isLimited := func() bool { return k.IsLimited() } // of the Kind that follows
	k.Kind = &attempt.Kind{
		Runner: p.runner, Name: r.name, Once: r.guarantee == AtMostOnce,
		Timeout: config.Timeout, Retry: config.Retry, MaxLost: config.MaxLost, StartedAfter: config.startedAfter,
		Shared: config.Together, Logger: logger, Errors: vocabulary{},
		NotifiesHooks: k.hooks.isUsed(),
		Tasks: inflight.New[*attempt.Attempt](p.asker.inflight(r.name, isLimited, inflight.Config{
			Slots: config.Slots, Width: config.Together, Ahead: p.aheadTime,
		})),
		Again: k.decideAgain, Companion: k.companion, HasCompanion: k.hasCompanion,
	}
	if r.remote != nil {
		k.isClaimed, k.ended = r.guarantee == ExactlyOnce, r.remote.noteEnd
		k.RecordsAtOnce = true
	}
	if r.acquire != nil {
		k.Acquire = func(ctx context.Context) (attempt.Conn, error) { return r.acquire(p, ctx) }
	}
	return k
}

// slots returns how many of the kind's handlers may run at a time.
func (k *kind) slots() int { return k.pool.slots.LineSlots(k.line) }

// noticed counts a notice and calls the hooks.
func (k *kind) noticed(n Notice) {
	k.counts.addNotice(n)
	if k.hooks.isUsed() {
		k.hooks.call(k.HandlerContext(), k.hooks.noticed(k.Name, n))
	}
}
