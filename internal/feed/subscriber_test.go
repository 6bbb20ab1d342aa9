package feed_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// sqlPage is what taskledger.read_feed returns.
type sqlPage struct {
	page   string // "" without events
	events []ledger.Event
}

func readFeed(ctx context.Context, db ledger.DB, subscriber string, limit int) (p sqlPage, err error) {
	rows, err := db.Query(ctx, `
		select page, position, kind, biz_id, version from taskledger.read_feed($1::text, $2::integer)`,
		subscriber, int64(limit))
	if err != nil {
		return sqlPage{}, err
	}
	defer rows.Close()
	for rows.Next() {
		var e ledger.Event
		if err := rows.Scan(&p.page, (*int64)(&e.Position), (*string)(&e.Kind), (*string)(&e.BizID),
			(*int32)(&e.Version)); err != nil {
			return sqlPage{}, err
		}
		p.events = append(p.events, e)
	}
	return p, rows.Err()
}

func advanceFeed(ctx context.Context, db ledger.DB, subscriber, page string, p ledger.Position) (rest string,
	err error) {
	_, err = pgquery.Row(ctx, db, `select taskledger.advance_feed($1::text, $2::text, $3::bigint)`,
		[]any{subscriber, page, int64(p)}, &rest)
	return rest, err
}

// raceReadSQL reads by the SQL functions until the writers are done and every committed event is delivered, in
// transactions of its own, each of several pieces of a page. Some of them roll back.
func raceReadSQL(ctx context.Context, t *testing.T, pool *pgxpool.Pool, random *rand.Rand, writing <-chan struct{},
	committed func() int) (got []ledger.Event) {
	stalled := time.Now().Add(30 * time.Second)
	for time.Now().Before(stalled) {
		isDone := false
		select {
		case <-writing:
			isDone = true
		default:
		}
		rollBack := random.IntN(10) == 0
		var read []ledger.Event
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			page, err := readFeed(ctx, tx, "race", 1+random.IntN(40))
			for token := page.page; err == nil && len(page.events) > 0; {
				n := 1 + random.IntN(len(page.events))
				read = append(read, page.events[:n]...)
				token, err = advanceFeed(ctx, tx, "race", token, page.events[n-1].Position)
				page.events = page.events[n:]
				if random.IntN(3) == 0 {
					break
				}
			}
			if rollBack && err == nil {
				return pgx.ErrTxClosed
			}
			return err
		})
		switch {
		case err != nil && !rollBack:
			t.Errorf("read_feed: %v", err)
			return got
		case err == nil && len(read) > 0:
			got = append(got, read...)
			stalled = time.Now().Add(30 * time.Second)
		case isDone && len(got) >= committed():
			return got
		}
	}
	return got
}

// subscriberFixture is a ledger with a login that subscribes and a login that enqueues.
type subscriberFixture struct {
	*testing.T

	pool *pgxpool.Pool // enqueues
	db   *pgxpool.Pool // subscribes
}

func newSubscriberFixture(t *testing.T) *subscriberFixture {
	t.Helper()
	t.Parallel()
	pool := ledgertest.Pool(t)
	return &subscriberFixture{T: t, pool: pool, db: ledgertest.As(t, pool, "subscriber")}
}

func (f *subscriberFixture) enqueue(db ledger.DB, ids ...string) {
	f.Helper()
	for _, id := range ids {
		key := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(id)}
		if _, err := ledger.Enqueue(f.Context(), db, key, nil, nil); err != nil {
			f.Fatal(err)
		}
	}
}

// read returns the next page, which may take a call that only opens a window.
func (f *subscriberFixture) read(limit int) sqlPage {
	f.Helper()
	for range 3 {
		page, err := readFeed(f.Context(), f.db, "mails", limit)
		if err != nil {
			f.Fatal(err)
		}
		if len(page.events) > 0 {
			return page
		}
	}
	return sqlPage{}
}

func (f *subscriberFixture) want(page sqlPage, ids ...string) {
	f.Helper()
	var got []string
	for _, e := range page.events {
		got = append(got, string(e.BizID))
	}
	if !slices.Equal(got, ids) {
		f.Fatalf("read_feed returned %v, want %v", got, ids)
	}
}

func (f *subscriberFixture) advance(p sqlPage) {
	f.Helper()
	if _, err := advanceFeed(f.Context(), f.db, "mails", p.page, p.events[len(p.events)-1].Position); err != nil {
		f.Fatal(err)
	}
}

