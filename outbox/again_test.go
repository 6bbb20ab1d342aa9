package outbox_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// openPrimary opens a pool that connects to that one of two servers which is the primary.
func openPrimary(t *testing.T, a, b *pgserver.Server) *pgxpool.Pool {
	t.Helper()
	host := func(s *pgserver.Server) string {
		_, rest, _ := strings.Cut(s.URL(ledgertest.Database), "@")
		address, _, _ := strings.Cut(rest, "/")
		return address
	}
	url := strings.Replace(a.URL(ledgertest.Database), host(a), host(a)+","+host(b), 1)
	return openPool(t, url+"&target_session_attrs=read-write")
}

// An asynchronous standby is promoted that lacks commits, whose positions other events get. Of the lost events, one
// subscriber has handled all, a program in SQL has read a page, and a served subscriber has published them, but nothing
// is acknowledged. Each gets every event of the new primary, once in its table.
func TestPositionsAreGivenAgain(t *testing.T) {
	t.Parallel()
	server := ledgertest.Cluster(t, nil)
	standby, there := startStandby(t, server)
	pool := openPrimary(t, server, standby)
	s := &readers{bundle: newBundleOn(t, pool, natsserver.Config{}), db: pool}
	c := &client{readers: s, seen: map[string]int{}, versions: map[string]int{},
		bodies: map[string]string{}, log: t.Output()}
	if _, err := pool.Exec(t.Context(), `create table received (
		id bigint generated always as identity, position bigint, biz_id text, version integer)`); err != nil {
		t.Fatal(err)
	}
	s.start(outbox.Subscription{Name: "table", Handle: toTable})
	c.serve(200)
	s.enqueue("coupon.send", "before-", 10)
	c.receive(10)
	s.wantEach(10)
	passed := func(reader string, n int) {
		t.Helper()
		s.await(reader+" has passed all", func() bool {
			return s.count(`select events from taskledger_internal.feed_lag('subscriber/' || $1, 1000)`,
				reader) == n
		})
	}
	passed("mails", 0)
	var page string
	var position, again int64
	read := func() int {
		t.Helper()
		n := 0
		s.await("the program reads events", func() bool {
			err := pool.QueryRow(t.Context(), `select count(*), coalesce(max(page), ''), coalesce(max(position), 0)
				from taskledger.read_feed('program', 1000)`).Scan(&n, &page, &position)
			return err == nil && n > 0
		})
		return n
	}
	advance := func() error {
		_, err := pool.Exec(t.Context(), `select taskledger.advance_feed('program', $1, $2)`, page, position)
		return err
	}
	if n := read(); n != 10 {
		t.Fatalf("read %d events, want 10", n)
	}
	if err := advance(); err != nil {
		t.Fatal(err)
	}
	s.disconnect(there)
	s.enqueue("coupon.send", "lost-", 200)
	s.wantEach(210)
	if n := read(); n != 200 {
		t.Fatalf("read %d events, want 200", n)
	}
	s.await("the page is on the stream", func() bool {
		of, err := c.js.Stream(c.ctx(), stream.None.ServedStream("mails"))
		return err == nil && of.CachedInfo().State.Msgs == 200
	})
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.await("the pool is at the new primary", func() bool {
		_, err := pool.Exec(t.Context(), "select")
		return err == nil
	})
	s.enqueue("coupon.send", "after-", 200)
	if again = int64(s.count(`select count(*) from taskledger.event where position <= $1`, position)); again < 100 {
		t.Fatalf("%d positions were given again", again-10)
	}
	if err := advance(); pgerr.Code(err) != "TL005" {
		t.Errorf("a page of lost events was passed: %v", err)
	}
	if n := read(); n != 200 {
		t.Errorf("the program in SQL read %d events after the fail-over, want 200", n)
	}
	s.wantEach(210)
	if n := s.count(`select count(*) from received r join taskledger.event e using (position, biz_id)`); n != 210 {
		t.Errorf("%d events are in the table, want 210", n)
	}
	want := make(map[string]bool)
	for e, err := range ledger.Read(t.Context(), pool, 0, 1000) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(e.BizID), "after-") {
			want[e.Key.String()] = true
		}
	}
	s.await("a page of the new primary is on the stream", func() bool {
		of, err := c.js.Stream(c.ctx(), stream.None.ServedStream("mails"))
		return err == nil && of.CachedInfo().State.LastSeq > 200 // the lost page may have been removed
	})
	s.await("the served subscriber has passed all", func() bool {
		c.receiveSome()
		return s.count(`select events from taskledger_internal.feed_lag('subscriber/mails', 1000)`) == 0
	})
	for task := range want {
		if c.versions[task] != 1 {
			t.Errorf("the served subscriber did not get %s", task)
		}
	}
}
