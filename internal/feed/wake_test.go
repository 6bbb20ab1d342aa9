package feed_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A feed is notified by what enqueues, in Go and in SQL. A feed that reads much asks for no notifications, and a feed
// whose process has ended is not notified for longer than its sleep.
func TestSleepingFeedIsNotified(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	listener := f.listen()
	wake := feed.NewWake()
	opened := f.open(f.pool, &feed.Options{AuditEvery: -1, Wake: wake})

	f.enqueue(f.pool, "awake")
	if listener.notified(100 * time.Millisecond) {
		t.Error("a feed that has never slept was notified")
	}
	f.next(opened)

	wake.SetListening(true)
	for name, enqueue := range map[string]func(id string){
		"ledger.Enqueue": func(id string) { f.enqueue(f.pool, id) },
		"taskledger.enqueue": func(id string) {
			f.exec(f.pool, "select taskledger.enqueue('k', $1)", id)
		},
		"taskledger.enqueue_many": func(id string) {
			f.exec(f.pool, "select * from taskledger.enqueue_many(json_build_array(json_build_object("+
				"'kind', 'k', 'biz_id', $1::text)))", id)
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := make(chan string)
			go func() { got <- f.next(opened) }()
			await(t, "the feed to sleep", f.isAsleep)
			enqueue(name)
			if !listener.notified(10 * time.Second) {
				t.Fatal("a sleeping feed was not notified")
			}
			wake.Signal()
			if id := <-got; id != name {
				t.Errorf("the feed delivered %q, want %q", id, name)
			}
		})
	}
	var entries []ledger.Entry
	for i := range 100 {
		id := ledger.BizID(fmt.Sprintf("burst-%d", i))
		entries = append(entries, ledger.Entry{Key: ledger.Key{Kind: "k", BizID: id}})
	}
	if _, err := ledger.EnqueueMany(f.ctx, f.pool, entries); err != nil {
		t.Fatal(err)
	}
	if page, err := opened.Next(f.ctx); err != nil || len(page.Events) != len(entries) {
		t.Fatalf("a page of %d events: %v", len(page.Events), err)
	}
	f.enqueue(f.pool, "after the burst")
	if _, err := opened.Next(f.ctx); err != nil {
		t.Fatal(err)
	}
	if f.isAsleep() {
		t.Error("a feed that reads much asks for notifications")
	}

	ctx, cancel := context.WithCancel(f.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if _, err := opened.Next(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Next: %v", err)
		}
	}()
	await(t, "the feed to sleep", f.isAsleep)
	cancel()
	<-ended
	await(t, "the sleep to end by itself", func() bool { return !f.isAsleep() })
}

// A feed that reads events all the time polls without notifications, even after a poll that finds none. While a
// process waits for outcomes, each event notifies it.
func TestBusyFeedPollsUnlessOutcomesAreAwaited(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	wake := feed.NewWake()
	wake.SetListening(true)
	opened := f.open(f.pool, &feed.Options{AuditEvery: -1, Wake: wake})
	entries := make([]ledger.Entry, 1000)
	// read returns how long ago the last events were read.
	read := func(round string) time.Duration {
		for i := range entries {
			entries[i].Key = ledger.Key{Kind: "k", BizID: ledger.BizID(fmt.Sprintf("%s-%d", round, i))}
		}
		if _, err := ledger.EnqueueMany(f.ctx, f.pool, entries); err != nil {
			t.Fatal(err)
		}
		for n := 0; n < len(entries); {
			page, err := opened.Next(f.ctx)
			if err != nil {
				t.Fatal(err)
			}
			n += len(page.Events)
		}
		begun := time.Now()
		ctx, cancel := context.WithTimeout(f.ctx, 50*time.Millisecond) // polls that find nothing
		defer cancel()
		if _, err := opened.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Next without events: %v", err)
		}
		return time.Since(begun)
	}
	// On a machine that stood still meanwhile, hardly any of the events still counts.
	for n := 0; read(fmt.Sprint("busy", n)) > 200*time.Millisecond; n++ {
	}
	if f.isAsleep() {
		t.Error("a feed that has just read 1000 events asks for notifications")
	}
	if err := feed.AwaitOutcomes(f.ctx, f.pool, time.Minute); err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		begun := time.Now()
		read(fmt.Sprint("awaited", n))
		if f.isAsleep() {
			return
		}
		if time.Since(begun) < time.Second { // a window asks for longer
			t.Fatal("a feed whose outcomes are awaited asks for no notifications")
		}
	}
}

