package ledger_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/migrations"
)

// limitedWorker makes a role of workers that are limited to kinds, and returns its name.
func limitedWorker(t *testing.T, owner *pgxpool.Pool, kinds ...string) string {
	t.Helper()
	const prefix = "taskledger_test"
	l := migrations.LimitedWorker{Name: strings.ToLower(rand.Text()), Kinds: kinds}
	names, err := migrations.MakeRoles(t.Context(), owner.Config().ConnString(), prefix, l)
	if err != nil {
		t.Fatal(err)
	}
	name := prefix + "_worker_" + l.Name
	if names[len(names)-1] != name && len(names) == len(migrations.Roles()) {
		t.Fatalf("the roles are %v, want %s", names, name)
	}
	t.Cleanup(func() {
		if _, err := owner.Exec(context.Background(), "drop owned by "+name+"; drop role "+name); err != nil {
			t.Error(err)
		}
	})
	return name
}

// execute executes statements in one transaction, and reports the error of the first that fails.
func execute(t *testing.T, db *pgxpool.Pool, statements ...string) error {
	t.Helper()
	return pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		for _, statement := range statements {
			if _, err := tx.Exec(t.Context(), statement); err != nil {
				return err
			}
		}
		return nil
	})
}

func count(t *testing.T, db rowDB, query string) (n int64) {
	t.Helper()
	if err := db.QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// A worker that is limited to kinds works on these, in Go and in SQL, and neither reads nor ends tasks of others.
func TestLimitedWorker(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	db, name := poolOf(t, owner, "grant "+limitedWorker(t, owner, "coupon.send", "mail.*")+" to $1")
	for _, key := range []string{"coupon.send/1", "mail.welcome/1", "mails/1", "pay/1", "pay/2", "coupon.sent/1"} {
		ledgertest.Enqueue(t, owner, ledgertest.Key(t, key), `{"eur":5}`)
	}
	ledgertest.Append(t, owner, ledgertest.Key(t, "pay/2"), ledger.EventStarted)
	own := []string{"coupon.send/1", "mail.welcome/1"}
	for _, key := range own {
		r := ledger.AppendRequest{Key: ledgertest.Key(t, key), Expected: 1, Type: ledger.EventStarted, Actor: "w-1"}
		if _, err := ledger.Append(t.Context(), db, r); err != nil {
			t.Fatal(err)
		}
		r = ledger.AppendRequest{Key: r.Key, Expected: 2, Type: ledger.EventSnoozed, Actor: "w-1", In: 1e9}
		if _, err := ledger.Append(t.Context(), db, r); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(t, db, "select count(*) from taskledger.event where data is not null"); n != 4 {
		t.Errorf("it reads %d events with data, want 4", n)
	}
	if err := execute(t, db, "select taskledger.heartbeat('w-1', '{coupon.send,mail.a,mail.b.c}')"); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"mails/1", "pay/1", "coupon.sent/1"} {
		kind, id, _ := strings.Cut(key, "/")
		shard := "taskledger.shard_of('" + id + "')"
		refused(t, db, insert(`'`+kind+`', '`+id+`', 2, 1, `+shard+`, 'succeeded', 'w-1', null, null`))
		refused(t, db, insert(`'`+kind+`', '`+id+`', 2, 1, `+shard+`, 'snoozed', 'w-1', null, null`))
		for _, statement := range []string{
			"select taskledger.heartbeat('w-1', '{coupon.send," + kind + "}')",
			"select * from taskledger.claim('" + kind + "', '" + id + "', 'w-1')",
			"select * from taskledger.claim_next('" + kind + "', 'w-1')",
			"select taskledger_internal.lock_waiting('" + kind + "', 0, '', 0, null, 0, 1, 1)",
			"select taskledger_internal.lock_in_turn('" + kind + "', 0, '', 1)",
			"select taskledger_internal.lock_waiting('" + kind + "', 0, '', null, null, 0, 1, 1)",
			"select taskledger_internal.lock_workers('{mail.a," + kind + "}')",
		} {
			want := "login " + name + " may not work on kind " + kind + " "
			if err := execute(t, db, statement); !pgerr.Is(err, pgerr.InsufficientPrivilege) ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", statement, err, want)
			}
		}
	}
	refused(t, db, "select taskledger.finish('pay', '2', 2)")
	refused(t, db, `insert into taskledger.lease (name, holder, alive_until, detail)
		values ('worker/w-2', 'w-2', now() + '1 minute', '{"kinds": ["mail.a", "pay"]}')`)
	refused(t, db, `update taskledger.lease set detail = '{"kinds": ["pay"]}' where name = 'worker/w-1'`)
}

