package outbox_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

// What the feed's audit delivers late is published as any other event, behind later ones of its
// task; where one cannot tell which event was missed, all of the stretch come again and are
// repetitions for the stream.
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
			var missed, duplicates atomic.Int64
			b.relay(func(c *outbox.Config) {
				c.Hooks = []outbox.Hook{&hookFuncs{
					missed:     func(n int) { missed.Add(int64(n)) },
					duplicates: func(n int) { duplicates.Add(int64(n)) },
				}}
			})
			b.settle() // there is a stream
			events := 10 + len(hidden)
			b.await("the late ones to be published", func() bool { return b.state().Msgs == uint64(events) })
			var order []ledger.Version
			for _, d := range b.deliveries() {
				if slices.Contains(hidden, d.Key.BizID) {
					order = append(order, d.Version)
				}
			}
			late := slices.Concat(slices.Repeat([]ledger.Version{2}, len(hidden)), slices.Repeat([]ledger.Version{1}, len(hidden)))
			if !slices.Equal(order, late) {
				t.Errorf("versions of the tasks with a late event: %v, want %v", order, late)
			}
			if missed.Load() != int64(len(hidden)) {
				t.Errorf("%d events were reported as missed, want %d", missed.Load(), len(hidden))
			}
			if len(hidden) > 1 {
				b.await("the others to be refused as repetitions", func() bool { return duplicates.Load() == 10 })
			}
		})
	}
}

// hideFirstEvents spoils the pages of the feed: they do not show version 1 of some tasks.
func (b *bundle) hideFirstEvents(ids ...ledger.BizID) {
	b.t.Helper()
	var definition string
	if err := b.pool.QueryRow(b.ctx(), `select pg_get_functiondef('taskledger.feed_page'::regproc)`).Scan(&definition); err != nil {
		b.t.Fatal(err)
	}
	const top = "and e.position <= feed_page.top"
	var hidden []string
	for _, id := range ids {
		hidden = append(hidden, "'"+string(id)+"'")
	}
	spoiled := strings.Replace(definition, top, top+" and not (e.version = 1 and e.biz_id in ("+strings.Join(hidden, ", ")+"))", 1)
	if spoiled == definition {
		b.t.Fatal("the pages are not spoiled")
	}
	if _, err := b.pool.Exec(b.ctx(), spoiled); err != nil {
		b.t.Fatal(err)
	}
}
