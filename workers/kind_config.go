package workers

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// Defaults of [KindConfig].
const (
	defaultSlots        = 8  // of an ExactlyOnce kind
	defaultSlotsOutside = 64 // of a kind whose effects are elsewhere
	defaultTimeout      = 15 * time.Minute
	defaultMaxLost      = 5
	defaultStartedAfter = time.Second
)

const (
	// maxBatch is how many tasks are decided, or outcomes recorded, in one statement.
	maxBatch = ledger.AppendBatch
	maxSlots = 10_000
	// maxTogether bounds how many tasks one failure undoes.
	maxTogether = 100
)

// KindConfig configures how a pool works on the tasks of one kind. Nil means all defaults.
type KindConfig struct {
	// Guarantee is how often the effects of a task may happen, see [Handle]. Default: ExactlyOnce for a handler with a
	// transaction, AtLeastOnce for one without.
	Guarantee Guarantee
	// Slots is how many handlers of the kind run at a time in this process. [Pool.SetKindSlots] changes it. Default:
	// 8 for ExactlyOnce, 64 for the others.
	Slots int
	// Together is how many tasks of an ExactlyOnce kind may share a transaction. While more tasks wait than there are
	// slots, a slot runs the handlers of several tasks, one after the other, and commits once. For handlers of a few
	// milliseconds that rarely fail, this costs a fraction of separate transactions.
	//
	// Unless all of them succeed, the transaction is rolled back and each task is tried again alone, so a handler may
	// run once more than its task has attempts. Locks, settings (set local) and temporary tables of one handler are
	// visible to the next. After 20 ms no further task joins. A task with a deadline or an earlier failure runs alone.
	// At most 100. Default: 1, not shared.
	Together int
	// Timeout bounds one attempt. When it ends, the handler's context is cancelled, and the attempt fails unless the
	// handler still returns nil. Attempts share timers, so one may last a hundredth longer. Negative: no limit.
	// Default: 15 min.
	Timeout time.Duration
	// Retry decides when a task whose attempt failed is tried again, and after how many failures it is buried. A
	// policy of the task (ledger.EnqueueOptions.Retry) takes precedence. Default: the zero policy, n⁴ seconds after
	// the n-th failure, and 25 attempts.
	Retry ledger.RetryPolicy
	// MaxLost is the number of workers lost in a row while they ran a task, after which it is buried: it seems to kill
	// its workers. A low number may bury other tasks that ran in the same workers. Default: 5.
	MaxLost int
	// Middleware is called around the handler, inside the hooks and the attempt's transaction. The first one is the
	// outermost; nil is skipped. Package watermill adapts Watermill's. Default: disabled.
	Middleware []Middleware
	// Replaces is the guarantee of the kind's workers before a deploy that changes it; workers with it may still run.
	// Until the last of them has ended, the weaker of both guarantees applies; they cannot start again. Default:
	// disabled; Run returns a [*GuaranteeError] if such a worker lives.
	Replaces Guarantee
	// Hooks are called for this kind alone, within [Config].Hooks. Default: disabled.
	Hooks []Hook

	startedAfter time.Duration // how long an attempt may take before its start is recorded; 0: the default
}

// Validate reports every fault at once. Nil is valid.
func (c *KindConfig) Validate() error {
	g := ExactlyOnce
	if c != nil && c.Guarantee != "" {
		g = c.Guarantee
	}
	if _, err := c.withDefaults(g, defaultLeaseTTL); err != nil {
		return fmt.Errorf("workers: invalid KindConfig: %w", err)
	}
	return nil
}

func (c *KindConfig) withDefaults(g Guarantee, leaseTTL time.Duration) (KindConfig, error) {
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
	positive("Slots", &full.Slots, g.slots(), maxSlots)
	positive("Together", &full.Together, 1, maxTogether)
	if full.Together > 1 && g != ExactlyOnce {
		faults = append(faults, fmt.Errorf("Together must be 1 unless the kind is ExactlyOnce, got %d", full.Together))
	}
	positive("MaxLost", &full.MaxLost, defaultMaxLost, 1_000_000)
	if err := full.Retry.Validate(); err != nil {
		faults = append(faults, err)
	}
	if full.Timeout == 0 {
		full.Timeout = defaultTimeout
	}
	if full.startedAfter == 0 { // the start must be recorded before another worker may get the task
		full.startedAfter = min(defaultStartedAfter, leaseTTL/3)
	}
	for _, named := range []struct {
		name  string
		value Guarantee
	}{{"Guarantee", c.Guarantee}, {"Replaces", c.Replaces}} {
		if !slices.Contains([]Guarantee{"", ExactlyOnce, AtLeastOnce, AtMostOnce}, named.value) {
			faults = append(faults, fmt.Errorf("%s must be a guarantee, got %q", named.name, named.value))
		}
	}
	return full, errors.Join(faults...)
}

// setPositive replaces a zero n by its default, and returns an error if n is out of bounds.
func setPositive(name string, n *int, otherwise, most int) error {
	if *n == 0 {
		*n = otherwise
	}
	if *n < 1 || *n > most {
		return fmt.Errorf("%s must be between 1 and %d, got %d", name, most, *n)
	}
	return nil
}

// wrap puts middleware around a handler.
func wrap(h Handler, middleware []Middleware) Handler {
	for _, m := range slices.Backward(middleware) {
		if m != nil {
			h = m(h)
		}
	}
	return h
}

// slots returns the default number of slots of a kind.
func (g Guarantee) slots() int {
	if g == ExactlyOnce {
		return defaultSlots
	}
	return defaultSlotsOutside
}
