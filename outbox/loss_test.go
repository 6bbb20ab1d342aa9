package outbox_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

// Each loss happens to a stream of 1200 messages under a relay at work or while none is, and is
// followed by new events. Afterwards everything is on the stream again.
func TestLoss(t *testing.T) {
	losses := []struct {
		name string
		lose func(*bundle)
	}{
		{"wiped", func(b *bundle) {
			b.server.Stop()
			if err := b.server.Wipe(); err != nil {
				b.t.Fatal(err)
			}
			b.restart()
		}},
		{"deleted", func(b *bundle) {
			if err := b.js.DeleteStream(b.ctx(), stream.Name); err != nil {
				b.t.Fatal(err)
			}
		}},
		{"purged", func(b *bundle) { b.purge() }},
		{"purged in part", func(b *bundle) { b.purge(jetstream.WithPurgeSequence(700)) }},
		{"a kind purged", func(b *bundle) { b.purge(jetstream.WithPurgeSubject("ledger.*.started.coupon.send")) }},
		{"one deleted in the middle", func(b *bundle) { b.remove(600) }},
		{"the last deleted", func(b *bundle) { b.remove(b.state().LastSeq) }},
		{"the first deleted", func(b *bundle) { b.remove(1) }},
	}
	for _, l := range losses {
		for _, atWork := range []bool{true, false} {
			name := l.name + " while no relay works"
			if atWork {
				name = l.name + " under a relay"
			}
			t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
				t.Parallel()
				b := newBundle(t)
				r := b.relay(smallPages)
				b.history()
				b.settle()
				if !atWork {
					r.end()
				}
				l.lose(b)
				if !atWork {
					b.relay(smallPages)
				}
				b.await("a new generation", func() bool { return b.generation() == 2 })
				b.enqueue("coupon.send", "after-", 300)
				b.settle()
				b.check()
				if got := b.generation(); got != 2 {
					t.Errorf("generation %d, want 2: one loss was counted more than once", got)
				}
			})
		}
	}
}

func smallPages(c *outbox.Config) { c.SetPageSize(100) }

// history enqueues 1000 tasks and begins 200 of them.
func (b *bundle) history() {
	b.t.Helper()
	b.enqueue("coupon.send", "order-", 1000)
	var requests []ledger.AppendRequest
	for i := range 200 {
		requests = append(requests, ledger.AppendRequest{Key: orderKey(i), Expected: 1, Type: ledger.EventStarted, Actor: "test"})
	}
	for _, r := range ledger.AppendEach(b.ctx(), b.pool, requests) {
		if r.Err != nil {
			b.t.Fatal(r.Err)
		}
	}
}

func (b *bundle) restart() {
	b.t.Helper()
	if err := b.server.Restart(); err != nil {
		b.t.Fatal(err)
	}
	b.reachable()
}

// reachable waits until the bundle's own connection is back.
func (b *bundle) reachable() {
	b.t.Helper()
	b.await("the connection to NATS is back", func() bool { return b.nc.IsConnected() })
}

