package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// pageSignal is a hook that signals a page.
type pageSignal struct {
	outbox.HookDefaults
	c chan struct{}
}

func (h pageSignal) PageAdvanced(context.Context) {
	select {
	case h.c <- struct{}{}:
	default:
	}
}

// A kind without workers fills the share of such kinds, so that tasks of another one are withheld. All of these are
// cancelled while no relay runs. A relay publishes some of these events, of which others are in the same window, and
// another relay publishes the rest. When the projector has come so far, the cancelled kind is not withheld any more,
// although no event follows.
func TestFinishedKindOfARelayThatBeginsInAWindow(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	small := func(c *outbox.Config) {
		c.SetPageSize(5)
		c.Stream.MaxBytes = 1 << 20
	}
	first := b.relay(small)
	b.enqueue("waiting.send", "order-", 1000)
	b.awaitPublished()
	const tasks = 500
	b.enqueue("cancelled.send", "order-", tasks)
	b.awaitPublished()
	first.end()
	if diff := cmp.Diff([]ledger.Kind{"cancelled.send", "waiting.send"}, b.status().Withheld); diff != "" {
		t.Fatalf("withheld kinds: %s", diff)
	}
	b.appendEach("cancelled.send", "order-", tasks, ledger.EventCancelled)
	signal := pageSignal{c: make(chan struct{}, 1)}
	second := b.relay(small, func(c *outbox.Config) { c.Hooks = append(c.Hooks, signal) })
	<-signal.c
	second.end()
	var isInWindow bool
	err := b.pool.QueryRow(b.ctx(), `
		select c.until is not null from taskledger.cursors c where c.reader = 'relay' order by c.n desc limit 1`,
	).Scan(&isInWindow)
	if err != nil || !isInWindow {
		t.Fatalf("the second relay has stopped in a window: %t, %v", isInWindow, err)
	}

	b.relay(small)
	b.awaitPublished()
	b.awaitWithheldWhileWaiting("waiting.send")
}

// awaitWithheldWhileWaiting counts, as the projector, that only tasks of a kind wait, and waits until it alone is
// withheld.
func (b *bundle) awaitWithheldWhileWaiting(kind ledger.Kind) {
	b.t.Helper()
	present := `'snapshot', e.seen::text, 'top', e.top, 'bound', pg_current_xact_id()::text`
	ledgertest.ExecAsOwner(b.t, b.pool, fmt.Sprintf(listedSQL, present)+fmt.Sprintf(`
		insert into taskledger.task_count (kind, state, n, value) values ('%s', 'available', 1, 1000)`, kind))
	b.await("the waiting kind alone to be withheld", func() bool {
		return slices.Equal(b.status().Withheld, []ledger.Kind{kind})
	})
}

// An asynchronous standby is promoted that lacks published events and what the projector has counted since then. The
// relay keeps its lease. When the projector has come as far again, the cancelled kind is not withheld any more,
// although no event follows. A subscriber that stays away keeps the relay from removing messages: to the promoted
// server, that would be a loss of the stream, after which the relay begins anew.
func TestFinishedKindAfterALossyFailOver(t *testing.T) {
	t.Parallel()
	pair := servicetest.NewPair(t)
	b := newBundleOn(t, pair.DB, natsserver.Config{})
	var terms atomic.Int64
	b.relay(func(c *outbox.Config) {
		c.LeaseTTL = time.Hour // it keeps the lease, however long the promotion takes
		c.Stream.MaxBytes = 1 << 20
		c.Hooks = []outbox.Hook{&hookFuncs{leading: func(is bool) {
			if is {
				terms.Add(1)
			}
		}}}
	})
	b.enqueue("waiting.send", "order-", 500)
	b.awaitPublished()
	absent := jetstream.ConsumerConfig{Durable: "absent", AckPolicy: jetstream.AckExplicitPolicy}
	if _, err := b.stream().CreateConsumer(b.ctx(), absent); err != nil {
		t.Fatal(err)
	}
	const tasks = 250
	b.enqueue("cancelled.send", "order-", tasks)
	b.awaitPublished()
	b.appendEach("cancelled.send", "order-", tasks, ledger.EventCancelled)
	b.awaitPublished()
	both := []ledger.Kind{"cancelled.send", "waiting.send"}
	if diff := cmp.Diff(both, b.status().Withheld); diff != "" {
		t.Fatalf("withheld kinds: %s", diff)
	}
	pair.Separate()
	b.enqueue("lost.send", "order-", 1)
	b.awaitPublished()
	b.awaitWithheldWhileWaiting("waiting.send")
	pair.FailOver()
	if diff := cmp.Diff(both, b.status().Withheld); diff != "" {
		t.Fatalf("withheld kinds after the fail-over: %s", diff)
	}
	b.awaitWithheldWhileWaiting("waiting.send")
	if got := terms.Load(); got != 1 {
		t.Errorf("the relay had the lease %d times, want once", got)
	}
}
