package outbox_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.enqueue("coupon.send", "order-", 3)
	s := b.status()
	if s.Waiting != 3 || s.WaitingCapped || s.OldestWaiting <= 0 {
		t.Errorf("before a relay: %+v", s)
	}
	if s.Relay != nil || s.Stream != nil || s.Generation != 0 {
		t.Errorf("before a relay: %+v", s)
	}
	if s.OldestAt.IsZero() || !strings.Contains(s.StreamError, "stream not found") {
		t.Errorf("before a relay: %+v", s)
	}

	r := b.relay(func(c *outbox.Config) { c.Name, c.Stream.MaxAge = "the-relay", time.Hour })
	b.awaitPublished()
	b.await("the status has a relay", func() bool { return b.status().Relay != nil })
	s = b.status()
	if s.Waiting != 0 || s.OldestWaiting != 0 || s.Generation != 1 {
		t.Errorf("under a relay: %+v", s)
	}
	if !s.Relay.Alive || !strings.HasPrefix(s.Relay.Holder, "the-relay/") {
		t.Errorf("lease %+v", s.Relay)
	}
	if st := s.Stream; st == nil || st.Messages != 3 || st.LastSeq != 3 || st.MaxBytes != stream.DefaultMaxBytes {
		t.Errorf("stream %+v", st)
	}
	if drift := s.Stream.Drift; len(drift) > 0 {
		t.Errorf("drift %q: the status has no limits to compare with", drift)
	}
	if s.StreamError != "" || !s.OldestAt.IsZero() {
		t.Errorf("under a relay: %+v", s)
	}
	r.end()
	if s := b.status(); s.Relay != nil { // it has released the lease
		t.Errorf("after the relay: lease %+v", s.Relay)
	}
}

func TestStatusCountsUpToACap(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.enqueue("coupon.send", "order-", 10_100)
	if s := b.status(); s.Waiting != 10_000 || !s.WaitingCapped {
		t.Errorf("waiting %d, capped %v", s.Waiting, s.WaitingCapped)
	}
}

func TestStatusShowsTheOldestTransaction(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	conn, err := pgx.ConnectConfig(b.ctx(), b.pool.Config().ConnConfig.Copy())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(b.ctx())
	const begin = `set application_name = 'a long report'; begin; select pg_current_xact_id()`
	if _, err := conn.Exec(b.ctx(), begin); err != nil {
		t.Fatal(err)
	}
	// Other tests have older transactions, which end.
	pid, database := int32(conn.PgConn().PID()), b.pool.Config().ConnConfig.Database
	b.await("the transaction is the oldest", func() bool {
		o := b.status().Oldest
		return o != nil && o.Application == "a long report" && o.PID == pid && o.Database == database
	})
}

// The status counts the events of the view taskledger.outbox, also between the pages of a window and with
// transactions that commit late.
func TestWaitingIsTheOutbox(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	agree := func(when string) int64 {
		t.Helper()
		var want int64
		if err := b.pool.QueryRow(b.ctx(), `select count(*) from taskledger.outbox`).Scan(&want); err != nil {
			t.Fatal(err)
		}
		if got := b.status().Waiting; got != want {
			t.Errorf("%s: %d waiting, the view has %d", when, got, want)
		}
		return want
	}
	begin := func(id ledger.BizID) pgx.Tx {
		t.Helper()
		tx, err := b.pool.Begin(b.ctx())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ledger.Enqueue(b.ctx(), tx, ledger.Key{Kind: "coupon.send", BizID: id}, nil, nil); err != nil {
			t.Fatal(err)
		}
		return tx
	}
	commit := func(tx pgx.Tx) {
		t.Helper()
		if err := tx.Commit(b.ctx()); err != nil {
			t.Fatal(err)
		}
	}
	agree("at the beginning")
	early := begin("early")
	reader, err := feed.Open(b.ctx(), b.pool, "relay", &feed.Options{PageSize: 100})
	if err != nil {
		t.Fatal(err)
	}
	advance := func() {
		t.Helper()
		page, ok, err := reader.Poll(b.ctx())
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		if err := page.Advance(b.ctx(), nil, json.RawMessage(`{"generation":1}`)); err != nil {
			t.Fatal(err)
		}
	}
	b.enqueue("coupon.send", "a-", 50)
	middle := begin("middle")
	b.enqueue("coupon.send", "b-", 250)
	agree("before the first page")
	advance()
	agree("within the window, two transactions open")
	commit(middle)
	if got := agree("within the window, one committed"); got != 201 {
		t.Errorf("%d waiting, want 201", got)
	}
	advance()
	advance()
	agree("between windows")
	commit(early)
	if got := agree("both committed late"); got != 2 {
		t.Errorf("%d waiting, want 2", got)
	}
	b.enqueue("coupon.send", "c-", 150)
	advance()
	if got := agree("within the second window"); got != 52 {
		t.Errorf("%d waiting, want 52", got)
	}
}

// The cost of counting is that of the waiting events, not of the whole ledger, also if transactions were under
// way at the edge of the window.
func TestWaitingIsCheap(t *testing.T) {
	t.Parallel()
	for name, batch := range map[string]int{"many transactions": 500, "a few large ones": 5_000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkWaitingIsCheap(t, batch)
		})
	}
}

// checkWaitingIsCheap counts in a ledger whose transactions have batch events.
func checkWaitingIsCheap(t *testing.T, batch int) {
	b := newBundle(t)
	tx, err := b.pool.Begin(b.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(b.ctx(), `select pg_current_xact_id()`); err != nil {
		t.Fatal(err)
	}
	r := b.relay()
	b.enqueueBatches("coupon.send", "order-", 20_000, batch)
	b.awaitPublished()
	r.end()
	if err := tx.Rollback(b.ctx()); err != nil {
		t.Fatal(err)
	}
	b.enqueue("coupon.send", "later-", 10)
	if _, err := b.pool.Exec(b.ctx(), "analyze taskledger.event"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../internal/relays/sql/waiting.sql")
	if err != nil {
		t.Fatal(err)
	}
	if got := plantest.Blocks(t, b.pool, nil, string(text), 10_001); got > 100 {
		t.Errorf("counting 10 events touches %d blocks", got)
	}
}

func TestStatusIsJSON(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	text, err := json.Marshal(b.status())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"waiting", "waiting_capped", "oldest_waiting_ms", "parked", "generation", "relay", "stream",
		"oldest_transaction",
	} {
		if !strings.Contains(string(text), `"`+name+`":`) {
			t.Errorf("%s has no member %s", text, name)
		}
	}
}
