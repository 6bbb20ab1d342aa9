package workers

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/attempt"
	"github.com/taskledger/taskledger/workers/internal/inflight"
	"github.com/taskledger/taskledger/workers/internal/queue"
	"github.com/taskledger/taskledger/workers/internal/shards"
	"github.com/taskledger/taskledger/workers/internal/slots"
)

// kind is what a pool keeps for one kind. The way of a message goes from consume through undecided (its
// task's head is read) and the line (it waits for a slot) to the handler. Its task stays in flight until
// the outcome is recorded.
type kind struct {
	*attempt.Kind

	// Constant.
	pool      *Pool
	guarantee Guarantee
	handler   Handler
	hooks     []Hook
	reversed  []Hook // the last one first
	config    KindConfig
	line      *slots.Line[*run] // of what is ready
	undecided *queue.Queue[*attempt.Task]
	readied   chan struct{} // holds a token if something may have become ready; nil: no fetcher waits for it

	// Each safe for concurrent use.
	pause    pause
	isShed   atomic.Bool  // the tasks that wait longest are about to be discarded
	isBusy   atomic.Bool  // a goroutine decides
	pairs    atomic.Int32 // of consumers that messages are received from
	received shards.Counts
	counts   counts
}

// registration is what Register and its kin pass on.
type registration struct {
	name      ledger.Kind
	guarantee Guarantee
	config    *KindConfig
	handler   Handler
	acquire   func(context.Context) (attempt.Conn, error) // for its transaction; nil: its effects are elsewhere
}

func (p *Pool) register(r registration) error {
	config, err := r.config.withDefaults(r.guarantee, p.config.AckWait)
	if err == nil {
		err = r.name.Validate()
	}
	if err != nil {
		return fmt.Errorf("workers: register kind %q: %w", r.name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ran {
		return fmt.Errorf("workers: register kind %q: the pool runs already", r.name)
	}
	if p.byName[r.name] != nil {
		return fmt.Errorf("workers: register kind %q: it is registered already", r.name)
	}
	k := p.newKind(r, config)
	p.kinds = append(p.kinds, k)
	p.byName[r.name] = k
	return nil
}

func (p *Pool) newKind(r registration, config KindConfig) *kind {
	k := &kind{
		pool: p, guarantee: r.guarantee, handler: r.handler, config: config,
		hooks:     withoutNil(slices.Concat(p.config.Hooks, config.Hooks)),
		line:      slots.NewLine[*run](config.Slots),
		undecided: queue.New[*attempt.Task](),
	}
	k.reversed = slices.Clone(k.hooks)
	slices.Reverse(k.reversed)
	if config.WhenFull == FetcherRuns {
		k.readied = make(chan struct{}, 1)
	}
	k.Kind = &attempt.Kind{
		Runner: p.runner, Name: r.name, Acquire: r.acquire, Once: r.guarantee == AtMostOnce,
		Timeout: config.Timeout, Retry: config.Retry, MaxLost: config.MaxLost, StartedAfter: config.StartedAfter, Shared: config.Together,
		Logger: p.config.Logger.With("kind", string(r.name)), Errors: vocabulary{}, NotifiesHooks: len(k.hooks) > 0,
		Tasks: inflight.New[*attempt.Attempt](inflight.Config{
			NATS: p.config.NATS, Slots: config.WhenFull.fits(config.Slots), Width: config.Together, Ahead: p.aheadTime, Next: k.addAgain,
		}),
		Again: k.decideAgain, Companion: k.companion, HasCompanion: k.hasCompanion,
	}
	return k
}

// KindName implements shards.Kind.
func (k *kind) KindName() ledger.Kind { return k.Name }

// HasShards implements shards.Kind.
func (k *kind) HasShards(set ledger.ShardSet) bool { return k.Tasks.HasShards(set) }

// slots returns how many of the kind's handlers may run at a time.
func (k *kind) slots() int { return k.pool.slots.LineSlots(k.line) }

// kindNames returns the names of kinds, sorted.
func kindNames(kinds []*kind) []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = string(k.Name)
	}
	slices.Sort(names)
	return names
}
