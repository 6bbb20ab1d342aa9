package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	present := `'snapshot', e.seen::text, 'top', e.top, 'bound', pg_current_xact_id()::text`
	ledgertest.ExecAsOwner(t, b.pool, fmt.Sprintf(listedSQL, present)+`
		insert into taskledger.task_count (kind, state, n, value) values ('waiting.send', 'available', 1, 1000)`)
	b.await("the waiting kind alone to be withheld", func() bool {
		return slices.Equal(b.status().Withheld, []ledger.Kind{"waiting.send"})
	})
}
