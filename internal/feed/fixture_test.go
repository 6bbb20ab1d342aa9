package feed_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// feedFixture is a cluster of its own: all databases of a cluster share xids, and so windows, and other
// transactions must not disturb the interleavings below.
type feedFixture struct {
	t      *testing.T
	ctx    context.Context
	server *pgserver.Server
	pool   *pgxpool.Pool // enqueues, works and relays
	owner  *pgxpool.Pool // for mutants, and to empty the ledger
}

func newFeedFixture(t *testing.T) *feedFixture {
	t.Helper()
	server := ledgertest.Cluster(t, map[string]string{"autovacuum": "off", "lock_timeout": "10s",
		"max_prepared_transactions": "5", "wal_level": "replica"})
	f := &feedFixture{t: t, ctx: t.Context(), server: server}
	f.pool = f.connect(ledgertest.Database, ledgertest.App, "relay")
	f.owner = f.connect(ledgertest.Database, ledgertest.Owner)
	return f
}

func (f *feedFixture) connect(database string, roles ...string) *pgxpool.Pool {
	f.t.Helper()
	pool, err := pgxpool.New(f.ctx, ledgertest.URLAs(f.t, f.server.URL(database), roles...))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(pool.Close)
	return pool
}

// reset empties the ledger, so that one cluster serves many interleavings.
func (f *feedFixture) reset() {
	f.t.Helper()
	for _, sql := range []string{
		"alter table taskledger.event disable trigger user",
		"truncate taskledger.event, taskledger.cursor, taskledger.moment restart identity",
		"alter table taskledger.event enable trigger user",
	} {
		f.exec(f.owner, sql)
	}
}

func (f *feedFixture) exec(db ledger.DB, sql string, args ...any) {
	f.t.Helper()
	if _, err := db.Exec(f.ctx, sql, args...); err != nil {
		f.t.Fatalf("%s: %v", sql, err)
	}
}

func (f *feedFixture) count(sql string, args ...any) (n int) {
	f.t.Helper()
	if err := f.owner.QueryRow(f.ctx, sql, args...).Scan(&n); err != nil {
		f.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func (f *feedFixture) begin() pgx.Tx {
	f.t.Helper()
	return f.beginOn(f.pool)
}

func (f *feedFixture) beginOn(pool *pgxpool.Pool) pgx.Tx {
	f.t.Helper()
	tx, err := pool.Begin(f.ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func (f *feedFixture) commit(tx pgx.Tx) {
	f.t.Helper()
	if err := tx.Commit(f.ctx); err != nil {
		f.t.Fatal(err)
	}
}

func (f *feedFixture) enqueue(db ledger.DB, ids ...string) {
	f.t.Helper()
	for _, id := range ids {
		if _, err := ledger.Enqueue(f.ctx, db, ledger.Key{Kind: "k", BizID: ledger.BizID(id)}, nil, nil); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *feedFixture) open(db ledger.DB, o *feed.Options) *feed.Feed {
	f.t.Helper()
	if o == nil {
		o = &feed.Options{AuditEvery: -1} // the test is about the windows alone
	}
	opened, err := feed.Open(f.ctx, db, "test", o)
	if err != nil {
		f.t.Fatal(err)
	}
	return opened
}

// drain reads and advances pages until there is no event to read, and returns the biz_ids.
func (f *feedFixture) drain(opened *feed.Feed) []string {
	f.t.Helper()
	ids := []string{}
	for {
		page, ok, err := opened.Poll(f.ctx)
		if err != nil {
			f.t.Fatal(err)
		}
		if !ok {
			// The window just opened may have been empty; the next poll opens another.
			if page, ok, err = opened.Poll(f.ctx); err != nil {
				f.t.Fatal(err)
			} else if !ok {
				return ids
			}
		}
		if err := page.Advance(f.ctx, nil, nil); err != nil {
			f.t.Fatal(err)
		}
		for _, e := range page.Events {
			ids = append(ids, string(e.BizID))
		}
	}
}

// replace is strings.Replace that must find its text: a mutant without a change is not a mutant.
func replace(t *testing.T, sql, old, with string) string {
	t.Helper()
	if !strings.Contains(sql, old) {
		t.Fatalf("mutant: %q is not in the statement", old)
	}
	return strings.ReplaceAll(sql, old, with)
}

// mutantPage creates a mutant of taskledger_internal.feed_page and returns the statement that calls it.
func (f *feedFixture) mutantPage(old, with string) string {
	f.t.Helper()
	var definition string
	if err := f.pool.QueryRow(f.ctx, `select pg_get_functiondef('taskledger_internal.feed_page'::regproc)`).
		Scan(&definition); err != nil {
		f.t.Fatal(err)
	}
	body := replace(f.t, definition, old, with)
	f.exec(f.owner, replace(f.t, strings.Replace(body, "taskledger_internal.feed_page(", "taskledger.mutant_page(", 1),
		"feed_page.", "mutant_page."))
	return replace(f.t, feed.PageSQL, "taskledger_internal.feed_page(", "taskledger.mutant_page(")
}

// mutantShares is mutantPage for a mutant of taskledger_internal.late_shares.
func (f *feedFixture) mutantShares(old, with string) string {
	f.t.Helper()
	var definition string
	row := f.pool.QueryRow(f.ctx, `select pg_get_functiondef('taskledger_internal.late_shares'::regproc)`)
	if err := row.Scan(&definition); err != nil {
		f.t.Fatal(err)
	}
	mutant := replace(f.t, definition, old, with)
	f.exec(f.owner, strings.Replace(mutant, "taskledger_internal.late_shares(", "taskledger.mutant_shares(", 1))
	return f.mutantPage("taskledger_internal.late_shares(", "taskledger.mutant_shares(")
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
