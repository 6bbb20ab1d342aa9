package outbox_test

import (
	"bytes"
	"errors"
	"os/exec"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// tool runs a client tool of PostgreSQL and returns its output.
func tool(t *testing.T, server *pgserver.Server, input []byte, name string, arguments ...string) []byte {
	t.Helper()
	path, err := server.Tool(name)
	if errors.Is(err, pgserver.ErrNotInstalled) {
		t.Skip(err)
	}
	cmd := exec.CommandContext(t.Context(), path, arguments...)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), t.Output()
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return output
}

// A dump is restored into another cluster, and its address led there, while subscribers are idle and stay: one in Go,
// and a program in SQL that has a page. Producers work before the rebase. Each subscriber refuses until the rebase, and
// then gets every event once, and none twice.
func TestSubscribersStayOverARestore(t *testing.T) {
	t.Parallel()
	from, to := ledgertest.Cluster(t, nil), ledgertest.Cluster(t, nil)
	both := openPrimary(t, from, to)
	pool := ledgertest.As(t, both, ledgertest.App, "operator")
	s := &readers{bundle: &bundle{t: t, pool: pool}, db: ledgertest.As(t, both, "subscriber")}
	ledgertest.ExecAsOwner(t, both, `
		create table received (id bigint generated always as identity, position bigint, biz_id text, version integer);
		grant select, insert on received to public`)
	for range 300 { // transaction ids that the other cluster does not reach
		if _, err := pool.Exec(t.Context(), "select pg_current_xact_id()"); err != nil {
			t.Fatal(err)
		}
	}
	_, ended := s.start(outbox.Subscription{Name: "table", Handle: toTable})
	s.enqueue("coupon.send", "before-", 20)
	s.wantEach(20)
	var page string
	var position int64
	read := func() (n int, err error) {
		err = s.db.QueryRow(t.Context(), `select count(*), coalesce(max(page), ''), coalesce(max(position), 0)
			from taskledger.read_feed('program', 1000)`).Scan(&n, &page, &position)
		return n, err
	}
	advance := func() error {
		_, err := s.db.Exec(t.Context(), `select taskledger.advance_feed('program', $1, $2)`, page, position)
		return err
	}
	if n, err := read(); err != nil || n != 20 {
		t.Fatalf("read %d events, %v", n, err)
	}

	dump := tool(t, from, nil, "pg_dump", from.URL(ledgertest.Database))
	tool(t, to, nil, "psql", to.URL("postgres"), "-qc", "drop database "+ledgertest.Database)
	tool(t, to, nil, "psql", to.URL("postgres"), "-qc", "create database "+ledgertest.Database)
	tool(t, to, dump, "psql", to.URL(ledgertest.Database), "-qo", "/dev/null", "-v", "ON_ERROR_STOP=1")
	if err := from.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*pgxpool.Pool{pool, s.db} {
		s.await("the pool is at the restored database", func() bool {
			_, err := p.Exec(t.Context(), "select")
			return err == nil
		})
	}
	s.enqueue("coupon.send", "after-", 5)
	if err := advance(); pgerr.Code(err) != "TL005" {
		t.Errorf("a page of the other database was passed: %v", err)
	}
	s.await("the subscriber refuses", func() bool {
		select {
		case err := <-ended:
			if !feed.IsRefusal(err) {
				t.Errorf("the subscriber ended with %v", err)
			}
			return true
		default:
			return s.received() > 20
		}
	})
	if n := s.received(); n != 20 {
		t.Errorf("%d events are in the table before the rebase, want 20", n)
	}
	if needed, err := feed.Rebase(t.Context(), openPool(t, to.URL(ledgertest.Database)), nil); err != nil || !needed {
		t.Fatalf("rebase: %t, %v", needed, err)
	}
	s.start(outbox.Subscription{Name: "table", Handle: toTable})
	s.await("the subscriber has passed all", func() bool {
		return s.count(`select events from taskledger_internal.feed_lag('subscriber/table', 1000)`) == 0
	})
	s.wantEach(25)
	if n, err := read(); err != nil || n != 25 {
		t.Errorf("the program in SQL read %d events, %v, want 25", n, err)
	}
}
