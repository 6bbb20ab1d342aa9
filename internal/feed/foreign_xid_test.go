package feed_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Restored events can contain the id that this database gives to a new transaction. It gets no rights on these events,
// before or after the rebase. It keeps its rights on its own events, even if a savepoint inserted them.
func TestRestoredTransactionIDsGiveNoRights(t *testing.T) {
	t.Parallel()
	const record = `
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id, actor, data)
		values (1, 0, 0, 'enqueued', 'taskledger.operation', 'x', 'alice',
		        '{"action":"projection.retry","detail":{"projection":"p"}}')`
	for _, isRebased := range []bool{false, true} {
		t.Run(fmt.Sprintf("rebased: %t", isRebased), func(t *testing.T) {
			f := newFeedFixture(t)
			f.enqueue(f.pool, "victim")
			f.exec(f.owner, record)
			id := f.restoreAhead()
			if isRebased {
				f.rebase()
			}
			tx := f.awaitXid(ledgertest.As(t, f.pool, "producer", "operator"), id)
			seen := 0
			f.exec(tx, `set local role taskledger_test_producer`)
			if err := tx.QueryRow(f.ctx, `select count(*) from taskledger.event`).Scan(&seen); err != nil || seen > 0 {
				t.Errorf("a producer reads %d events of others, %v", seen, err)
			}
			refused := func(sql string) {
				t.Helper()
				err := pgx.BeginFunc(f.ctx, tx, func(tx pgx.Tx) error {
					_, err := tx.Exec(f.ctx, sql)
					return err
				})
				if !pgerr.Is(err, pgerr.InsufficientPrivilege) {
					t.Errorf("%s: %v, want insufficient_privilege", sql, err)
				}
			}
			const discard = `
				insert into taskledger.event (version, attempt, shard, type, kind, biz_id, actor, data)
				values (2, 0, taskledger.shard_of('%[1]s'), 'discarded', 'k', '%[1]s', 'alice', '{}')`
			refused(fmt.Sprintf(discard, "victim"))
			refused(`
				insert into taskledger.timer (due_at, kind, biz_id, version, reason)
				values (clock_timestamp() + interval '1 s', 'k', 'victim', 1, 'finish_by')`)

			k := ledger.Key{Kind: "k", BizID: "own"}
			err := pgx.BeginFunc(f.ctx, tx, func(tx pgx.Tx) error {
				_, err := ledger.Enqueue(f.ctx, tx, k, nil, &ledger.EnqueueOptions{FinishBy: time.Now().Add(time.Hour)})
				return err
			})
			if err != nil {
				t.Error(err)
			}
			f.exec(tx, fmt.Sprintf(discard, "own"))
			f.exec(tx, `set local role taskledger_test_operator`)
			refused(`select taskledger_internal.retry_subscriber('p', 'k', 'victim')`)
			if err := tx.Commit(f.ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// As above, of events that came without the floor, by logical replication or a dump of some tables.
func TestReplicatedTransactionIDsGiveNoRights(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	f.enqueue(f.pool, "victim")
	id := f.restoreAhead()
	f.exec(f.owner, "update taskledger.floor set origin = taskledger_internal.origin(), xid = pg_current_xact_id()")
	tx := f.awaitXid(ledgertest.As(t, f.pool, "producer"), id)
	seen := 0
	if err := tx.QueryRow(f.ctx, `select count(*) from taskledger.event`).Scan(&seen); err != nil || seen > 0 {
		t.Errorf("a producer reads %d events of others, %v", seen, err)
	}
	if _, err := ledger.Enqueue(f.ctx, tx, ledger.Key{Kind: "k", BizID: "own"}, nil, nil); err != nil {
		t.Error(err)
	}
	if err := tx.QueryRow(f.ctx, `select count(*) from taskledger.event`).Scan(&seen); err != nil || seen != 1 {
		t.Errorf("a producer reads %d events, want its own, %v", seen, err)
	}
	const discard = `
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id, actor, data)
		values (2, 0, taskledger.shard_of('victim'), 'discarded', 'k', 'victim', 'alice', '{}')`
	if _, err := tx.Exec(f.ctx, discard); !pgerr.Is(err, pgerr.InsufficientPrivilege) {
		t.Errorf("discard: %v, want insufficient_privilege", err)
	}
}

// If a transaction's own event has a position before a replicated one, because the sequence is behind, the transaction
// cannot end a task of the replicated event.
func TestReplicatedEventBehindAnOwnOne(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	f.exec(f.owner, `select nextval('taskledger.event_position_seq')`)
	f.enqueue(f.pool, "victim")
	id := f.restoreAhead()
	f.exec(f.owner, "update taskledger.floor set origin = taskledger_internal.origin(), xid = pg_current_xact_id()")
	const behind = `select setval('taskledger.event_position_seq', max(position) - $1, false) from taskledger.event`
	f.exec(f.owner, behind, 1)
	tx := f.awaitXid(ledgertest.As(t, f.pool, "producer"), id)
	f.exec(tx, `
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id, actor, data)
		values (1, 0, taskledger.shard_of('own'), 'enqueued', 'k', 'own', 'alice', '{}')`)
	f.exec(f.owner, behind, -1)
	const discard = `
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id, actor, data)
		values (2, 0, taskledger.shard_of('%[1]s'), 'discarded', 'k', '%[1]s', 'alice', '{}')`
	f.exec(tx, fmt.Sprintf(discard, "own"))
	if _, err := tx.Exec(f.ctx, fmt.Sprintf(discard, "victim")); !pgerr.Is(err, pgerr.InsufficientPrivilege) {
		t.Errorf("discard: %v, want insufficient_privilege", err)
	}
}

// restoreAhead makes the events look as if they came from a dump, all of one transaction, whose id it returns. This
// database will assign that id soon.
func (f *feedFixture) restoreAhead() (id int64) {
	f.t.Helper()
	if err := f.owner.QueryRow(f.ctx, `select pg_current_xact_id()::text::bigint + 50`).Scan(&id); err != nil {
		f.t.Fatal(err)
	}
	for _, sql := range []string{
		"alter table taskledger.event disable trigger user",
		fmt.Sprintf("update taskledger.event set xid = '%d'", id),
		"alter table taskledger.event enable trigger user",
		"update taskledger.floor set origin = '1/1', xid = '9000000000'",
	} {
		f.exec(f.owner, sql)
	}
	return id
}

// awaitXid begins transactions until one gets the id.
func (f *feedFixture) awaitXid(db *pgxpool.Pool, id int64) pgx.Tx {
	f.t.Helper()
	for {
		tx, err := db.Begin(f.ctx)
		if err != nil {
			f.t.Fatal(err)
		}
		var got int64
		if err := tx.QueryRow(f.ctx, `select pg_current_xact_id()::text::bigint`).Scan(&got); err != nil {
			f.t.Fatal(err)
		}
		if got == id {
			f.t.Cleanup(func() { _ = tx.Rollback(f.ctx) })
			return tx
		}
		if err := tx.Rollback(f.ctx); err != nil || got > id {
			f.t.Fatalf("transaction %d has begun, want %d: %v", got, id, err)
		}
	}
}
