package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// startStandby starts a standby of the server, unless the binaries have no client tools.
func startStandby(t *testing.T, server *pgserver.Server) (*pgserver.Server, *pgxpool.Pool) {
	t.Helper()
	standby, err := server.Standby(t.Context())
	if errors.Is(err, pgserver.ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = standby.Close() })
	return standby, openPool(t, standby.URL(ledgertest.Database))
}

// disconnect ends the replication to a standby that has everything, so that later commits are lost with the primary.
func (b *bundle) disconnect(standby *pgxpool.Pool) {
	b.t.Helper()
	var lsn string
	if err := b.pool.QueryRow(b.ctx(), "select pg_current_wal_insert_lsn()::text").Scan(&lsn); err != nil {
		b.t.Fatal(err)
	}
	b.await("the standby has everything", func() (ok bool) {
		err := standby.QueryRow(b.ctx(), "select pg_last_wal_replay_lsn() >= $1::text::pg_lsn", lsn).Scan(&ok)
		return err == nil && ok
	})
	for _, sql := range []string{"alter system set primary_conninfo = ''", "select pg_reload_conf()"} {
		if _, err := standby.Exec(b.ctx(), sql); err != nil {
			b.t.Fatal(err)
		}
	}
	b.await("the replication has ended", func() (ok bool) {
		err := standby.QueryRow(b.ctx(), "select not exists (select from pg_stat_wal_receiver)").Scan(&ok)
		return err == nil && ok
	})
}

