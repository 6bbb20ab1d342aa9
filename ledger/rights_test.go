package ledger_test

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A process that only enqueues, in Go or in SQL, needs only the role of a producer.
func TestProducerRights(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	db := ledgertest.As(t, pool, "producer")
	for _, l := range []ledger.Limit{
		{Kind: "full", MaxWaiting: 1, Policy: ledger.Reject}, {Kind: "spills", MaxWaiting: 1, Policy: ledger.Discard},
	} {
		if err := ledger.SetLimit(t.Context(), pool, l, ""); err != nil {
			t.Fatal(err)
		}
		const count = "insert into taskledger.task_count (kind, state, n, value) values ($1, 'available', 1, 5)"
		if _, err := pool.Exec(t.Context(), count, string(l.Kind)); err != nil {
			t.Fatal(err)
		}
	}
	entries := []ledger.Entry{
		{Key: ledgertest.Key(t, "a/1"), Args: []byte(`{}`)},
		{Key: ledgertest.Key(t, "a/2"), Args: []byte(`"` + strings.Repeat("x", 8<<10) + `"`)},
		{
			Key:     ledgertest.Key(t, "a/3"),
			Options: &ledger.EnqueueOptions{RunIn: time.Hour, FinishBy: time.Now().Add(2 * time.Hour)},
		},
		{Key: ledgertest.Key(t, "spills/1")},
	}
	for range 2 { // even if they already exist
		for _, e := range entries {
			if _, err := ledger.Enqueue(t.Context(), db, e.Key, e.Args, e.Options); err != nil {
				t.Errorf("%s: %v", e.Key, err)
			}
		}
		more := append(slices.Clone(entries), ledger.Entry{Key: ledgertest.Key(t, "a/4")})
		if _, err := ledger.EnqueueMany(t.Context(), db, more); err != nil {
			t.Errorf("many: %v", err)
		}
		tx, err := ledger.Begin(t.Context(), db, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.EnqueueAndCommit(t.Context(), ledgertest.Key(t, "a/5"), nil, nil); err != nil {
			t.Errorf("enqueue and commit: %v", err)
		}
		for _, call := range []string{
			`select taskledger.enqueue('a', '6', '{"eur":5}', run_in => '1 s')`,
			`select taskledger.enqueue_many('[{"kind":"a","biz_id":"7"},{"kind":"a","biz_id":"8","run_in":"1 s"}]')`,
		} {
			if _, err := db.Exec(t.Context(), call); err != nil {
				t.Errorf("%s: %v", call, err)
			}
		}
	}
	var overload *ledger.OverloadError
	if _, err := ledger.Enqueue(t.Context(), db, ledgertest.Key(t, "full/1"), nil, nil); !errors.As(err, &overload) {
		t.Errorf("over the limit: %v, want an OverloadError", err)
	}
	if n, err := ledger.ReadRejected(t.Context(), pool); n != 1 || err != nil {
		t.Errorf("%d rejections are counted, %v, want 1", n, err)
	}
}

// refused executes a statement in a transaction that is rolled back, and fails the test unless the rights of the role
// forbid it.
func refused(t *testing.T, db *pgxpool.Pool, statement string) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), statement); err != nil {
			return err
		}
		return errNotRefused
	})
	if !pgerr.Is(err, pgerr.InsufficientPrivilege) && !pgerr.Is(err, "22023") {
		t.Errorf("%s: %v, want insufficient_privilege", statement, err)
	}
}

var errNotRefused = errors.New("the statement was executed")

// insert returns an INSERT into the table event, by the columns that each role may insert.
func insert(values string) string {
	return "insert into taskledger.event (kind, biz_id, version, attempt, shard, type, actor, data, meta) values (" +
		values + ")"
}

