package outbox_test

import (
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

// A relay has no room for withheld events, publishes the next events of their tasks, and is killed before it writes
// the cursor row. The next relay has room. It does not publish the withheld events behind the later ones.
func TestKilledAfterSkippedEvents(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := b.relay(smallStream)
	const tasks = 50
	b.enqueueSized("mail.send", "order-", tasks, tasks, 5000)
	b.awaitPublished()
	r.end()
	if got := b.status().Withheld; len(got) != 1 {
		t.Fatalf("withheld: %v", got)
	}
	b.appendEach("mail.send", "order-", tasks, ledger.EventCancelled)
	b.runKilled(outbox.FaultPublished, 1, relaySmall+"=yes")
	if n := b.state().LastSeq; n < tasks || n >= 2*tasks {
		t.Fatalf("%d messages were published of %d events: the test proves nothing", n, 2*tasks)
	}
	b.relay(largerStream)
	b.enqueue("coupon.send", "order-", 1)
	b.awaitPublished()
	b.await("no kind to be withheld", func() bool { return len(b.status().Withheld) == 0 })
	last := make(map[ledger.Key]ledger.Version)
	seen := make(map[string]bool)
	for _, d := range b.deliveries() {
		if !seen[d.ID()] && d.Version < last[d.Key] {
			t.Errorf("%s appears after version %d", d.ID(), last[d.Key])
		}
		if seen[d.ID()] {
			t.Errorf("%s is on the stream twice", d.ID())
		}
		seen[d.ID()] = true
		last[d.Key] = max(last[d.Key], d.Version)
	}
}