// No event is so large that readers of pages fail.
func TestEventsAreLimited(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	producer, worker := ledgertest.As(t, owner, "producer"), ledgertest.As(t, owner, "worker")
	ledgertest.Enqueue(t, owner, ledgertest.Key(t, "pay/1"), "")
	const shard = "taskledger.shard_of('1')"
	text := func(bytes int) string { return fmt.Sprintf(`('"' || repeat('x', %d) || '"')::json`, bytes) }
	for _, values := range []string{
		`'w-1', ` + text(600_000) + `, null`,
		`'w-1', null, ` + text(70_000),
		`repeat('w', 256), null, null`,
	} {
		refused(t, worker, insert(`'pay', '1', 2, 1, `+shard+`, 'started', `+values))
		refused(t, producer, insert(`'pay', '2', 1, 0, 5, 'enqueued', 'p', null, null),
			('pay', '2', 2, 0, 5, 'discarded', `+values))
	}
	for _, values := range []string{text(300_000) + ", null", "null, " + text(20_000)} {
		refused(t, producer, insert(`'pay', '2', 1, 0, `+shard+`, 'enqueued', 'p', `+values))
	}
	if err := execute(t, worker, insert(`'pay', '1', 2, 1, `+shard+`, 'started', 'w-1', null, null`),
		insert(`'pay', '1', 3, 1, `+shard+`, 'succeeded', 'w-1', `+text(400_000)+`, null`)); err != nil {
		t.Error(err)
	}
}

// A lease belongs to the login that took it, and no other worker acts under the id of its worker while it lasts.
func TestWorkersOfOtherLogins(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	role := limitedWorker(t, owner, "pay")
	alice, aliceName := poolOf(t, owner, "grant "+role+" to $1")
	mallory, _ := poolOf(t, owner, "grant "+role+" to $1")
	unlimited := ledgertest.As(t, owner, "worker")
	ledgertest.Enqueue(t, owner, ledgertest.Key(t, "pay/1"), "")
	if err := execute(t, alice, "select taskledger.heartbeat('alice-1', '{pay}')"); err != nil {
		t.Fatal(err)
	}
	lease := "select count(*) from taskledger.lease where login = '" + aliceName + "' and name = 'worker/alice-1'"
	for _, other := range []*pgxpool.Pool{mallory, unlimited} {
		shard := "taskledger.shard_of('1')"
		for _, statement := range []string{
			"select taskledger.heartbeat('alice-1', '{pay}')",
			"select taskledger.heartbeat('alice-1', '{pay}', '0')",
			"select * from taskledger.claim('pay', '1', 'alice-1')",
			`insert into taskledger.lease (name, holder, alive_until) values ('worker/alice-1', 'x', now() + '1 hour')
			 on conflict (name) do update set alive_until = excluded.alive_until`,
			`insert into taskledger.lease (name, holder, alive_until, login)
			 values ('worker/x', 'x', now() + '1 hour', '` + aliceName + `')`,
			insert(`'pay', '1', 2, 1, ` + shard + `, 'started', 'alice-1', null, null`),
			insert(`'pay', '1', 2, 1, ` + shard + `, 'progressed', 'alice-1', null, null`),
		} {
			err := execute(t, other, statement)
			if !pgerr.Is(err, pgerr.InsufficientPrivilege) && !pgerr.Is(err, noLease) {
				t.Errorf("%s: %v, want it refused", statement, err)
			}
		}
		err := execute(t, other, "select taskledger_internal.remove_lease('worker/alice-1')",
			"update taskledger.lease set alive_until = now()")
		if n := count(t, owner, lease+" and alive_until > now()"); n != 1 || err != nil {
			t.Errorf("the lease has gone, %v", err)
		}
	}
	// A lease that has ended counts as none: another login may have it.
	if _, err := owner.Exec(t.Context(), "update taskledger.lease set alive_until = now()"); err != nil {
		t.Fatal(err)
	}
	if err := execute(t, mallory, "select taskledger.heartbeat('alice-1', '{pay}')"); err != nil {
		t.Error(err)
	}
	if n := count(t, owner, lease); n != 0 {
		t.Error("the lease still belongs to its first login")
	}
}