// An asynchronous standby is promoted that lacks commits whose events were published. The relay continues by itself and
// publishes what is committed from then on, also under the keys that were lost. Messages of a primary that still works
// are foreign.
func TestFailOverThatLosesPublishedEvents(t *testing.T) {
	t.Parallel()
	server := ledgertest.Cluster(t, nil)
	standby, there := startStandby(t, server)
	b := newBundleOn(t, openPool(t, server.URL(ledgertest.Database)), natsserver.Config{})
	first := b.relay()
	b.enqueue("coupon.send", "before-", 10)
	b.awaitPublished()
	b.disconnect(there)
	b.enqueue("coupon.send", "lost-", 3)
	b.awaitPublished()
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	first.end()
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.pool = there
	var undone atomic.Int64
	r := b.relay(func(c *outbox.Config) {
		c.Hooks = []outbox.Hook{{MessagesUndone: func(_ context.Context, n int) { undone.Add(int64(n)) }}}
	})
	b.enqueue("coupon.send", "after-", 10)
	b.awaitPublished()
	// The same keys, whose events have other times.
	b.enqueue("coupon.send", "lost-", 3)
	b.awaitPublished()
	if got := undone.Load(); got != 3 {
		t.Errorf("%d lost messages were reported, want 3", got)
	}
	if got := b.generation(); got != 1 {
		t.Errorf("generation %d, want 1: the relay treated a fail-over as a loss of the stream", got)
	}
	onStream := make(map[string]int)
	for _, d := range b.deliveries() {
		onStream[d.ID()]++
	}
	events := 0
	for e, err := range ledger.Read(t.Context(), there, 0, 1<<30) {
		if err != nil {
			t.Fatal(err)
		}
		if events++; onStream[e.ID()] != 1 {
			t.Errorf("%s is on the stream %d times", e.ID(), onStream[e.ID()])
		}
	}
	if events != 23 || len(onStream) != 26 {
		t.Errorf("%d events and %d messages, want 23 and 26", events, len(onStream))
	}

	// The relay of the primary that was lost sends a message late, which was recorded long before.
	if _, err := b.js.PublishMsg(b.ctx(), ghostAt(b.source(), time.Now().Add(-time.Hour))); err != nil {
		t.Fatal(err)
	}
	b.await("the late message is reported", func() bool { return undone.Load() == 4 })
	// The primary that was believed lost still works.
	ack, err := b.js.PublishMsg(b.ctx(), ghostAt(b.source(), time.Now().Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	if found := awaitError[*outbox.ForeignWriterError](t, r); found.Seq != ack.Sequence {
		t.Errorf("refused with %v, want message %d", found, ack.Sequence)
	}
}

// A standby is promoted while the relay of its primary works. Its relay refuses as long as that one works, and then
// continues without an operator: a fail-over by programs needs none.
func TestPromotedStandbyContinuesAfterARefusal(t *testing.T) {
	t.Parallel()
	server := ledgertest.Cluster(t, nil)
	standby, there := startStandby(t, server)
	b := newBundleOn(t, openPool(t, server.URL(ledgertest.Database)), natsserver.Config{})
	first := b.relay()
	b.enqueue("coupon.send", "before-", 10)
	b.awaitPublished()
	b.disconnect(there)
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.pool = there
	awaitError[*outbox.CopyError](t, b.relay())
	first.end()
	b.relay()
	b.enqueue("coupon.send", "after-", 10)
	b.awaitPublished()
	b.check()
}

// After a rebase of a dump, messages of events that the dump lacks are explained, however old they are. Messages that
// were recorded after the rebase are foreign: the database that was dumped still works.
func TestRebaseExplainsWhatADumpLacks(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	var undone atomic.Int64
	r := b.relay(func(c *outbox.Config) {
		c.Hooks = []outbox.Hook{{MessagesUndone: func(_ context.Context, n int) { undone.Add(int64(n)) }}}
	})
	b.enqueue("coupon.send", "before-", 10)
	b.awaitPublished()
	ledgertest.ExecAsOwner(t, b.pool, `
		update taskledger.floor
		   set origin = taskledger_internal.origin(), xid = pg_current_xact_id(), raised_at = clock_timestamp()`)
	for i, age := range []time.Duration{24 * time.Hour, time.Hour} {
		if _, err := b.js.PublishMsg(b.ctx(), ghostAt(b.source(), time.Now().Add(-age))); err != nil {
			t.Fatal(err)
		}
		b.await("the message is explained", func() bool { return undone.Load() == int64(i+1) })
	}
	b.enqueue("coupon.send", "after-", 10)
	b.awaitPublished()
	if _, err := b.js.PublishMsg(b.ctx(), ghostAt(b.source(), time.Now().Add(time.Hour))); err != nil {
		t.Fatal(err)
	}
	awaitError[*outbox.ForeignWriterError](t, r)
}

// A synchronous standby is promoted under load: nothing is lost, and the relay continues by itself.
func TestFailOverOfASynchronousStandby(t *testing.T) {
	t.Parallel()
	server := ledgertest.Cluster(t, nil)
	standby, there := startStandby(t, server)
	b := newBundleOn(t, openPool(t, server.URL(ledgertest.Database)), natsserver.Config{})
	for _, sql := range []string{"alter system set synchronous_standby_names = '*'", "select pg_reload_conf()"} {
		if _, err := b.pool.Exec(b.ctx(), sql); err != nil {
			t.Fatal(err)
		}
	}
	b.await("the standby is synchronous", func() (ok bool) {
		err := b.pool.QueryRow(b.ctx(), "select exists (select from pg_stat_replication where sync_state = 'sync')").
			Scan(&ok)
		return err == nil && ok
	})
	first := b.relay()
	committed := make(chan string, 1_000)
	go func() {
		defer close(committed)
		for i := 0; ; i++ {
			key := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprint(i))}
			if _, err := ledger.Enqueue(b.ctx(), b.pool, key, nil, nil); err != nil {
				return
			}
			committed <- string(key.BizID)
		}
	}()
	want := make(map[string]bool)
	for id := range committed {
		if want[id] = true; len(want) == 100 {
			if err := server.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	first.end()
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.pool = there
	b.relay()
	b.enqueue("coupon.send", "after-", 10)
	b.awaitPublished()
	for id := range want {
		key := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(id)}
		if _, err := ledger.Load(t.Context(), there, key); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	onStream := make(map[string]bool)
	for _, d := range b.deliveries() {
		onStream[d.ID()] = true
	}
	for e, err := range ledger.Read(t.Context(), there, 0, 1<<30) {
		if err != nil {
			t.Fatal(err)
		}
		if !onStream[e.ID()] {
			t.Errorf("%s is not on the stream", e.ID())
		}
	}
}

// A standby, which may lag, does not answer which events exist: the relay would take what it has published for foreign.
func TestMissingEventsAreNotReadOnAStandby(t *testing.T) {
	t.Parallel()
	_, there := startStandby(t, ledgertest.Cluster(t, nil))
	rows, err := there.Query(t.Context(), outbox.EventsAtSQL, "{1,2}")
	if err == nil {
		for rows.Next() {
			t.Error("it returned a row")
		}
		err = rows.Err()
	}
	if !pgerr.Is(err, pgerr.ReadOnlySQLTransaction) {
		t.Errorf("error %v, want that of a standby", err)
	}
}
