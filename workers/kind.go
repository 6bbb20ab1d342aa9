package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
)

// Defaults of [KindConfig].
const (
	DefaultSlots        = 8  // of an ExactlyOnce kind
	DefaultSlotsOutside = 64 // of a kind whose effects are elsewhere
	DefaultTimeout      = 15 * time.Minute
	DefaultMaxLost      = 5
	DefaultStartedAfter = time.Second
)

const (
	// maxBatch is how many tasks are decided, or outcomes recorded, in one statement.
	maxBatch = ledger.AppendBatch
	maxSlots = 10_000
	// maxAbandonAfter is the grace of a handler whose context is done.
	maxAbandonAfter = 5 * time.Second
)

// KindConfig says how tasks of one kind are worked on. Nil means all defaults.
type KindConfig struct {
	// Slots is how many of its handlers run at a time in this process. [Pool.SetKindSlots] changes
	// it. Default 8 for ExactlyOnce, 64 for the others.
	Slots int
	// Together is how many tasks may share a transaction at the most, ExactlyOnce only: while more
	// tasks wait than there are slots, a slot runs the handlers of several, one after the other, and
	// commits once. That costs a fraction, where the transactions are short: for handlers of some
	// milliseconds that seldom return an error. Unless all of them succeed it is undone, and each
	// task is tried again alone, so a handler may run once more than its task has attempts. What one
	// leaves in the transaction the next one finds: locks, settings (set local), temporary tables. It
	// takes in no more after 20 ms. A task with a deadline, or that failed before, is run alone. At
	// most 100. Default 1: none share.
	Together int
	// Timeout bounds one attempt: the handler's context ends then, and the attempt has failed
	// unless the handler returns nil all the same. Attempts share their ends, so it may last a
	// hundredth longer. Default 15 min; negative: none.
	Timeout time.Duration
	// Retry says when a task whose attempt failed is tried again, and after how many failures it
	// is buried; a task may have its own (ledger.EnqueueOptions.Retry). Default: the zero policy,
	// n⁴ seconds after the n-th failure, and 25 attempts.
	Retry ledger.RetryPolicy
	// MaxLost is the number of workers lost in a row, while they ran it, after which a task is
	// buried: it seems to kill its workers. A low number may hit bystanders. Default 5.
	MaxLost int
	// StartedAfter is how long an attempt may take before its start is recorded: quick tasks
	// have one event less. Default 1 s or a third of AckWait, whichever is shorter; at most half
	// of AckWait.
	StartedAfter time.Duration
	// Middleware is Watermill's, around each attempt and within its transaction; the first one
	// is the outermost. The attempt is what it returns: its error fails it and rolls back. Acks
	// have no say, a nack fails it. See docs/watermill.md for those that fit.
	Middleware []message.HandlerMiddleware
	// Produces is the kind of the tasks that messages become which a handler or its middleware
	// returns: they are enqueued in the attempt's transaction, so ExactlyOnce only. Empty:
	// returning messages fails the attempt.
	Produces ledger.Kind
	// WhenFull says what is done while no slot is free and as many tasks wait here as are to wait.
	// Default: StopPulling.
	WhenFull WhenFull
	// Replaces is another guarantee, which workers of the kind had before a deploy that changes it:
	// those may still be at work. Until the last of them has ended, the kind has the weaker of both;
	// they cannot begin again. Default: none, and if one is at work, Run returns a [*GuaranteeError].
	Replaces Guarantee
	// Hooks are those of this kind alone, within those of [Config].Hooks.
	Hooks []any
}

func (c *KindConfig) withDefaults(slots int, ackWait time.Duration) (KindConfig, error) {
	if c == nil {
		c = &KindConfig{}
	}
	full := *c
	var faults []error
	positive := func(name string, n *int, otherwise, most int) {
		if err := setPositive(name, n, otherwise, most); err != nil {
			faults = append(faults, err)
		}
	}
	positive("Slots", &full.Slots, slots, maxSlots)
	positive("Together", &full.Together, 1, maxTogether)
	positive("MaxLost", &full.MaxLost, DefaultMaxLost, 1_000_000)
	if err := full.Retry.Validate(); err != nil {
		faults = append(faults, err)
	}
	if full.WhenFull == "" {
		full.WhenFull = StopPulling
	}
	if err := full.WhenFull.validate(); err != nil {
		faults = append(faults, err)
	}
	if full.Timeout == 0 {
		full.Timeout = DefaultTimeout
	}
	if full.StartedAfter == 0 {
		full.StartedAfter = min(DefaultStartedAfter, ackWait/3)
	}
	// The start must be on record before anybody else may get the message.
	if most := ackWait / 2; full.StartedAfter < 0 || full.StartedAfter > most {
		faults = append(faults, fmt.Errorf("StartedAfter must be 0 to %s (half of AckWait), is %s", most, full.StartedAfter))
	}
	if c.Produces != "" {
		if err := c.Produces.Validate(); err != nil {
			faults = append(faults, fmt.Errorf("what it Produces: %w", err))
		}
	}
	if !slices.Contains([]Guarantee{"", ExactlyOnce, AtLeastOnce, AtMostOnce}, c.Replaces) {
		faults = append(faults, fmt.Errorf("what it Replaces must be a guarantee, is %q", c.Replaces))
	}
	if err := checkHooks(c.Hooks); err != nil {
		faults = append(faults, err)
	}
	return full, errors.Join(faults...)
}

// setPositive gives n its default if it is 0, and returns an error if it is out of its bounds.
func setPositive(name string, n *int, otherwise, most int) error {
	if *n == 0 {
		*n = otherwise
	}
	if *n < 1 || *n > most {
		return fmt.Errorf("%s must be 1 to %d, is %d", name, most, *n)
	}
	return nil
}

