package feed_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A subscriber belongs to the login that first reads as it. Another login with the same role can neither read as it nor
// move it, by functions or by cursor rows. Operators move it, and can give it to another login only.
func TestSubscriberBelongsToALogin(t *testing.T) {
	f := newSubscriberFixture(t)
	ctx := t.Context()
	first := ledgertest.As(t, f.pool, "subscriber")
	second := ledgertest.As(t, f.pool, "subscriber", "reader")
	operator := ledgertest.As(t, f.pool, "operator")
	f.enqueue(f.pool, "a", "b", "c")
	if err := feed.Seek(ctx, operator, "mails", feed.After(0)); err != nil { // it belongs to no login yet
		t.Fatal(err)
	}
	page, err := readFeed(ctx, first, "mails", 2)
	if err != nil || len(page.events) != 2 {
		t.Fatalf("the first login read %+v: %v", page, err)
	}
	if _, err := advanceFeed(ctx, first, "mails", page.page, page.events[0].Position); err != nil {
		t.Fatal(err)
	}
	newest := `select coalesce(max(n), 0) from taskledger.cursor where reader = 'subscriber/mails'`
	refused := map[string]func(*pgxpool.Pool) error{
		"read": func(db *pgxpool.Pool) error {
			_, err := readFeed(ctx, db, "mails", 2)
			return err
		},
		"seek": func(db *pgxpool.Pool) error { return feed.Seek(ctx, db, "mails", feed.Now()) },
		"advance": func(db *pgxpool.Pool) error {
			opened, err := feed.Open(ctx, db, "subscriber/mails", nil)
			if err != nil {
				return err
			}
			page, err := opened.Next(ctx)
			if err != nil {
				return err
			}
			return page.Advance(ctx, nil, nil)
		},
		"insert": func(db *pgxpool.Pool) error {
			_, err := db.Exec(ctx, `
				insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, origin, login)
				select 'subscriber/mails', (`+newest+`) + 1, '3:3:', 0, '3', taskledger_internal.origin(),
				       session_user`)
			return err
		},
	}
	for name, act := range refused {
		if err := act(second); !pgerr.Is(err, pgerr.InsufficientPrivilege) {
			t.Errorf("another login: %s: %v, want insufficient_privilege", name, err)
		}
	}
	for _, statement := range []string{
		`update taskledger.cursor set unaudited_xor = 1 where reader = 'subscriber/mails'`,
		`select from taskledger.cursor where reader = 'subscriber/mails' for update`,
		`select from taskledger.cursor where reader = 'subscriber/mails' for key share`,
	} {
		if tag, err := second.Exec(ctx, statement); err != nil || tag.RowsAffected() > 0 {
			t.Errorf("another login: %s: %d rows, %v, want none", statement, tag.RowsAffected(), err)
		}
	}
	for _, login := range []string{"session_user", "null", "'" + second.Config().ConnConfig.User + "'"} {
		_, err := operator.Exec(ctx, `
			insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, origin, login)
			select 'subscriber/mails', (`+newest+`) + 1, '3:3:', 0, '3', taskledger_internal.origin(), `+login)
		if !pgerr.Is(err, pgerr.InsufficientPrivilege) {
			t.Errorf("an operator made it that of %s: %v", login, err)
		}
	}
	if err := feed.Seek(ctx, operator, "mails", feed.After(0)); err != nil {
		t.Errorf("an operator moves it: %v", err)
	}
	if page, err := readFeed(ctx, first, "mails", 2); err != nil || len(page.events) != 2 {
		t.Errorf("its login read %+v: %v", page, err)
	}
	if _, err := feed.Give(ctx, operator, "mails", "nobody-of-this-name"); err == nil {
		t.Error("it was given to a login that does not exist")
	}
	if found, err := feed.Give(ctx, operator, "mails", second.Config().ConnConfig.User); !found || err != nil {
		t.Fatal(found, err)
	}
	if _, err := readFeed(ctx, first, "mails", 2); !pgerr.Is(err, pgerr.InsufficientPrivilege) {
		t.Errorf("the login that had it reads: %v", err)
	}
	if page, err := readFeed(ctx, second, "mails", 2); err != nil || len(page.events) != 2 {
		t.Errorf("the login that has it now read %+v: %v", page, err)
	}
	all, err := feed.Subscribers(ctx, second, "mails")
	if err != nil || len(all) != 1 || !all[0].IsOwn || all[0].Login != second.Config().ConnConfig.User {
		t.Errorf("subscribers: %+v, %v", all, err)
	}
}