func (b *bundle) purge(options ...jetstream.StreamPurgeOpt) {
	b.t.Helper()
	if err := b.stream().Purge(b.ctx(), options...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bundle) remove(seq uint64) {
	b.t.Helper()
	if err := b.stream().DeleteMsg(b.ctx(), seq); err != nil {
		b.t.Fatal(err)
	}
}

// backup copies the server's directory and returns what puts the copy in its place. The server
// must be stopped for both.
func (b *bundle) backup() (restore func()) {
	b.t.Helper()
	kept := filepath.Join(b.t.TempDir(), "copy")
	store := filepath.Join(b.dir, "store")
	if err := os.CopyFS(kept, os.DirFS(store)); err != nil {
		b.t.Fatal(err)
	}
	return func() {
		b.t.Helper()
		if err := os.RemoveAll(store); err != nil {
			b.t.Fatal(err)
		}
		if err := os.CopyFS(store, os.DirFS(kept)); err != nil {
			b.t.Fatal(err)
		}
	}
}

func TestTailLost(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay(smallPages)
	b.history()
	b.settle()
	b.server.Stop()
	restore := b.backup()
	b.restart()
	b.enqueue("coupon.send", "tail-", 500)
	b.settle()
	b.server.Stop()
	restore()
	b.restart()
	b.await("a new generation", func() bool { return b.generation() == 2 })
	b.enqueue("coupon.send", "after-", 100)
	b.settle()
	begun := 0
	for _, d := range b.check() {
		if d.Type == ledger.EventStarted {
			begun++
		}
	}
	if begun != 200 {
		t.Errorf("%d messages of the 200 started events: what was certainly there was published again", begun)
	}
}

// A stream that lost its end and has grown again looks as long as it should be; the last
// message known tells.
func TestTailLostAndGrownAgain(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := b.relay(smallPages)
	b.enqueue("coupon.send", "order-", 300)
	b.settle()
	b.server.Stop()
	restore := b.backup()
	b.restart()
	b.enqueue("coupon.send", "tail-", 5)
	b.settle()
	r.end()
	b.server.Stop()
	restore()
	b.restart()
	b.republish(20)
	b.relay(smallPages)
	b.await("a new generation", func() bool { return b.generation() == 2 })
	b.settle()
	b.check()
}

// republish publishes the messages of the first n events once more, as a relay of an earlier
// time might have.
func (b *bundle) republish(n int) {
	b.t.Helper()
	var installation string
	if err := b.pool.QueryRow(b.ctx(), `select value from taskledger.setting where name = 'installation'`).Scan(&installation); err != nil {
		b.t.Fatal(err)
	}
	for e, err := range ledger.Read(b.ctx(), b.pool, 0, n) {
		if err != nil {
			b.t.Fatal(err)
		}
		m := stream.Encode(e, e.Data, stream.Source(installation), 7)
		if _, err := b.js.PublishMsg(b.ctx(), m); err != nil {
			b.t.Fatal(err)
		}
	}
}

// Messages that reach their age are no loss.
func TestAgeIsNoLoss(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay(func(c *outbox.Config) { c.Stream.MaxAge = 3 * time.Second })
	b.enqueue("coupon.send", "order-", 500)
	b.settle()
	b.await("the messages have reached their age", func() bool { return b.state().Msgs == 0 })
	b.enqueue("coupon.send", "after-", 10)
	b.settle()
	b.await("those too", func() bool { return b.state().Msgs == 0 })
	if got := b.generation(); got != 1 {
		t.Errorf("generation %d, want 1: an expiry was taken for a loss", got)
	}
}

// What the cursor rows that are kept do not reach back to comes back as the work messages of
// the tasks that are not finished, and nothing else.
func TestUnfinishedTasksComeBack(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := b.relay()
	b.enqueue("coupon.send", "order-", 30)
	for i := range 10 {
		b.append(orderKey(i), 1, ledger.EventSucceeded)
	}
	for i := 10; i < 15; i++ {
		b.append(orderKey(i), 1, ledger.EventStarted)
	}
	for i := 15; i < 20; i++ {
		b.append(orderKey(i), 1, ledger.EventInterrupted)
	}
	b.append(orderKey(20), 1, ledger.EventFailed) // retrying: a released event will come
	b.settle()
	r.end()
	b.forget()
	b.relay()
	b.await("a new generation", func() bool { return b.generation() == 2 })
	b.enqueue("coupon.send", "after-", 1)
	b.settle()
	want := make(map[ledger.Key]ledger.Version)
	for i := 10; i < 30; i++ {
		want[orderKey(i)] = 1
	}
	for i := 15; i < 20; i++ {
		want[orderKey(i)] = 2
	}
	delete(want, orderKey(20))
	want[ledger.Key{Kind: "coupon.send", BizID: "after-0"}] = 1
	for _, d := range b.deliveries() {
		if want[d.Key] != d.Version || !d.Type.WakesWorkers() || !strings.HasPrefix(string(d.Payload), `{"n":`) {
			t.Errorf("%s %s with payload %q on the stream", d.ID(), d.Type, d.Payload)
		}
		if !strings.HasSuffix(d.header.Get(nats.MsgIdHdr), "#2") {
			t.Errorf("message id %q is not of generation 2", d.header.Get(nats.MsgIdHdr))
		}
		delete(want, d.Key)
	}
	for k := range want {
		t.Errorf("%s did not come back", k)
	}
}

// forget leaves no cursor row but the newest, and no stream.
func (b *bundle) forget() {
	b.t.Helper()
	if _, err := b.pool.Exec(b.ctx(), `delete from taskledger.cursor c where c.n < (select max(n) from taskledger.cursor)`); err != nil {
		b.t.Fatal(err)
	}
	if err := b.js.DeleteStream(b.ctx(), stream.Name); err != nil {
		b.t.Fatal(err)
	}
}

// A relay that is killed while it makes up for a loss leaves the rest to the next.
func TestKilledWhileMakingUpForALoss(t *testing.T) {
	for _, point := range []string{outbox.FaultPage, outbox.FaultPublished} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			r := b.relay()
			b.enqueue("coupon.send", "order-", 3500)
			b.settle()
			r.end()
			b.forget()
			b.killed(point, 1)
			b.killed(point, 2)
			b.relay()
			b.await("nothing is owed", func() bool {
				var owes bool
				err := b.pool.QueryRow(b.ctx(), `select mark->'owed' is not null from taskledger.cursor where reader = 'relay' order by n desc limit 1`).Scan(&owes)
				if err != nil {
					t.Fatal(err)
				}
				return !owes && b.generation() == 2
			})
			b.check()
		})
	}
}

// A page that a killed relay left without a cursor row, and that was purged since: the stream
// remembers its message ids and calls it a duplicate of what is not there.
func TestDuplicatesOfWhatIsGone(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.enqueue("coupon.send", "order-", 300)
	b.killed(outbox.FaultPublished, 1)
	b.purge()
	b.relay(smallPages)
	b.await("a new generation", func() bool { return b.generation() == 2 })
	b.settle()
	b.check()
}
