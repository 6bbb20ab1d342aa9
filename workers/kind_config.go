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
	// maxTogether bounds what one failure undoes.
	maxTogether = 100
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
	// Middleware is called around the handler, inside the hooks and the attempt's transaction. The
	// first one is the outermost; nil is skipped. Package workers/watermill adapts Watermill's.
	// Default: none.
	Middleware []Middleware
	// WhenFull says what is done while no slot is free and as many tasks wait here as are to wait.
	// Default: StopPulling.
	WhenFull WhenFull
	// Replaces is another guarantee, which workers of the kind had before a deploy that changes it:
	// those may still be at work. Until the last of them has ended, the kind has the weaker of both;
	// they cannot begin again. Default: none, and if one is at work, Run returns a [*GuaranteeError].
	Replaces Guarantee
	// Hooks are called for this kind alone, within those of [Config].Hooks. Nil is skipped.
	Hooks []Hook
}

// Validate reports every fault at once of a kind with guarantee g in a pool with this configuration.
// Nil is valid.
func (c *KindConfig) Validate(g Guarantee, pool Config) error {
	if _, err := c.withDefaults(g, pool.withDefaults().AckWait); err != nil {
		return fmt.Errorf("workers: invalid KindConfig: %w", err)
	}
	return nil
}

func (c *KindConfig) withDefaults(g Guarantee, ackWait time.Duration) (KindConfig, error) {
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
		faults = append(faults, errors.New("Together requires the transaction of an ExactlyOnce handler"))
	}
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
	if !slices.Contains([]Guarantee{"", ExactlyOnce, AtLeastOnce, AtMostOnce}, c.Replaces) {
		faults = append(faults, fmt.Errorf("what it Replaces must be a guarantee, is %q", c.Replaces))
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