// A login with the role subscriber or operator writes no row by which the list of subscribers fails or never ends.
func TestSubscriberRowsAreWellFormed(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	f := &subscriberFixture{T: t, pool: pool, db: ledgertest.As(t, pool, "subscriber")}
	operator := ledgertest.As(t, f.pool, "operator")
	f.enqueue(f.pool, "a")
	const good = `'subscriber/new', 1, '3:3:', 0, '3', null, null, null, 0, null`
	for name, values := range map[string]string{
		"bound":          `'subscriber/new', 1, '3:3:', 0, '9223372036854775807', null, null, null, 0, null`,
		"greatest bound": `'subscriber/new', 1, '3:3:', 0, '18446744073709551615', null, null, null, 0, null`,
		"snapshot":       `'subscriber/new', 1, '3:9223372036854775807:', 0, '3', null, null, null, 0, null`,
		"bound of until": `'subscriber/new', 1, '3:3:', 0, '3', '3:3:', 0, '9223372036854775807', 0, null`,
		"until":          `'subscriber/new', 1, '3:3:', 0, '3', '3:9223372036854775807:', 0, '3', 0, null`,
		"until alone":    `'subscriber/new', 1, '3:3:', 0, '3', '3:3:', null, null, 0, null`,
		"top":            `'subscriber/new', 1, '3:3:', 9223372036854775807, '3', null, null, null, 0, null`,
		"position":       `'subscriber/new', 1, '3:3:', 0, '3', null, null, null, -1, null`,
		"n":              `'subscriber/new', 9223372036854775807, '3:3:', 0, '3', null, null, null, 0, null`,
		"n of 0":         `'subscriber/new', 0, '3:3:', 0, '3', null, null, null, 0, null`,
		"name":           `'subscriber/bad name', 1, '3:3:', 0, '3', null, null, null, 0, null`,
		"long name":      `'subscriber/' || repeat('a', 65), 1, '3:3:', 0, '3', null, null, null, 0, null`,
		"no name":        `'subscriber/', 1, '3:3:', 0, '3', null, null, null, 0, null`,
		"escape":         `'subscriber/new', 1, '3:3:', 0, '3', null, null, null, 0, '{"paused":"\u0000"}'`,
		"array":          `'subscriber/new', 1, '3:3:', 0, '3', null, null, null, 0, '[true]'`,
		"large mark": `'subscriber/new', 1, '3:3:', 0, '3', null, null, null, 0,
			json_build_object('a', repeat('a', 70000))`,
		"": good,
	} {
		for role, db := range map[string]*pgxpool.Pool{"subscriber": f.db, "operator": operator} {
			login := "null"
			if role == "subscriber" {
				login = "session_user"
			}
			err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, `
					insert into taskledger.cursor
					  (reader, n, seen, seen_top, seen_bound, until, top, bound, after_position, mark, origin, login)
					values (`+values+`, taskledger_internal.origin(), `+login+`)`)
				if err != nil {
					return err
				}
				return errRolledBack
			})
			isRefused := pgerr.Is(err, pgerr.InsufficientPrivilege)
			if name != "" && !isRefused || name == "" && !errors.Is(err, errRolledBack) {
				t.Errorf("%s: %s: %v", role, name, err)
			}
		}
	}
	// The owner may write such a row: the list of subscribers ends, and an operator removes the row.
	if _, err := f.pool.Exec(ctx, `
		insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, origin)
		values ('subscriber/bad name', 1, '3:3:', 0, '9223372036854775807',
		        taskledger_internal.origin())`); err != nil {
		t.Fatal(err)
	}
	if all, err := feed.Subscribers(ctx, operator, ""); err != nil || len(all) != 1 || all[0].Lag != 1 {
		t.Errorf("subscribers: %+v, %v, want one that is an event behind", all, err)
	}
	if found, err := feed.Remove(ctx, operator, "bad name"); !found || err != nil {
		t.Error("not removed", err)
	}
}

// A login may own a limited number of subscribers, so that it does not delay readers of all lags. It gets no others by
// functions, without a login, or in many sessions. Other logins are not concerned.
func TestSubscribersOfALoginAreLimited(t *testing.T) {
	f := newSubscriberFixture(t)
	ctx := t.Context()
	const limit = 250
	db := ledgertest.As(t, f.pool, "subscriber")
	add := func(first, n int, login string) error {
		_, err := db.Exec(ctx, `
			insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, origin, login)
			select 'subscriber/s' || i, 1, '3:3:', 0, '3', taskledger_internal.origin(), `+login+`
			  from generate_series($1::integer, $1::integer + $2::integer - 1) i`, first, n)
		return err
	}
	if err := add(0, limit+1, "session_user"); !pgerr.Is(err, pgerr.InsufficientPrivilege) {
		t.Errorf("%d subscribers in a statement: %v, want insufficient_privilege", limit+1, err)
	}
	if err := add(0, 1, "null"); !pgerr.Is(err, pgerr.InsufficientPrivilege) {
		t.Errorf("a subscriber without a login: %v, want insufficient_privilege", err)
	}
	if err := add(0, limit-1, "session_user"); err != nil {
		t.Fatal(err)
	}
	added := make(chan error)
	for i := range 4 {
		go func() { added <- add(limit+i, 1, "session_user") }()
	}
	var refused int
	for range 4 {
		if err := <-added; err != nil {
			refused++
		}
	}
	if refused != 3 {
		t.Errorf("%d of 4 sessions were refused at %d subscribers, want 3", refused, limit-1)
	}
	if err := feed.Seek(ctx, db, "mails", feed.Now()); !pgerr.Is(err, pgerr.InsufficientPrivilege) {
		t.Errorf("a subscriber by a move: %v, want insufficient_privilege", err)
	}
	f.enqueue(f.pool, "a")
	if page, err := readFeed(ctx, db, "s0", 2); err != nil || len(page.events) != 1 {
		t.Errorf("one of them read %+v: %v", page, err)
	}
	if page, err := readFeed(ctx, ledgertest.As(t, f.pool, "subscriber", "reader"), "mails", 2); err != nil ||
		len(page.events) != 1 {
		t.Errorf("another login read %+v: %v", page, err)
	}
}

// A reader's row is admitted in a transaction that keeps an old snapshot, which is older than the window.
func TestSubscriberAdvancesUnderAnOldSnapshot(t *testing.T) {
	f := newSubscriberFixture(t)
	ctx := t.Context()
	opened, err := feed.Open(ctx, f.db, "subscriber/mails", nil)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := f.db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	if _, err := tx.Exec(ctx, "select pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	f.enqueue(f.pool, "a", "b")
	page, err := opened.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := page.Advance(ctx, tx, nil); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
}

var errRolledBack = errors.New("rolled back")