// Register adds a kind whose handler's effects are rows of the same database: they are
// committed together with the task's succeeded event, or not at all (ExactlyOnce). The handler
// returns nil to commit and an error to roll back and try again; it cannot end the transaction
// itself, but may open savepoints (tx.Begin). It must not use tx after it returned, nor from
// several goroutines at a time. A task without args has the zero value of A.
//
// It must be called before [Pool.Run], once per kind. It returns an error if the kind is
// registered already or c is invalid, naming every fault.
func Register[A any](p *Pool, k ledger.TypedKind[A], handler func(ctx context.Context, tx pgx.Tx, job *Job, args A) error, c *KindConfig) error {
	return p.register(k.Name(), ExactlyOnce, c, c.wrap(decoding(k, handler)))
}

// decoding returns a handler without the type of its args.
func decoding[A any](k ledger.TypedKind[A], handler func(ctx context.Context, tx pgx.Tx, job *Job, args A) error) handlerFunc {
	return func(ctx context.Context, tx pgx.Tx, job *Job, payload []byte) error {
		args, err := k.Decode(payload)
		if err != nil {
			return &argsError{err}
		}
		return handler(ctx, tx, job, args)
	}
}

// RegisterAtLeastOnce adds a kind whose handler has effects outside of the database. It may run
// more than once for a task, also after it has succeeded, if the process ends before that is
// recorded: give the outside system job.Key as its idempotency key. Successes are recorded in
// groups. In everything else it is like [Register].
func RegisterAtLeastOnce[A any](p *Pool, k ledger.TypedKind[A], handler func(ctx context.Context, job *Job, args A) error, c *KindConfig) error {
	return p.register(k.Name(), AtLeastOnce, c, c.wrap(func(ctx context.Context, _ pgx.Tx, job *Job, payload []byte) error {
		args, err := k.Decode(payload)
		if err != nil {
			return &argsError{err}
		}
		return handler(ctx, job, args)
	}))
}

// handlerFunc is a handler without the type of its args. Its tx is nil if its effects are
// elsewhere.
type handlerFunc func(ctx context.Context, tx pgx.Tx, job *Job, payload []byte) error

// kind is what a pool keeps for one kind: the way of a message goes from consume through
// undecided (the head is read) and its line (a slot is waited for) to the handler, and its task
// stays in hand until its outcome is recorded.
type kind struct {
	pool      *Pool
	name      ledger.Kind
	guarantee Guarantee
	handler   handlerFunc
	hooks     hooks
	acquire   func(context.Context) (handlerConn, error) // for its transaction
	config    KindConfig
	timeouts  timeouts
	logger    *slog.Logger

	pause     pause
	shed      atomic.Bool  // what waits longest is about to be discarded
	pairs     atomic.Int32 // of consumers that messages are received from
	mine      shardCounts  // for which shards
	hand      *hand
	undecided *queue[*held]
	deciding  atomic.Bool   // somebody is at it
	line      line          // of what is ready
	readied   chan struct{} // holds a token if something may have become ready; nil: nobody wants to know

	running atomic.Int32 // handlers that run
	overdue atomic.Int32 // of them by handlers that were given up
	counts  counts
}

func (p *Pool) register(name ledger.Kind, guarantee Guarantee, c *KindConfig, handler handlerFunc) error {
	return p.registerOn(p.acquire, name, guarantee, c, handler)
}

// registerOn is register for handlers whose transactions have connections of their own sort.
func (p *Pool) registerOn(acquire func(context.Context) (handlerConn, error), name ledger.Kind, guarantee Guarantee, c *KindConfig, handler handlerFunc) error {
	config, err := c.withDefaults(guarantee.slots(), p.config.AckWait)
	if err == nil {
		err = name.Validate()
	}
	if err == nil && config.Produces != "" && guarantee != ExactlyOnce {
		err = errors.New("what it Produces needs the transaction of an ExactlyOnce handler")
	}
	if err == nil && config.Together > 1 && guarantee != ExactlyOnce {
		err = errors.New("tasks that run Together need the transaction of an ExactlyOnce handler")
	}
	if err != nil {
		return fmt.Errorf("workers: register kind %q: %w", name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ran {
		return fmt.Errorf("workers: register kind %q: the pool runs already", name)
	}
	if p.byName[name] != nil {
		return fmt.Errorf("workers: register kind %q: it is registered already", name)
	}
	k := &kind{
		pool: p, name: name, guarantee: guarantee, acquire: acquire, handler: handler, config: config,
		hooks:     newHooks(slices.Concat(p.config.Hooks, config.Hooks)...),
		logger:    p.config.Logger.With("kind", string(name)),
		hand:      newHand(p.config.NATS, config.WhenFull.fits(config.Slots), config.Together, p.aheadTime),
		undecided: newQueue[*held](),
		line:      line{slots: config.Slots},
	}
	if config.WhenFull == FetcherRuns {
		k.readied = make(chan struct{}, 1)
	}
	p.kinds = append(p.kinds, k)
	p.byName[name] = k
	return nil
}

// warn logs what may happen to many tasks at a time.
func (k *kind) warn(message string, attributes ...any) {
	k.pool.repeated.warn(k.logger, message, attributes...)
}

// slots is how many of the kind's handlers may run at a time.
func (k *kind) slots() int { return k.pool.turns.slotsOf(&k.line) }

// exactlyOnceSlots is how many transactions the kinds could have open at a time.
func exactlyOnceSlots(kinds []*kind) int {
	n := 0
	for _, k := range kinds {
		if k.guarantee == ExactlyOnce {
			n += k.slots()
		}
	}
	return n
}

// kindNames is for the lease's detail.
func kindNames(kinds []*kind) []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = string(k.name)
	}
	slices.Sort(names)
	return names
}
