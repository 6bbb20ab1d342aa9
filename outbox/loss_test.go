package outbox_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
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
		{name: "purged", lose: func(b *bundle) { b.purge() }},
		{name: "purged in part", lose: func(b *bundle) { b.purge(jetstream.WithPurgeSequence(700)) }},
		{name: "a kind purged", lose: func(b *bundle) {
			b.purge(jetstream.WithPurgeSubject("ledger.*.started.coupon.send"))
		}},
		{name: "one deleted in the middle", lose: func(b *bundle) { b.remove(600) }},
		{name: "the last deleted", lose: func(b *bundle) { b.remove(b.state().LastSeq) }},
		{name: "the first deleted", lose: func(b *bundle) { b.remove(1) }},
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

// A task runs when the stream is lost. Its work message is on the stream again, and a new event of it is published
// before the replay has come to its started event: that one is published first.
func TestOwedEventsBetweenWorkAndNews(t *testing.T) {
	b := newBundle(t)
	const finished = 1500 // the replay takes several steps
	b.enqueue("coupon.send", "order-", finished)
	var requests []ledger.AppendRequest
	for i := range finished {
		requests = append(requests, ledger.AppendRequest{Key: orderKey(i), Expected: 1, Type: ledger.EventCancelled})
	}
	for _, r := range ledger.AppendEach(b.ctx(), b.pool, requests) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	running := ledgertest.Key(t, "coupon.print/running")
	ledgertest.Enqueue(t, b.pool, running, "")
	ledgertest.Append(t, b.pool, running, ledger.EventStarted)
	again := ledgertest.Key(t, "coupon.print/again") // its third event is published beside the message of running
	ledgertest.Enqueue(t, b.pool, again, "")
	ledgertest.Append(t, b.pool, again, ledger.EventStarted, ledger.EventInterrupted)
	b.relay()
	b.awaitPublished()

	succeed := sync.OnceFunc(func() { ledgertest.Append(t, b.pool, running, ledger.EventSucceeded) })
	t.Cleanup(fault.Set(outbox.FaultPublished, func() {
		s, err := b.js.Stream(b.ctx(), stream.Name)
		if err != nil || b.generation() < 2 {
			return
		}
		subject := stream.Subject(running.BizID.Shard(), ledger.EventEnqueued, running.Kind)
		if _, err := s.GetLastMsgForSubject(b.ctx(), subject); err == nil {
			succeed()
		}
	}))
	if err := b.js.DeleteStream(b.ctx(), stream.Name); err != nil {
		t.Fatal(err)
	}
	b.await("the generation is 2", func() bool { return b.generation() == 2 })
	b.awaitPublished()
	b.check()
	if task, err := ledger.Load(b.ctx(), b.pool, running); err != nil || task.Version != 3 {
		t.Errorf("version %d, %v: the task did not end during the replay", task.Version, err)
	}
}

func smallPages(c *outbox.Config) { c.SetPageSize(100) }

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

