package ledger_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// poolOf returns a pool of a new login, which may do what sql grants it: $1 is its name.
func poolOf(t *testing.T, owner *pgxpool.Pool, grants ...string) (pool *pgxpool.Pool, name string) {
	t.Helper()
	name = "login_" + strings.ToLower(rand.Text())
	statements := append(
		[]string{"create role $1 login password '$1'", "grant usage on schema taskledger, taskledger_internal to $1"},
		grants...,
	)
	for _, sql := range statements {
		if _, err := owner.Exec(t.Context(), strings.ReplaceAll(sql, "$1", name)); err != nil {
			t.Fatal(err)
		}
	}
	address, err := url.Parse(owner.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.UserPassword(name, name)
	if pool, err = pgxpool.New(t.Context(), address.String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // roles belong to the whole server
		pool.Close()
		if _, err := owner.Exec(context.Background(), "drop owned by "+name+"; drop role "+name); err != nil {
			t.Error(err)
		}
	})
	return pool, name
}

// grantAll lets a login do with events as it likes, except choose their login.
const grantAll = `
	grant all on all tables in schema taskledger to $1;
	grant select on all sequences in schema taskledger to $1;
	grant execute on all functions in schema taskledger, taskledger_internal to $1;
	create policy $1 on taskledger.event to $1 using (true) with check (true);
	create policy $1 on taskledger.timer to $1 using (true) with check (true)`

// loginsOf returns the logins of all events of a kind, by position.
func loginsOf(t *testing.T, db ledger.DB, kind ledger.Kind) []string {
	t.Helper()
	var logins []string
	for e, err := range ledger.Read(t.Context(), db, 0, 1000) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == kind {
			logins = append(logins, e.Login)
		}
	}
	return logins
}

// Each event contains the login of its writer next to the claimed actor, whichever way it was written.
func TestLoginIsRecorded(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	pool, name := poolOf(t, owner, grantAll)
	if err := ledger.SetLimit(t.Context(), owner,
		ledger.Limit{Kind: "spills", MaxWaiting: 1, Policy: ledger.Discard}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Exec(t.Context(),
		"insert into taskledger.task_count (kind, state, n, value) values ('spills', 'available', 1, 5)"); err != nil {
		t.Fatal(err)
	}
	for i, a := range adapters() {
		kind := ledger.Kind(fmt.Sprintf("path%d", i))
		options := &ledger.EnqueueOptions{Actor: "cfo@example.com"}
		a.run(t, pool, func(enqueue enqueuer) {
			entries := []ledger.Entry{
				{Key: ledger.Key{Kind: kind, BizID: "now"}, Options: options},
				{
					Key:     ledger.Key{Kind: kind, BizID: "timed"},
					Options: &ledger.EnqueueOptions{Actor: "cfo@example.com", RunIn: time.Hour},
				},
				{Key: ledger.Key{Kind: "spills", BizID: ledger.BizID(kind)}, Options: options},
			}
			if a.name == "EnqueueAndCommit" { // does not discard
				entries = entries[:2]
			}
			for j, e := range entries {
				if _, err := enqueue(t.Context(), []ledger.Entry{e}); err != nil {
					t.Errorf("%s, entry %d: %v", a.name, j, err)
				}
			}
		})
		if logins := loginsOf(t, owner, kind); !slices.Equal(logins, []string{name, name}) {
			t.Errorf("%s: logins %q, want %s twice", a.name, logins, name)
		}
	}
	for _, login := range loginsOf(t, owner, "spills") {
		if login != name {
			t.Errorf("a discarded task has login %q, want %s", login, name)
		}
	}
	var ids int
	if err := owner.QueryRow(t.Context(), "select count(*) from taskledger.logins where name = $1", name).
		Scan(&ids); err != nil || ids != 1 {
		t.Errorf("the login has %d ids, want 1: %v", ids, err)
	}
}

// The same holds for appends, for a statement that names no login, and for timers. SET ROLE changes nothing.
func TestLoginOfAppends(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	pool, name := poolOf(t, owner, grantAll)
	one, each, commits := ledgertest.Key(t, "a/1"), ledgertest.Key(t, "a/2"), ledgertest.Key(t, "a/3")
	for _, k := range []ledger.Key{one, each, commits} {
		ledgertest.Enqueue(t, owner, k, "{}")
	}
	succeeded := func(k ledger.Key) ledger.AppendRequest {
		r := ledgertest.Request(k, 1, ledger.EventSucceeded)
		r.Actor = "cfo@example.com"
		return r
	}
	events := make([]ledger.Event, 3)
	var err error
	if events[0], err = ledger.Append(t.Context(), pool, succeeded(one)); err != nil {
		t.Fatal(err)
	}
	results := ledger.AppendEach(t.Context(), pool, []ledger.AppendRequest{succeeded(each)})
	if events[1], err = results[0].Event, results[0].Err; err != nil {
		t.Fatal(err)
	}
	tx := beginLedgerTx(t, pool, &ledger.TxOptions{Guard: true})
	committed, err := tx.AppendAndCommit(t.Context(), succeeded(commits))
	if err != nil {
		t.Fatal(err)
	}
	events[2] = committed[0]
	for _, e := range events {
		history, err := ledger.History(t.Context(), owner, e.Key)
		if err != nil {
			t.Fatal(err)
		}
		if got := history[1]; e.Login != name || got.Login != name || got.Actor != "cfo@example.com" {
			t.Errorf("%s: login %q, read as %q with actor %q, want %s", e, e.Login, got.Login, got.Actor, name)
		}
		if history[0].Login == name || history[0].Login == "" {
			t.Errorf("%s: version 1 has login %q", e.Key, history[0].Login)
		}
	}

	err = pgx.BeginFunc(t.Context(), owner, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "set local role "+name); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), "insert into taskledger.event (version, attempt, shard, type, kind, biz_id)"+
			" values (1, 0, 0, 'enqueued', 'a', '4'), (1, 0, 0, 'enqueued', 'a', '5')")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if logins := loginsOf(t, owner, "a"); slices.Contains(logins[len(logins)-2:], name) {
		t.Errorf("after SET ROLE the login is that of the role: %q", logins)
	}
}