// A session listens and does not read while another session notifies much. Above a bound, which is lowered here,
// enqueues stop notifying: with a full queue their transactions would fail. The feed reads their events by polls.
func TestFullNotifyQueueFailsNoEnqueue(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	var definition string
	row := f.owner.QueryRow(f.ctx, "select pg_get_functiondef('taskledger_internal.wake'::regproc)")
	if err := row.Scan(&definition); err != nil {
		t.Fatal(err)
	}
	f.exec(f.owner, replace(t, definition, " 0.5::", " 0.0001::"))
	wake := feed.NewWake()
	wake.SetListening(true)
	opened := f.open(f.pool, &feed.Options{AuditEvery: -1, Wake: wake})
	listener := f.listen()
	stuck := f.connect(ledgertest.Database)
	held, err := stuck.Acquire(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	f.exec(held, "listen other")
	f.exec(held, "begin") // a session in a transaction reads no notifications
	for usage := 0.0; usage <= 0.0001; {
		f.exec(f.owner, "select pg_notify('other', g || repeat('x', 7000)) from generate_series(1, 20) g")
		if err := f.owner.QueryRow(f.ctx, "select pg_notification_queue_usage()").Scan(&usage); err != nil {
			t.Fatal(err)
		}
	}
	got := make(chan string)
	go func() { got <- f.next(opened) }()
	await(t, "the feed to sleep", f.isAsleep)
	f.enqueue(f.pool, "quiet")
	if listener.notified(100 * time.Millisecond) {
		t.Error("an enqueue notified, although the queue is full to the bound")
	}
	if id := <-got; id != "quiet" {
		t.Errorf("the feed delivered %q", id)
	}
}

// A transaction that inserted before the feed slept, and commits while it sleeps, does not notify. The feed reads its
// events by a poll.
func TestSleepingFeedReadsLateCommits(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	wake := feed.NewWake()
	wake.SetListening(true)
	opened := f.open(f.pool, &feed.Options{AuditEvery: -1, Wake: wake})
	slow := f.begin()
	f.enqueue(slow, "slow")
	got := make(chan string)
	go func() { got <- f.next(opened) }()
	await(t, "the feed to sleep", f.isAsleep)
	f.commit(slow)
	if id := <-got; id != "slow" {
		t.Errorf("the feed delivered %q", id)
	}
}

// next returns the biz_id of the only event of the next page, and advances it.
func (f *feedFixture) next(opened *feed.Feed) string {
	page, err := opened.Next(f.ctx)
	if err == nil {
		err = page.Advance(f.ctx, nil, nil)
	}
	if err != nil || len(page.Events) != 1 {
		f.t.Errorf("a page of %d events: %v", len(page.Events), err)
		return ""
	}
	return string(page.Events[0].BizID)
}

func (f *feedFixture) isAsleep() bool {
	var is bool
	err := f.pool.QueryRow(f.ctx, `select coalesce(pg_sequence_last_value('taskledger.asleep_until'), 0)
		> extract(epoch from clock_timestamp()) * 1e6`).Scan(&is)
	if err != nil {
		f.t.Error(err)
	}
	return is
}

// listener is a connection that listens.
type listener struct {
	ctx  context.Context
	wait func(ctx context.Context) error
}

func (f *feedFixture) listen() listener {
	f.t.Helper()
	conn, err := f.connect(ledgertest.Database).Acquire(f.ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(conn.Release)
	f.exec(conn, "listen "+feed.WakeChannel)
	return listener{f.ctx, func(ctx context.Context) error {
		_, err := conn.Conn().WaitForNotification(ctx)
		return err
	}}
}

// notified reports whether a notification arrives within d.
func (l listener) notified(d time.Duration) bool {
	ctx, cancel := context.WithTimeout(l.ctx, d)
	defer cancel()
	return l.wait(ctx) == nil
}