// A login that may not work on a kind stops no task of it by the name of a worker: neither by the lease that a lost
// worker has left, nor by a lease of its own with this name.
func TestLeaseOfALostWorker(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	pays := limitedWorker(t, owner, "pay")
	alice, aliceName := poolOf(t, owner, "grant "+pays+" to $1")
	bob, _ := poolOf(t, owner, "grant "+pays+" to $1")
	mallory, _ := poolOf(t, owner, "grant "+limitedWorker(t, owner, "mail")+" to $1")
	ledgertest.Enqueue(t, owner, ledgertest.Key(t, "pay/1"), "")
	for _, id := range []string{"alice-1", "alice-2"} {
		if err := execute(t, alice, "select taskledger.heartbeat('"+id+"', '{pay}')"); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(t, alice, "select count(*) from taskledger.claim('pay', '1', 'alice-1')"); n != 1 {
		t.Fatalf("%d tasks are claimed", n)
	}
	ledgertest.ExecAsOwner(t, owner, "update taskledger.lease set alive_until = now()")

	const adopt = `
		update taskledger.lease
		   set login = session_user, alive_until = now() + interval '23 hours', detail = '{"kinds":["mail"]}'`
	const remove = "select taskledger_internal.remove_lease(name) from taskledger.lease"
	if err := execute(t, mallory, adopt, remove); err != nil {
		t.Error(err)
	}
	refused(t, mallory, "select taskledger.heartbeat('alice-2', '{mail}')")
	if n := count(t, owner, "select count(*) from taskledger.lease where login = '"+aliceName+"'"); n != 2 {
		t.Errorf("%d leases still belong to the login of the lost workers, want 2", n)
	}
	if err := execute(t, alice, "select taskledger.heartbeat('alice-2', '{pay}')"); err != nil {
		t.Errorf("the worker cannot renew its lease: %v", err)
	}

	ledgertest.ExecAsOwner(t, owner, "delete from taskledger.lease where holder = 'alice-1'") // as after a day
	if err := execute(t, mallory, "select taskledger.heartbeat('alice-1', '{mail}', '1 day')"); err != nil {
		t.Fatal(err)
	}
	err := execute(t, ledgertest.As(t, owner, "worker"), "select taskledger.heartbeat('w-1', '{mail}')",
		"select taskledger.claim('pay', '1', 'w-1')")
	if !pgerr.Is(err, noLease) {
		t.Errorf("a worker without a lease for the kind claims: %v, want %s", err, noLease)
	}
	if err := execute(t, bob, "select taskledger.heartbeat('bob-1', '{pay}')"); err != nil {
		t.Fatal(err)
	}
	if n := count(t, bob, "select count(*) from taskledger.claim('pay', '1', 'bob-1')"); n != 1 {
		t.Errorf("another worker of the kind takes over %d tasks of the lost one, want 1", n)
	}
}

// Rights add up: a login may have several roles of workers, and the role of a producer, which may not read others'
// events.
func TestLimitedWorkerWithOtherRoles(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	pays, mails := limitedWorker(t, owner, "pay"), limitedWorker(t, owner, "mail")
	db, _ := poolOf(t, owner, "grant "+pays+", "+mails+", taskledger_test_producer to $1")
	other := ledgertest.Key(t, "other/1")
	args := []byte(`{"secret":1}`)
	for range 2 { // even if it exists
		if _, err := ledger.Enqueue(t.Context(), db, other, args, nil); err != nil {
			t.Error(err)
		}
		if _, err := ledger.EnqueueMany(t.Context(), db, []ledger.Entry{{Key: other, Args: args}}); err != nil {
			t.Error(err)
		}
	}
	if n := count(t, db, "select count(data) from taskledger.event"); n != 0 {
		t.Errorf("it reads %d args of another kind", n)
	}
	for _, key := range []string{"pay/1", "mail/1"} {
		k := ledgertest.Key(t, key)
		ledgertest.Enqueue(t, owner, k, "")
		r := ledger.AppendRequest{Key: k, Expected: 1, Type: ledger.EventSucceeded, Actor: "w-1"}
		if _, err := ledger.Append(t.Context(), db, r); err != nil {
			t.Error(err)
		}
	}
	producer := ledgertest.As(t, owner, "producer")
	if n := count(t, producer, "select count(version) from taskledger.event"); n != 0 {
		t.Errorf("a producer reads %d events", n)
	}
}