func (b *bundle) remove(seq uint64) {
	b.t.Helper()
	if err := b.stream().DeleteMsg(b.ctx(), seq); err != nil {
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

// The relay detects that a stream lost its end, also if it has grown again, by the message at the last known
// sequence.
func TestTailLostAndGrownAgain(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := b.relay(smallPages)
	b.enqueue("coupon.send", "order-", 300)
	b.awaitPublished()
	b.server.Stop()
	restore := b.backup()
	b.restart()
	b.enqueue("coupon.send", "tail-", 5)
	b.awaitPublished()
	r.end()
	b.server.Stop()
	restore()
	b.restart()
	b.republish(20)
	b.relay(smallPages)
	b.await("the generation is 2", func() bool { return b.generation() == 2 })
	b.awaitPublished()
	b.check()
}

// republish publishes the messages of the first n events again, as an earlier relay might have.
func (b *bundle) republish(n int) {
	b.t.Helper()
	source := b.source()
	for e, err := range ledger.Read(b.ctx(), b.pool, 0, n) {
		if err != nil {
			b.t.Fatal(err)
		}
		m := stream.Encode(e, e.Data, source, 7)
		if _, err := b.js.PublishMsg(b.ctx(), m); err != nil {
			b.t.Fatal(err)
		}
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

// For events before the oldest cursor row, the relay publishes again the work messages of unfinished tasks, and
// no others.
func TestUnfinishedTasksArePublishedAgain(t *testing.T) {
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
	b.append(orderKey(20), 1, ledger.EventFailed) // retrying: a released event follows
	b.awaitPublished()
	r.end()
	b.forget()
	b.relay()
	b.await("the generation is 2", func() bool { return b.generation() == 2 })
	b.enqueue("coupon.send", "after-", 1)
	b.awaitPublished()
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
		if id := d.header.Get(nats.MsgIdHdr); !strings.HasSuffix(id, "#2") && d.Key.BizID != "after-0" {
			t.Errorf("message id %q is not of generation 2", id)
		}
		delete(want, d.Key)
	}
	for k := range want {
		t.Errorf("the work message of %s was not published again", k)
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

// If a relay is killed while it repairs a loss, the next relay continues the repair.
func TestKilledDuringARepair(t *testing.T) {
	for _, point := range []string{outbox.FaultPage, outbox.FaultPublished} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			r := b.relay()
			b.enqueue("coupon.send", "order-", 3500)
			b.awaitPublished()
			r.end()
			b.forget()
			b.runKilled(point, 1)
			b.runKilled(point, 2)
			b.relay()
			b.await("no work messages are owed", func() bool {
				var isOwed bool
				err := b.pool.QueryRow(b.ctx(), `select mark->'owed' is not null from taskledger.cursor
					where reader = 'relay' order by n desc limit 1`).Scan(&isOwed)
				if err != nil {
					t.Fatal(err)
				}
				return !isOwed && b.generation() == 2
			})
			b.check()
		})
	}
}

// A relay that is killed after a loss leaves messages without a cursor row, which are then purged. The stream remembers
// their ids and drops them as duplicates of messages that it does not hold.
func TestDuplicatesOfPurgedMessages(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := b.relay()
	b.enqueue("coupon.send", "order-", 300)
	b.awaitPublished()
	r.end()
	if err := b.js.DeleteStream(b.ctx(), stream.Name); err != nil {
		t.Fatal(err)
	}
	b.runKilled(outbox.FaultPublished, 1)
	if b.generation() != 2 || b.state().Msgs == 0 {
		t.Fatalf("generation %d, %d messages: the relay was killed too early", b.generation(), b.state().Msgs)
	}
	b.purge()
	b.relay(smallPages)
	b.await("the generation is 3", func() bool { return b.generation() == 3 })
	b.awaitPublished()
	b.check()
}

// A killed relay leaves a page without a cursor row, which is then purged: the next one finds that it is missing.
func TestPurgedPage(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.enqueue("coupon.send", "order-", 300)
	b.runKilled(outbox.FaultPublished, 1)
	if b.state().Msgs == 0 {
		t.Fatal("nothing was published before the kill")
	}
	b.purge()
	b.relay(smallPages)
	b.await("the generation is 2", func() bool { return b.generation() == 2 })
	b.awaitPublished()
	b.check()
}

// New events are published before the history that a wiped stream has lost, and yet the events of each task appear in
// their order: those of a task with a new event come before it.
func TestNewEventsBeforeLostHistory(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := b.relay()
	const tasks, started = 4_000, 300
	b.enqueue("coupon.send", "order-", tasks)
	for i := tasks - started; i < tasks; i++ {
		b.append(orderKey(i), 1, ledger.EventStarted)
	}
	b.awaitPublished()
	r.end()
	if err := b.js.DeleteStream(b.ctx(), stream.Name); err != nil {
		t.Fatal(err)
	}
	for i := tasks - started; i < tasks; i++ {
		b.append(orderKey(i), 2, ledger.EventSucceeded)
	}
	b.enqueue("coupon.send", "after-", 10)
	b.relay()
	b.await("the generation is 2", func() bool { return b.generation() == 2 })
	b.awaitPublished()
	all := b.check()
	for i, d := range all {
		if d.BizID == "after-9" && i > tasks/2 {
			t.Errorf("%d of %d messages are before the new ones", i, len(all))
		}
	}
}