// The feed returns the login of each event, and reads each name once.
func TestFeedHasLogins(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	var want []string
	for range 3 {
		pool, name := poolOf(t, owner, grantAll)
		for i := range 2 {
			ledgertest.Enqueue(t, pool, ledger.Key{Kind: "fed", BizID: ledger.BizID(fmt.Sprint(name, i))}, "{}")
		}
		want = append(want, name, name)
	}
	db := &recordingDB{DB: owner}
	f, err := feed.Open(t.Context(), db, "test", &feed.Options{PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for len(got) < len(want) {
		page, err := f.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Events {
			got = append(got, e.Login)
		}
	}
	reads := 0
	for _, sql := range db.statements {
		if strings.Contains(sql, "from taskledger.logins") {
			reads++
		}
	}
	if !slices.Equal(got, want) || reads != 3 {
		t.Errorf("logins %q in %d reads, want %q in 3", got, reads, want)
	}
}

// Transactions that begin at the same time with a login that the ledger does not know do not wait for each other.
func TestNewLoginBlocksNobody(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	pool, name := poolOf(t, owner, grantAll)
	var open sync.WaitGroup
	open.Add(4)
	errs := make(chan error, 4)
	for i := range 4 {
		go func() {
			errs <- pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				k := ledger.Key{Kind: "new", BizID: ledger.BizID(fmt.Sprint(i))}
				_, err := tx.Exec(t.Context(), "set local lock_timeout = '10s'")
				if err == nil {
					_, err = ledger.Enqueue(t.Context(), tx, k, nil, nil)
				}
				open.Done()
				open.Wait() // commits only when all have enqueued
				return err
			})
		}()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if logins := loginsOf(t, owner, "new"); !slices.Equal(logins, []string{name, name, name, name}) {
		t.Errorf("logins %q, want %s four times", logins, name)
	}
}

// A session that has written reads its login no more, whichever statement of this package inserts.
func TestLoginIsReadOncePerSession(t *testing.T) {
	t.Parallel()
	// No policy applies to the owner. That of another role reads the login of each row.
	pool := ledgertest.Pool(t, ledgertest.Owner)
	entries := make([]ledger.Entry, 500)
	requests := make([]ledger.AppendRequest, len(entries))
	for i := range entries {
		entries[i].Key = ledger.Key{Kind: "many", BizID: ledger.BizID(fmt.Sprint(i))}
		requests[i] = ledgertest.Request(entries[i].Key, 1, ledger.EventSucceeded)
	}
	err := pool.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error {
		for i := range 2 { // the first adds the login, the second notes it
			ledgertest.Enqueue(t, conn, ledgertest.Key(t, fmt.Sprint("known/", i)), "")
		}
		return pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			before := scansOfLogin(t, tx)
			ledgertest.Enqueue(t, tx, ledgertest.Key(t, "known/3"), "")
			started := ledgertest.Request(ledgertest.Key(t, "known/3"), 1, ledger.EventStarted)
			if _, err := ledger.Append(t.Context(), tx, started); err != nil {
				return err
			}
			if _, err := ledger.EnqueueMany(t.Context(), tx, entries); err != nil {
				return err
			}
			for _, r := range ledger.AppendEach(t.Context(), tx, requests) {
				if r.Err != nil {
					return r.Err
				}
			}
			if scans := scansOfLogin(t, tx) - before; scans > 0 {
				t.Errorf("%d reads of the login for 1,002 events", scans)
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// scansOfLogin returns how many scans of the table login the session has made, without those already reported.
func scansOfLogin(t *testing.T, tx pgx.Tx) int64 {
	t.Helper()
	rows, _ := tx.Query(t.Context(), "select seq_scan + coalesce(idx_scan, 0) from pg_stat_xact_all_tables"+
		" where schemaname = 'taskledger' and relname = 'login'")
	n, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A session may note any login, but its events contain its own: policies refuse another login, and functions with
// their owner's rights do not read the note.
func TestSessionCannotForgeItsLogin(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	ledgertest.Enqueue(t, owner, ledgertest.Key(t, "owners/1"), "")
	var id int
	if err := owner.QueryRow(t.Context(), "select id from taskledger.logins").Scan(&id); err != nil {
		t.Fatal(err)
	}
	pool, name := poolOf(t, owner, grantAll)
	err := pool.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error {
		const note = "select set_config('taskledger.login', session_user, false)," +
			" set_config('taskledger.login_id', $1::integer::text, false)"
		forge := func() {
			if _, err := conn.Exec(t.Context(), note, id); err != nil {
				t.Fatal(err)
			}
		}
		forge()
		_, err := ledger.Enqueue(t.Context(), conn, ledgertest.Key(t, "forged/1"), nil, nil)
		if !pgerr.Is(err, pgerr.InsufficientPrivilege) {
			t.Errorf("an enqueue with the note of another login: %v, want insufficient_privilege", err)
		}
		if _, err := ledger.EnqueueMany(t.Context(), conn, []ledger.Entry{
			{Key: ledgertest.Key(t, "forged/2")}, {Key: ledgertest.Key(t, "forged/3")},
		}); !pgerr.Is(err, pgerr.InsufficientPrivilege) {
			t.Errorf("many with the note of another login: %v, want insufficient_privilege", err)
		}
		for _, call := range []string{
			"select taskledger.enqueue('forged', '4', run_in => '1 us')",
			`select taskledger.enqueue_many('[{"kind":"forged","biz_id":"5"}]')`,
			"select taskledger.enqueue('forged', '6', start_by => now() - interval '1 s')",
			"select from taskledger_internal.fire_timers('-infinity', 100, '{scheduled}', '{enqueued}'," +
				" '{}', '{}', '{}', '{}')",
		} {
			forge()
			if _, err := conn.Exec(t.Context(), call); err != nil {
				t.Errorf("%s: %v", call, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if logins := loginsOf(t, owner, "forged"); len(logins) != 5 || slices.ContainsFunc(logins, func(login string) bool {
		return login != name
	}) {
		t.Errorf("logins %q, want %s five times", logins, name)
	}
}

// A note is for the login that made it, and only of a login that stays: neither SET SESSION AUTHORIZATION nor a new
// login that was rolled back leaves events with another name or none.
func TestNoteOfALoginIsItsOwn(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	_, first := poolOf(t, owner, grantAll)
	_, second := poolOf(t, owner, grantAll)
	var want []string
	err := owner.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error {
		defer conn.Conn().Close(context.Background())
		enqueue := func(db ledger.DB, login string) {
			k := ledger.Key{Kind: "noted", BizID: ledger.BizID(fmt.Sprint(len(want)))}
			ledgertest.Enqueue(t, db, k, "")
			want = append(want, login)
		}
		for range 3 {
			for _, login := range []string{first, second} {
				if _, err := conn.Exec(t.Context(), "set session authorization "+login); err != nil {
					return err
				}
				tx, err := conn.Begin(t.Context())
				if err != nil {
					return err
				}
				for i := range 2 {
					ledgertest.Enqueue(t, tx, ledger.Key{Kind: "undone", BizID: ledger.BizID(fmt.Sprint(i))}, "")
				}
				if err := tx.Rollback(t.Context()); err != nil {
					return err
				}
				enqueue(conn, login)
				enqueue(conn, login)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if logins := loginsOf(t, owner, "noted"); !slices.Equal(logins, want) {
		t.Errorf("logins %q, want %q", logins, want)
	}
}