// Each role is refused everything that is not its job.
func TestRolesCannotForge(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	running, done := ledgertest.Key(t, "pay/running"), ledgertest.Key(t, "pay/done")
	dead, scheduled := ledgertest.Key(t, "pay/dead"), ledgertest.Key(t, "pay/scheduled")
	for _, k := range []ledger.Key{running, done, dead, scheduled} {
		ledgertest.Enqueue(t, pool, k, `{"eur":5}`)
	}
	ledgertest.Append(t, pool, running, ledger.EventStarted)
	ledgertest.Append(t, pool, done, ledger.EventSucceeded)
	ledgertest.Append(t, pool, dead, ledger.EventBuried)
	ledgertest.Append(t, pool, scheduled, ledger.EventSnoozed)
	shard := func(id string) string { return "taskledger.shard_of('" + id + "')" }

	everyone := []string{
		// columns that decide the order of the feed
		`insert into taskledger.event (xid, kind, biz_id, version, attempt, shard, type, actor)
		 values ('3', 'pay', 'x', 1, 0, 0, 'enqueued', 'a')`,
		`insert into taskledger.event (position, kind, biz_id, version, attempt, shard, type, actor)
		 overriding system value values (999999999999, 'pay', 'x', 1, 0, 0, 'enqueued', 'a')`,
		`insert into taskledger.event (recorded_at, kind, biz_id, version, attempt, shard, type, actor)
		 values ('2000-01-01', 'pay', 'x', 1, 0, 0, 'enqueued', 'a')`,
		`select nextval('taskledger.event_position_seq')`,
		`select setval('taskledger.event_position_seq', 1)`,
		// history
		`update taskledger.event set data = '{}'`, `delete from taskledger.event`, `truncate taskledger.event`,
		`alter table taskledger.event disable trigger user`,
		`alter table taskledger.event disable row level security`,
		`drop policy login on taskledger.event`,
		`update taskledger.setting set value = 'x'`,
		// the login of another
		`insert into taskledger.event (login_id, kind, biz_id, version, attempt, shard, type, actor)
		 select l.id, 'pay', 'x', 1, 0, 0, 'enqueued', 'a' from taskledger.logins l where l.name <> session_user`,
		`update taskledger.login set name = 'x'`,
		// versions with a gap, and tasks that do not exist
		insert(`'pay', 'done', 9, 1, ` + shard("done") + `, 'released', 'a', null, null`),
		insert(`'pay', 'nothing', 2, 1, ` + shard("nothing") + `, 'started', 'a', null, null`),
		// kinds of taskledger itself
		insert(`'taskledger.other', 'x', 1, 0, 0, 'enqueued', 'a', null, null`),
		// what no subject can have
		insert(`'', 'x', 1, 0, 0, 'enqueued', 'a', null, null`),
		insert(`'a..b', 'x', 1, 0, 0, 'enqueued', 'a', null, null`),
		insert(`'bad kind', 'x', 1, 0, 0, 'enqueued', 'a', null, null`),
		insert(`'*', 'x', 1, 0, 0, 'enqueued', 'a', null, null`),
		insert(`'pay', E'a\nb', 1, 0, 0, 'enqueued', 'a', null, null`),
		insert(`'pay', '', 1, 0, 0, 'enqueued', 'a', null, null`),
		insert(`'pay', 'x', 1, 0, 64, 'enqueued', 'a', null, null`),
		insert(`'pay', 'x', 1, 7, 0, 'enqueued', 'a', null, null`),
		insert(`'pay', 'x', 1, 0, 0, 'succeeded', 'a', null, null`),
		// timers of others, which would release or expire their tasks
		`insert into taskledger.timer values (clock_timestamp(), 'pay', 'dead', 2, 'retry')`,
		`insert into taskledger.timer values (clock_timestamp(), 'pay', 'scheduled', 1, 'finish_by')`,
		`delete from taskledger.timer`, `update taskledger.timer set due_at = '2099-01-01'`,
	}
	succeeded := insert(`'pay', 'running', 3, 1, ` + shard("running") + `, 'succeeded', 'someone', null, null`)
	released := insert(`'pay', 'dead', 3, 0, ` + shard("dead") + `, 'released', 'someone', null, null`)
	again := insert(`'pay', 'done', 3, 2, ` + shard("done") + `, 'started', 'someone', null, null`)
	firing := insert(`'report', 'nightly@2099', 1, 0, 0, 'enqueued', 'schedule/nightly', null, null`)
	alarm := insert(`'taskledger.alarm', 'ops/1', 1, 0, 0, 'enqueued', 'a', null, null`)
	change := insert(`'taskledger.schedule', 'nightly/1', 1, 0, 0, 'enqueued', 'a', null, null`)
	fresh := insert(`'pay', 'fresh', 1, 0, 0, 'enqueued', 'a', null, null`)
	relayLease := `insert into taskledger.lease (name, holder, alive_until) values ('relay', 'me', now() + '1 hour')`
	workerLease := `insert into taskledger.lease (name, holder, alive_until) values ('worker/w', 'w', now() + '1 hour')`
	fire := `select taskledger_internal.fire_timers(now(), 1, '{}', '{}', '{}', '{}', '{}', '{}')`
	pause := `insert into taskledger.pause (kind, actor, reason) values ('pay', 'a', '')`
	limit := `insert into taskledger.kind_limit values ('pay', 0, 'reject', 0, 'a')`
	cursor := `delete from taskledger.cursor`
	task := `update taskledger.task set state = 'succeeded'`
	schedule := `delete from taskledger.schedule`
	reading := []string{
		succeeded, released, again, firing, alarm, change, fresh, relayLease, fire, pause, limit, cursor, task,
	}
	for role, only := range map[string][]string{
		"producer": {
			`select data from taskledger.event`, `select * from taskledger.event`, `select 1 from taskledger.task`,
			`select taskledger.enqueue('taskledger.alarm', 'ops/1')`,
			`select taskledger.enqueue('report', 'nightly@2099', actor => 'schedule/nightly')`,
			succeeded, released, again, firing, alarm, change, relayLease, workerLease, fire, pause, limit, cursor,
			task,
			insert(`'pay', 'running', 3, 1, ` + shard("running") + `, 'discarded', 'a', null, null`),
			schedule,
			// a task that waits for predecessors, where the scheduler does not look for it
			`with e as (
			   insert into taskledger.event (kind, biz_id, version, attempt, shard, type, actor)
			   values ('pay', 'after', 1, 0, 0, 'scheduled', 'a') returning version)
			 insert into taskledger.timer select now() + '1 hour', 'pay', 'after', version, 'after' from e`,
			insert(`'pay', 'x', 1, 0, 0, 'enqueued', repeat('a', 256), null, null`),
			insert(`'pay', 'x', 1, 0, 0, 'enqueued', 'a', to_json(repeat('a', 262143)), null`),
			insert(`'pay', 'x', 1, 0, 0, 'enqueued', 'a', null, json_build_object('x', repeat('a', 16641))`),
		},
		"worker": {
			released, again, firing, alarm, change, fresh, relayLease, fire, pause, limit, cursor, task, schedule,
			`select taskledger.enqueue('pay', 'x')`,
			insert(`'pay', 'running', 3, 7, ` + shard("running") + `, 'succeeded', 'a', null, null`),
			insert(`'pay', 'running', 3, 1, 1 + ` + shard("running") + `, 'succeeded', 'a', null, null`),
			insert(`'pay', 'scheduled', 3, 2, ` + shard("scheduled") + `, 'succeeded', 'a', null, null`),
		},
		"relay": {
			succeeded, again, change, workerLease, pause, limit, schedule, `select taskledger.enqueue('pay', 'x')`,
		},
		"operator": {succeeded, again, relayLease, workerLease, fire, cursor, task},
		"reader":   reading,
		"archiver": reading,
		"subscriber": append(slices.Clone(reading), schedule, workerLease,
			`insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, origin)
			 values ('relay', 1000, '3:3:', 0, '3', taskledger_internal.origin())`,
			`select taskledger_internal.append_cursor('relay', 0, '3:3:', 0, '3', null, null, null, 0, null, null)`,
			`select taskledger.remove_subscriber('mails')`, `select taskledger.give_subscriber('mails', current_user)`,
			`select taskledger_internal.mark_feed('mails', '{}')`,
			`select taskledger.enqueue('pay', 'x')`),
	} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			db := ledgertest.As(t, pool, role)
			for _, statement := range slices.Concat(everyone, only) {
				refused(t, db, statement)
			}
		})
	}
}

// The rights of PUBLIC: a role that may connect to the database can do nothing in the ledger.
func TestPublicHasNoRights(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	conn, err := pool.Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	name := "nobody_" + strings.ToLower(rand.Text())
	for _, statement := range []string{
		"create role " + name, "grant usage on schema taskledger, taskledger_internal to " + name, "set role " + name,
	} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		_, _ = conn.Exec(context.Background(), "reset role; drop owned by "+name+"; drop role "+name)
	}()
	for _, statement := range []string{
		`select taskledger.enqueue('payment.send', 'forged-1', '{"eur":1000000}', actor => 'cfo@example.com')`,
		`select taskledger.enqueue_many('[]')`, `select nextval('taskledger.rejected')`,
		`select taskledger_internal.installation()`,
		`select 1 from taskledger.event`,
	} {
		if _, err := conn.Exec(t.Context(), statement); !pgerr.Is(err, pgerr.InsufficientPrivilege) {
			t.Errorf("%s: %v, want insufficient_privilege", statement, err)
		}
	}
}
