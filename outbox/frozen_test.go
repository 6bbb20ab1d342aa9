package outbox_test

import (
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

// freezeRelay runs a relay process that stops at a crash point, and waits until its lease has ended.
func (b *bundle) freezeRelay(point string, environment ...string) *os.Process {
	b.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), relayDatabase+"="+b.pool.Config().ConnString(), relayNATS+"="+b.server.URL(),
		relayFreeze+"="+point)
	cmd.Env = append(cmd.Env, environment...)
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	b.await("the relay process leads", func() bool { return b.status().Relay != nil && b.status().Relay.Alive })
	b.await("its lease has ended", func() bool { return !b.status().Relay.Alive })
	return cmd.Process
}

// A relay process is stopped before it publishes withheld messages. Another relay takes its lease, and leaves these
// messages out, because the stream is nearly full when the next events of their tasks come. The process continues, and
// publishes none of them behind these events.
func TestFrozenRelayPublishesNothing(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	first := b.relay(smallStream)
	work := b.awaitWorkers("mail.send")
	b.workers("large.send")
	b.enqueueSized("large.send", "order-", 1, 1, 30_000) // more than the share of kinds without workers
	b.awaitPublished()
	const tasks = 300
	b.enqueueSized("mail.send", "order-", tasks, tasks, 1000)
	b.awaitPublished()
	b.await("the mark has what was refilled", func() bool {
		return slices.Equal(b.status().Withheld, []ledger.Kind{"mail.send"})
	})
	first.end()
	b.takeAll(work)

	frozen := b.freezeRelay(outbox.FaultRefill, relaySmall+"=yes")
	for _, kind := range []ledger.Kind{"mail.send", "large.send"} { // no relay refills them
		if err := b.stream().DeleteConsumer(b.ctx(), stream.Durable(kind, ledger.AllShards)); err != nil {
			t.Fatal(err)
		}
	}
	b.appendEach("mail.send", "order-", tasks, ledger.EventCancelled)
	second := b.relay(smallStream)
	b.awaitPublished()
	last := b.state().LastSeq
	if err := frozen.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	second.end()
	b.enqueue("later.send", "order-", 1)
	b.awaitPublished() // by the process
	for _, d := range b.deliveries() {
		if d.seq > last && d.Key.Kind == "mail.send" && d.Version == 1 {
			t.Errorf("%s is on the stream behind the next event of its task", d.ID())
		}
	}
}

// A relay process is stopped while it publishes again what the stream has lost. Another relay does all of that, and no
// new event comes. The process continues, and begins where the other one has ended.
func TestFrozenRelayRepeatsNoRecovery(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	first := b.relay()
	b.enqueue("coupon.send", "order-", 300)
	b.awaitPublished()
	first.end()
	if err := b.js.DeleteStream(b.ctx(), stream.Name); err != nil {
		t.Fatal(err)
	}
	frozen := b.freezeRelay(outbox.FaultPage)
	const window = 100 * time.Millisecond
	b.editStream(func(c *jetstream.StreamConfig) { c.Duplicates = window })
	second := b.relay()
	b.awaitPublished()
	second.end()
	b.await("the stream has forgotten the message ids", func() bool {
		info := b.stream().CachedInfo()
		return info.TimeStamp.Sub(info.State.LastTime) > 2*window
	})
	before := b.state().LastSeq
	if err := frozen.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	b.enqueue("later.send", "order-", 1)
	b.awaitPublished() // by the process
	if n := b.state().LastSeq - before; n != 1 {
		t.Errorf("%d messages, want 1: the process has published the lost ones again", n)
	}
}
