package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// PostgreSQL is killed after the relay has published events whose commits are not durable, because their
// producer does not wait for the disk. The relay counts their messages and continues. Not parallel: the crash
// point is of the whole process.
func TestCrashUndoesPublishedEvents(t *testing.T) {
	server := ledgertest.Cluster(t, map[string]string{"wal_writer_delay": "10s"})
	b := newBundleOn(t, openPool(t, server.URL(ledgertest.Database)), natsserver.Config{})
	var undone, crashes atomic.Int64
	var armed atomic.Bool
	crashed := make(chan error, 1)
	remove := fault.Set(fault.RelayPublished, func() {
		if armed.CompareAndSwap(true, false) {
			crashes.Add(1)
			crashed <- server.Kill()
		}
	})
	defer remove()
	b.relay(func(c *outbox.Config) {
		c.LeaseTTL = 30 * time.Second // a renewal in between would make the commits durable
		c.Hooks = []outbox.Hook{{MessagesUndone: func(_ context.Context, n int) { undone.Add(int64(n)) }}}
	})
	b.enqueue("coupon.send", "before-", 10)
	b.awaitPublished()
	// The WAL writer may make a commit durable before the crash, so this takes several attempts.
	var lost ledger.Key
	for undone.Load() == 0 && crashes.Load() < 10 {
		lost = ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprintf("undone-%d", crashes.Load()))}
		armed.Store(true)
		b.enqueueUnsafe(lost)
		if err := <-crashed; err != nil {
			t.Fatal(err)
		}
		b.restartDatabase(server)
		b.enqueue("coupon.send", fmt.Sprintf("after-%d-", crashes.Load()), 10)
		b.awaitPublished()
	}
	if undone.Load() == 0 {
		t.Errorf("no undone message was reported after %d crashes", crashes.Load())
	}
	if _, err := ledger.Load(t.Context(), b.pool, lost); !errors.Is(err, ledger.ErrUnknownTask) {
		t.Errorf("%s: error %v, want ErrUnknownTask after the crash", lost, err)
	}
	// The key is free, and its new event is published beside the undone one.
	b.enqueueUnsafe(lost)
	b.awaitPublished()
	onStream := make(map[string]bool)
	for _, d := range b.deliveries() {
		onStream[d.ID()] = true
	}
	for e, err := range ledger.Read(t.Context(), b.pool, 0, 1<<30) {
		if err != nil {
			t.Fatal(err)
		}
		if !onStream[e.ID()] {
			t.Errorf("%s is not on the stream", e.ID())
		}
	}
	if got := b.generation(); got != 1 {
		t.Errorf("generation %d, want 1: the relay treated a crash as a loss", got)
	}
}

// enqueueUnsafe enqueues a task in a transaction that does not wait for the disk.
func (b *bundle) enqueueUnsafe(key ledger.Key) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local synchronous_commit to off"); err != nil {
			return err
		}
		_, err := ledger.Enqueue(ctx, tx, key, nil, nil)
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// Messages of unknown events are foreign, although their source is this ledger, if a crash of the server cannot
// have undone all of them.
func TestMessagesThatNoCrashExplains(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := b.relay()
	b.enqueue("coupon.send", "order-", 1)
	b.awaitPublished()
	r.end()
	for _, age := range []time.Duration{time.Hour, 2 * time.Hour} {
		if _, err := b.js.PublishMsg(b.ctx(), ghostAt(b.source(), time.Now().Add(-age))); err != nil {
			t.Fatal(err)
		}
	}
	if found := awaitError[*outbox.ForeignWriterError](t, b.relay()); found.Seq != 3 {
		t.Errorf("refused with %v, want message 3", found)
	}
}

// Each of two crashes of the database has undone a published event, long after the other, and no page is published
// between them. The relay works after both: it looks for the event of each message once.
func TestUndoneInTwoCrashes(t *testing.T) {
	t.Parallel()
	server := ledgertest.Cluster(t, nil)
	b := newBundleOn(t, openPool(t, server.URL(ledgertest.Database)), natsserver.Config{})
	r := b.relay()
	b.enqueue("coupon.send", "order-", 1)
	b.awaitPublished()
	for _, age := range []time.Duration{2 * time.Hour, time.Hour} {
		r.end()
		if _, err := b.js.PublishMsg(b.ctx(), ghostAt(b.source(), time.Now().Add(-age))); err != nil {
			t.Fatal(err)
		}
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		b.restartDatabase(server)
		before := b.cursorRows()
		r = b.relay()
		b.await("the mark has this run of the server", func() bool { return b.cursorRows() > before })
	}
	b.enqueue("coupon.send", "later-", 1)
	b.awaitPublished()
}

// restartDatabase restarts a database server that was killed.
func (b *bundle) restartDatabase(server *pgserver.Server) {
	b.t.Helper()
	if err := server.Restart(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	b.await("the database is available", func() bool {
		_, err := b.pool.Exec(b.ctx(), "select")
		return err == nil
	})
}

// cursorRows returns the number of the relay's newest cursor row.
func (b *bundle) cursorRows() (n int64) {
	b.t.Helper()
	err := b.pool.QueryRow(b.ctx(), "select max(n) from taskledger.cursor where reader = 'relay'").Scan(&n)
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}
