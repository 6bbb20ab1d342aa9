package alarm

import (
	"context"
	"time"

	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/ledger"
)

// SetInterval replaces the pause between two polls.
func (c *Config) SetInterval(d time.Duration) { c.interval = d }

// SetRetry replaces the policy for failed deliveries.
func (c *Config) SetRetry(p ledger.RetryPolicy) { c.retry = &p }

// Thresholds returns the thresholds of the conditions of package health.
func (r Rules) Thresholds() map[health.Name]time.Duration { return r.thresholds() }

// Pass is one poll of a watcher.
func (w *Watcher) Pass(ctx context.Context) error { return w.pass(ctx) }

// Send delivers a message without a task.
func (r Receiver) Send(ctx context.Context, m Message) error { return r.send(ctx, m) }

// Statements are all statements of this package by file name.
var Statements = map[string]string{
	"now": nowSQL, "available": availableSQL, "waiting": waitingSQL, "waiting_listed": waitingListedSQL,
	"newest": newestSQL, "list": listSQL, "lock": lockSQL, "receiver": receiverSQL,
}
