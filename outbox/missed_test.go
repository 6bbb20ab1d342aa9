package outbox_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// An event that the feed's audit delivers late is published after later events of its task. If several events
// are missing, the feed delivers the whole stretch again, and so does the relay.
func TestMissedEventsArePublishedLate(t *testing.T) {
	t.Parallel()
	for name, hidden := range map[string][]ledger.BizID{"one": {"t3"}, "several": {"t3", "t5", "t6"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			b.enqueue("k", "t", 10)
			for _, id := range hidden {
				b.append(ledger.Key{Kind: "k", BizID: id}, 1, ledger.EventSucceeded)
			}
			b.hideFirstEvents(hidden...)
			var missed atomic.Int64
			b.relay(func(c *outbox.Config) {
				c.Hooks = []outbox.Hook{{EventsMissed: func(_ context.Context, n int) { missed.Add(int64(n)) }}}
			})
			b.awaitPublished() // so the stream exists
			events := 10 + len(hidden)
			if len(hidden) > 1 {
				events += 10 // those that the feed had not missed
			}
			b.await("the late events are published", func() bool { return b.state().Msgs == uint64(events) })
			var order []ledger.Version
			appeared := make(map[string]bool)
			for _, d := range b.deliveries() {
				if slices.Contains(hidden, d.Key.BizID) && !appeared[d.ID()] {
					appeared[d.ID()] = true
					order = append(order, d.Version)
				}
			}
			second, first := []ledger.Version{2}, []ledger.Version{1}
			want := slices.Concat(slices.Repeat(second, len(hidden)), slices.Repeat(first, len(hidden)))
			if !slices.Equal(order, want) {
				t.Errorf("versions of the tasks with a late event: %v, want %v", order, want)
			}
			if n, want := missed.Load(), int64(len(hidden)); n != want {
				t.Errorf("%d events were reported as missed, want %d", n, want)
			}
		})
	}
}

// hideFirstEvents breaks the pages of the feed: they lack version 1 of some tasks.
func (b *bundle) hideFirstEvents(ids ...ledger.BizID) {
	b.t.Helper()
	var definition string
	err := b.pool.QueryRow(b.ctx(), `select pg_get_functiondef('taskledger_internal.feed_page'::regproc)`).
		Scan(&definition)
	if err != nil {
		b.t.Fatal(err)
	}
	const top = "and e.position <= feed_page.top"
	var hidden []string
	for _, id := range ids {
		hidden = append(hidden, "'"+string(id)+"'")
	}
	condition := " and not (e.version = 1 and e.biz_id in (" + strings.Join(hidden, ", ") + "))"
	broken := strings.Replace(definition, top, top+condition, 1)
	if broken == definition {
		b.t.Fatalf("the function does not contain %q", top)
	}
	ledgertest.ExecAsOwner(b.t, b.pool, broken)
}
