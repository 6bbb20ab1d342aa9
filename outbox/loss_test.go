package outbox_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

// Each loss hits a stream of 1200 messages, while a relay works or while none runs, and new events follow. In
// the end all events are on the stream again.
func TestLoss(t *testing.T) {
	losses := []struct {
		name string
		lose func(*bundle)
	}{
		{name: "wiped", lose: func(b *bundle) {
			b.server.Stop()
			if err := b.server.Wipe(); err != nil {
				b.t.Fatal(err)
			}
			b.restart()
		}},
		{name: "deleted", lose: func(b *bundle) {
			if err := b.js.DeleteStream(b.ctx(), stream.Name); err != nil {
				b.t.Fatal(err)
			}
		}},
	}
	for _, l := range losses {
		for _, working := range []bool{true, false} {
			name := l.name + " while no relay runs"
			if working {
				name = l.name + " while a relay works"
			}
			t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
				t.Parallel()
				b := newBundle(t)
				r := b.relay(smallPages)
				b.history()
				b.awaitPublished()
				if !working {
					r.end()
				}
				l.lose(b)
				if !working {
					b.relay(smallPages)
				}
				b.await("the generation is 2", func() bool { return b.generation() == 2 })
				b.enqueue("coupon.send", "after-", 300)
				b.awaitPublished()
				b.check()
				if got := b.generation(); got != 2 {
					t.Errorf("generation %d, want 2: the relay repaired one loss more than once", got)
				}
			})
		}
	}
}

// history enqueues 1000 tasks and starts 200 of them.
func (b *bundle) history() {
	b.t.Helper()
	b.enqueue("coupon.send", "order-", 1000)
	var requests []ledger.AppendRequest
	for i := range 200 {
		r := ledger.AppendRequest{Key: orderKey(i), Expected: 1, Type: ledger.EventStarted, Actor: "test"}
		requests = append(requests, r)
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
	b.awaitConnected()
}

// awaitConnected waits until the running server answers the bundle's connection. After a restart, IsConnected alone
// can still be of the server that was stopped.
func (b *bundle) awaitConnected() {
	b.t.Helper()
	b.await("NATS to answer", func() bool { return b.nc.IsConnected() && b.nc.FlushTimeout(time.Second) == nil })
}

func (b *bundle) purge(options ...jetstream.StreamPurgeOpt) {
	b.t.Helper()
	if err := b.stream().Purge(b.ctx(), options...); err != nil {
		b.t.Fatal(err)
	}
}

// backup copies the server's directory and returns a function that restores the copy. The server must be
// stopped for both.
func (b *bundle) backup() (restore func()) {
	b.t.Helper()
	copied := filepath.Join(b.t.TempDir(), "copy")
	store := filepath.Join(b.dir, "store")
	if err := os.CopyFS(copied, os.DirFS(store)); err != nil {
		b.t.Fatal(err)
	}
	return func() {
		b.t.Helper()
		if err := os.RemoveAll(store); err != nil {
			b.t.Fatal(err)
		}
		if err := os.CopyFS(store, os.DirFS(copied)); err != nil {
			b.t.Fatal(err)
		}
	}
}

func TestTailLost(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay(smallPages)
	b.history()
	b.awaitPublished()
	b.server.Stop()
	restore := b.backup()
	b.restart()
	b.enqueue("coupon.send", "tail-", 500)
	b.awaitPublished()
	b.server.Stop()
	restore()
	b.restart()
	b.await("the generation is 2", func() bool { return b.generation() == 2 })
	b.enqueue("coupon.send", "after-", 100)
	b.awaitPublished()
	started := 0
	for _, d := range b.check() {
		if d.Type == ledger.EventStarted {
			started++
		}
	}
	if started != 200 {
		t.Errorf("%d messages of the 200 started events: the relay published again what was not lost", started)
	}
}

// Messages that reach their maximum age are not a loss.
func TestExpiryIsNotALoss(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay(func(c *outbox.Config) { c.Stream.MaxAge = 3 * time.Second })
	b.enqueue("coupon.send", "order-", 500)
	b.awaitPublished()
	b.await("the messages have expired", func() bool { return b.state().Msgs == 0 })
	b.enqueue("coupon.send", "after-", 10)
	b.awaitPublished()
	b.await("these messages have expired", func() bool { return b.state().Msgs == 0 })
	if got := b.generation(); got != 1 {
		t.Errorf("generation %d, want 1: the relay treated an expiry as a loss", got)
	}
}

// forget deletes the stream, and all cursor rows but the newest.
func (b *bundle) forget() {
	b.t.Helper()
	_, err := b.pool.Exec(b.ctx(),
		`delete from taskledger.cursor c where c.n < (select max(n) from taskledger.cursor)`)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.js.DeleteStream(b.ctx(), stream.Name); err != nil {
		b.t.Fatal(err)
	}
}

// Without older cursor rows, the relay goes on at the newest: a new stream has the events from then on.
func TestLossWithoutOlderRows(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := b.relay()
	b.enqueue("coupon.send", "order-", 30)
	b.awaitPublished()
	r.end()
	b.forget()
	b.relay()
	b.enqueue("coupon.send", "after-", 10)
	b.await("the stream has the new events", func() bool {
		s := b.status()
		return s.Generation == 2 && s.Stream != nil && s.Stream.Messages == 10
	})
}

// A relay that is killed while it publishes lost events again leaves none out, and none twice.
func TestKilledAfterALoss(t *testing.T) {
	for _, point := range []string{fault.RelayPage, fault.RelayPublished} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			r := b.relay(smallPages)
			b.history()
			b.awaitPublished()
			r.end()
			if err := b.js.DeleteStream(b.ctx(), stream.Name); err != nil {
				t.Fatal(err)
			}
			b.runKilled(point, 1)
			b.runKilled(point, 2)
			b.relay()
			b.await("the stream has all events", func() bool { return b.state().LastSeq >= 1200 })
			b.awaitPublished()
			b.checkOnce()
			if got := b.generation(); got != 2 {
				t.Errorf("generation %d, want 2", got)
			}
		})
	}
}

// A killed relay leaves a page without a cursor row, which is then purged: the next one publishes it again.
func TestPurgedPage(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.enqueue("coupon.send", "order-", 300)
	b.runKilled(fault.RelayPublished, 1)
	if b.state().Msgs == 0 {
		t.Fatal("nothing was published before the kill")
	}
	b.purge()
	b.relay(smallPages)
	b.awaitPublished()
	b.check()
	if got := b.generation(); got != 1 {
		t.Errorf("generation %d, want 1", got)
	}
}