// A page is returned until it is passed. An event whose transaction commits late is delivered, and an open transaction
// delays no other.
func TestReadFeed(t *testing.T) {
	f := newSubscriberFixture(t)
	f.enqueue(f.pool, "a", "b", "c")
	f.want(f.read(2), "a", "b")
	page := f.read(2)
	f.want(page, "a", "b")
	f.advance(page)

	late, err := f.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = late.Rollback(context.Background()) }()
	f.enqueue(late, "late")
	f.enqueue(f.pool, "d")
	for _, want := range []string{"c", "d"} {
		page = f.read(100)
		f.want(page, want)
		f.advance(page)
	}
	f.want(f.read(100))
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	page = f.read(100)
	f.want(page, "late")
	f.advance(page)
	f.want(f.read(100))

	// package feed continues where the functions have stopped, and they where it has.
	f.enqueue(f.pool, "e", "f")
	opened, err := feed.Open(t.Context(), f.db, "subscriber/mails", &feed.Options{PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	next, err := opened.Next(t.Context())
	if err != nil || len(next.Events) != 1 || next.Events[0].BizID != "e" {
		t.Fatalf("the feed continues with %+v, %v", next.Events, err)
	}
	if err := next.Advance(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	f.want(f.read(100), "f")
}

// An idle call writes nothing: neither a transaction id nor a row.
func TestIdleReadFeedWritesNothing(t *testing.T) {
	f := newSubscriberFixture(t)
	f.enqueue(f.pool, "a")
	f.advance(f.read(10))
	f.want(f.read(10))
	rows := func() (n int) {
		const sql = `select count(*) from taskledger.cursor where reader = 'subscriber/mails'`
		if err := f.db.QueryRow(t.Context(), sql).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	snapshot := func() (text string) {
		if err := f.db.QueryRow(t.Context(), "select pg_current_snapshot()::text").Scan(&text); err != nil {
			t.Fatal(err)
		}
		return text
	}
	idle := 0
	for range 100 {
		at, before := snapshot(), rows()
		var drawn bool
		err := pgx.BeginFunc(t.Context(), f.db, func(tx pgx.Tx) error {
			if _, err := readFeed(t.Context(), tx, "mails", 10); err != nil {
				return err
			}
			return tx.QueryRow(t.Context(), `select pg_current_xact_id_if_assigned() is not null`).Scan(&drawn)
		})
		if err != nil {
			t.Fatal(err)
		}
		if after := rows(); snapshot() == at {
			idle++
			if drawn || after != before {
				t.Fatalf("an idle call drew a transaction id: %t; %d rows, want %d", drawn, after, before)
			}
		} // else another transaction of the server has ended: of a test beside, or of a vacuum
	}
	if idle == 0 {
		t.Error("no call was idle")
	}
}

// The functions refuse transactions in which a window would not be complete, and arguments that mean nothing.
func TestReadFeedRefuses(t *testing.T) {
	f := newSubscriberFixture(t)
	f.enqueue(f.pool, "a", "b")
	page := f.read(10)
	f.want(page, "a", "b")
	a, b := page.events[0].Position, page.events[1].Position
	const read = `select * from taskledger.read_feed('mails', 1)`
	for name, test := range map[string]struct {
		begin pgx.TxOptions
		first string
		sql   string
		code  string
		text  string
	}{
		"repeatable read": {
			begin: pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, sql: read, code: "25001", text: "READ COMMITTED",
		},
		"serializable": {
			begin: pgx.TxOptions{IsoLevel: pgx.Serializable}, sql: read, code: "25001", text: "READ COMMITTED",
		},
		"has written": {
			first: `select pg_current_xact_id()`, sql: read, code: "25001", text: "before anything is written",
		},
		"seek has written": {
			first: `select pg_current_xact_id()`, sql: `select taskledger.seek_feed('mails')`, code: "25001",
			text: "before anything is written",
		},
		"name":         {sql: `select * from taskledger.read_feed('../relay', 1)`, code: "22023", text: "1 to 64"},
		"no name":      {sql: `select * from taskledger.read_feed(null, 1)`, code: "22023", text: "1 to 64"},
		"how many":     {sql: `select * from taskledger.read_feed('mails', 0)`, code: "22023", text: "between 1 and"},
		"too many":     {sql: `select * from taskledger.read_feed('mails', 10001)`, code: "22023", text: "between 1"},
		"page":         {sql: `select taskledger.advance_feed('mails', 'x', 1)`, code: "22023", text: "invalid page"},
		"no page":      {sql: `select taskledger.advance_feed('mails', null, 1)`, code: "22023", text: "invalid page"},
		"another page": {sql: `select taskledger.advance_feed('mails', '999@x', 1)`, code: "TL005", text: "moved"},
		"unknown position": {
			sql: `select taskledger.seek_feed('mails', 1000000)`, code: "TL006", text: "no event has it",
		},
		"future":   {sql: `select taskledger.seek_feed('mails', at => '2999-01-01')`, code: "22023", text: "future"},
		"both":     {sql: `select taskledger.seek_feed('mails', 1, now())`, code: "22023", text: "not both"},
		"services": {sql: `delete from taskledger.cursor`, code: "42501", text: "permission denied"},
	} {
		tx, err := f.db.BeginTx(t.Context(), test.begin)
		if err != nil {
			t.Fatal(err)
		}
		if test.first != "" {
			if _, err := tx.Exec(t.Context(), test.first); err != nil {
				t.Fatal(err)
			}
		}
		_, err = tx.Exec(t.Context(), test.sql)
		if !pgerr.Is(err, test.code) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %v, want %s with %q", name, err, test.code, test.text)
		}
		_ = tx.Rollback(t.Context())
	}
	// Positions before and behind the page, and a page that another session has passed.
	if _, err := advanceFeed(t.Context(), f.db, "mails", page.page, b+1_000_000); !pgerr.Is(err, "22023") {
		t.Errorf("a position behind the page: %v", err)
	}
	if _, err := advanceFeed(t.Context(), f.db, "mails", page.page, a); err != nil {
		t.Fatal(err)
	}
	if _, err := advanceFeed(t.Context(), f.db, "mails", page.page, b); !pgerr.Is(err, "TL005") {
		t.Errorf("a page that another session has passed: %v, want TL005", err)
	}
	f.want(f.read(10), "b")
	// A crash undoes what did not reach the disk: a page from before it passes nothing.
	stale := f.read(10)
	ledgertest.ExecAsOwner(t, f.pool, `update taskledger.incarnation set id = gen_random_uuid()`)
	if _, err := advanceFeed(t.Context(), f.db, "mails", stale.page, b); !pgerr.Is(err, "TL005") {
		t.Errorf("a page of another incarnation: %v, want TL005", err)
	}
	f.advance(f.read(10))
}

// A subscriber begins anywhere in the past, and is moved while it works.
func TestSeekFeed(t *testing.T) {
	f := newSubscriberFixture(t)
	f.enqueue(f.pool, "a", "b", "c")
	first := f.read(10)
	f.want(first, "a", "b", "c")
	seek := func(args string) {
		t.Helper()
		if _, err := f.db.Exec(t.Context(), `select taskledger.seek_feed('mails'`+args+`)`); err != nil {
			t.Fatal(err)
		}
	}
	seek("")
	f.want(f.read(10))
	f.enqueue(f.pool, "d")
	f.want(f.read(10), "d")
	seek(", 0")
	f.want(f.read(10), "a", "b", "c", "d")
	if _, err := f.db.Exec(t.Context(), `select taskledger.seek_feed('mails', $1)`,
		int64(first.events[1].Position)); err != nil {
		t.Fatal(err)
	}
	page := f.read(10)
	f.want(page, "c", "d")
	if _, err := f.db.Exec(t.Context(), `
		select taskledger.seek_feed('mails', at => (select recorded_at from taskledger.event where biz_id = 'a'))`,
	); err != nil {
		t.Fatal(err)
	}
	if _, err := advanceFeed(t.Context(), f.db, "mails", page.page, page.events[0].Position); !pgerr.Is(err, "TL005") {
		t.Errorf("a page from before the move: %v, want TL005", err)
	}
	f.want(f.read(10), "b", "c", "d")
}

// A paused subscriber gets nothing, and afterwards all. The rows of a subscriber do not accumulate.
func TestPausedAndThinnedSubscriber(t *testing.T) {
	f := newSubscriberFixture(t)
	operator := ledgertest.As(t, f.pool, "operator")
	f.enqueue(f.pool, "a")
	f.want(f.read(10), "a")
	for _, mark := range []string{`{"paused":true}`, `{}`} {
		if _, err := operator.Exec(t.Context(), `select taskledger_internal.mark_feed('mails', $1)`, mark); err != nil {
			t.Fatal(err)
		}
		if mark != `{}` {
			f.want(f.read(10))
		}
	}
	f.want(f.read(10), "a")
	if _, err := f.db.Exec(t.Context(), `
		do $$ begin for i in 1 .. 2500 loop
		  perform taskledger_internal.append_cursor('subscriber/mails', c.n, c.seen, c.seen_top, c.seen_bound, c.until,
		                                            c.top,
		                                            c.bound, c.after_position, c.mark, c.login)
		     from taskledger.cursor c where c.reader = 'subscriber/mails' order by c.n desc limit 1;
		end loop; end $$`); err != nil {
		t.Fatal(err)
	}
	f.want(f.read(10), "a")
	var rows, newest int
	if err := f.db.QueryRow(t.Context(), `
		select count(*), max(n) from taskledger.cursor
		where reader = 'subscriber/mails'`).Scan(&rows, &newest); err != nil || newest < 2500 || rows > 1101 {
		t.Errorf("%d rows of %d are left: %v", rows, newest, err)
	}
	var removed bool
	err := operator.QueryRow(t.Context(), `select taskledger.remove_subscriber('mails')`).Scan(&removed)
	if err != nil || !removed {
		t.Errorf("remove_subscriber: %v, %v", removed, err)
	}
}

// Subscribers are listed with their lag, moved, paused and removed by operators. A process that works as one is
// superseded.
func TestSubscribers(t *testing.T) {
	f := newSubscriberFixture(t)
	operator := ledgertest.As(t, f.pool, "operator")
	f.enqueue(f.pool, "a", "b", "c")
	for name, to := range map[string]feed.Start{"all": feed.After(0), "new": feed.Now()} {
		if err := feed.Seek(t.Context(), operator, name, to); err != nil {
			t.Fatal(err)
		}
	}
	list := func() map[string]feed.Subscriber {
		t.Helper()
		all, err := feed.Subscribers(t.Context(), ledgertest.As(t, f.pool, "reader"), "")
		if err != nil {
			t.Fatal(err)
		}
		byName := make(map[string]feed.Subscriber)
		for _, s := range all {
			byName[s.Name] = s
		}
		return byName
	}
	got := list()
	all := got["all"]
	if len(got) != 2 || all.Lag != 3 || got["new"].Lag != 0 || all.OldestAt.IsZero() || all.IsPaused {
		t.Errorf("subscribers: %+v", got)
	}
	f.enqueue(f.pool, "d")
	if got := list(); got["all"].Lag != 4 || got["new"].Lag != 1 || !got["new"].IsLocal {
		t.Errorf("subscribers: %+v", got)
	}
	opened, err := feed.Open(t.Context(), f.db, "subscriber/all", nil)
	if err != nil {
		t.Fatal(err)
	}
	page, err := opened.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if found, err := feed.Pause(t.Context(), operator, "all", true); !found || err != nil {
		t.Fatal(found, err)
	}
	if !list()["all"].IsPaused {
		t.Error("the subscriber is not paused")
	}
	if err := page.Advance(t.Context(), nil, nil); !errors.Is(err, feed.ErrSuperseded) {
		t.Errorf("a page of a paused subscriber: %v, want ErrSuperseded", err)
	}
	if found, err := feed.Remove(t.Context(), operator, "all"); !found || err != nil {
		t.Fatal(found, err)
	}
	if found, err := feed.Remove(t.Context(), operator, "all"); found || err != nil {
		t.Error("removed twice", err)
	}
	if found, err := feed.Pause(t.Context(), operator, "all", false); found || err != nil {
		t.Error("paused without a subscriber", err)
	}
	var invalid *ledger.InvalidError
	for name, err := range map[string]error{
		"name":     feed.Seek(t.Context(), operator, "a b", feed.Now()),
		"future":   feed.Seek(t.Context(), operator, "new", feed.At(time.Now().Add(time.Hour))),
		"negative": feed.Seek(t.Context(), operator, "new", feed.After(-1)),
		"year":     feed.Seek(t.Context(), operator, "new", feed.At(time.Date(20_000, 1, 1, 0, 0, 0, 0, time.UTC))),
	} {
		if !errors.As(err, &invalid) {
			t.Errorf("%s: %v, want an InvalidError", name, err)
		}
	}
	err = feed.Seek(t.Context(), operator, "new", feed.After(1_000_000))
	if !errors.Is(err, ledger.ErrUnknownPosition) {
		t.Errorf("unknown position: %v", err)
	}
}

// If processes begin a new subscriber at the same time, none moves it back behind the first.
func TestBeginLeavesASubscriber(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	f.enqueue(f.pool, "1")
	f.enqueue(f.pool, "2")
	db := ledgertest.As(t, f.pool, "subscriber")
	var group sync.WaitGroup
	var made atomic.Int32
	for range 8 {
		group.Go(func() {
			isNew, err := feed.Begin(f.ctx, db, "mails", feed.After(0))
			if err != nil && !pgerr.IsRetryable(err) {
				t.Error(err)
			}
			if isNew {
				made.Add(1)
			}
		})
	}
	group.Wait()
	if made.Load() != 1 {
		t.Errorf("%d processes made it", made.Load())
	}
	if err := feed.Seek(f.ctx, db, "mails", feed.Now()); err != nil {
		t.Fatal(err)
	}
	if isNew, err := feed.Begin(f.ctx, db, "mails", feed.After(0)); err != nil || isNew {
		t.Fatal(isNew, err)
	}
	all, err := feed.Subscribers(f.ctx, db, "mails")
	if err != nil || len(all) != 1 || all[0].Lag != 0 {
		t.Errorf("%v: %+v", err, all)
	}
	var rows int
	err = db.QueryRow(f.ctx, `select count(*) from taskledger.cursor where reader = 'subscriber/mails'`).Scan(&rows)
	if err != nil || rows != 2 {
		t.Errorf("%v: %d rows, want one of Begin and one of Seek", err, rows)
	}
}
