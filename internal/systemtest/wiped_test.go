package systemtest_test

import (
	"flag"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger/ledgertest"
)

var (
	finished   = flag.Int("finished", 50_000, "finished tasks of TestWipedStreamBesideALongHistory")
	unfinished = flag.Int("unfinished", 200, "unfinished tasks of TestWipedStreamBesideALongHistory")
)

// insertHistory inserts tasks as the ledger and the projector would: $2 of $1 are unfinished, evenly spread. Their
// events have been published, and the projector lists the unfinished ones.
var insertHistory = []string{`
	with tx as materialized (select pg_current_xact_id() as xid, taskledger.login_id() as login_id)
	insert into taskledger.event (xid, version, attempt, shard, type, login_id, kind, biz_id, actor, data)
	select tx.xid, v.version, 0, taskledger.shard_of(i::text), v.type::taskledger.event_type, tx.login_id,
	       'parcel.send', i::text, session_user, case v.version when 1 then '{}'::json end
	  from tx
	 cross join generate_series(1, $1::bigint) i
	 cross join (values (1, 'enqueued'), (2, 'succeeded')) v(version, type)
	 where v.version = 1 or i % ($1::bigint / $2::bigint) <> 0`, `
	insert into taskledger.task (kind, biz_id, shard, state, aside, version, attempt, failures, enqueued_at, updated_at,
	                             lingering)
	select 'parcel.send', i::text, taskledger.shard_of(i::text), s.state, false,
	       case s.state when 'available' then 1 else 2 end, 0, 0, now(), now(), case s.state when 'available' then 1 end
	  from generate_series(1, $1::bigint) i
	 cross join lateral (
	   select case when i % ($1::bigint / $2::bigint) = 0 then 'available' else 'succeeded' end
	            ::taskledger.task_state as state) s`, `
	with edge as materialized (
	  select pg_current_snapshot() as seen, pg_sequence_last_value('taskledger.event_position_seq'::regclass) as top)
	insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, origin, mark)
	select c.reader, c.n + 1, e.seen, e.top, pg_current_xact_id(), c.origin,
	       case c.reader
	         when 'relay' then c.mark
	         else json_build_object('listed', json_build_object('seen', json_build_object(
	                'snapshot', e.seen::text, 'top', e.top, 'bound', pg_current_xact_id()::text)), 'tagged', true)
	       end
	  from edge e
	 cross join (select distinct on (reader) * from taskledger.cursor order by reader, n desc) c
	 where $1::bigint > $2::bigint`,
	`delete from taskledger.cursor c
	  where c.n < (select max(n) from taskledger.cursor o where o.reader = c.reader) and $1::bigint > $2::bigint`,
}

// The stream is wiped beside a long history. New work begins at once, unfinished tasks run once, and the events that
// are read are in proportion to what is unfinished.
func TestWipedStreamBesideALongHistory(t *testing.T) {
	t.Parallel()
	d := newDepot(t)
	stopRelay := d.startStoppable("relay", newRelay)
	stopProjector := d.startStoppable("projector", newProjector)
	d.enqueue(letter, "first")
	d.await("the relay and the projector to have a cursor", func() bool {
		return d.count(`select count(*) from taskledger.task`) == 1 &&
			d.count(`select count(*) from taskledger.outbox`) == 0
	})
	stopRelay()
	stopProjector()
	owner := ledgertest.As(t, d.db, ledgertest.Owner)
	for _, sql := range insertHistory {
		if _, err := owner.Exec(t.Context(), sql, *finished, *unfinished); err != nil {
			t.Fatal(err)
		}
	}
	for _, sql := range []string{"vacuum analyze taskledger.event", "vacuum analyze taskledger.task"} {
		if _, err := owner.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	d.nats.Stop()
	if err := d.nats.Wipe(); err != nil {
		t.Fatal(err)
	}
	before := d.fetched(owner)
	if err := d.nats.Restart(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	d.start("relay", newRelay)
	d.start("projector", newProjector)
	d.start("parcels", sends)
	d.enqueue(parcel, "new")
	d.await("the new task to be done", func() bool {
		return d.count(`select count(*) from effect where biz_id = 'new'`) == 1
	})
	newWork := time.Since(began)
	d.await("the unfinished tasks to be back", func() bool {
		return d.count(`select count(*) from taskledger.relay_mark where is_repairing`) > 0 &&
			d.count(`select count(*) from (select is_repairing from taskledger.relay_mark order by n desc limit 1) m
			          where not is_repairing`) == 1
	})
	back := time.Since(began)
	d.await("the unfinished tasks to be done", func() bool {
		return d.count(`select count(distinct (kind, biz_id)) from effect`) == *unfinished+1
	})
	if n := d.count(`select count(*) from effect`); n != *unfinished+1 {
		t.Errorf("%d effects, want %d", n, *unfinished+1)
	}
	read := d.fetched(owner) - before
	t.Logf("%d finished and %d unfinished: new work began after %s, the unfinished were back after %s and done after "+
		"%s; %d events were read", *finished, *unfinished, newWork, back, time.Since(began), read)
	if limit := 60**unfinished + 5_000; read > limit {
		t.Errorf("%d events were read, want at most %d", read, limit)
	}
}

// fetched returns how many rows of the table event were read through indexes.
func (d *depot) fetched(owner *pgxpool.Pool) (n int) {
	d.t.Helper()
	_, _ = owner.Exec(d.t.Context(), "select pg_stat_force_next_flush()")
	time.Sleep(1100 * time.Millisecond) // backends report at most once a second
	err := owner.QueryRow(d.t.Context(), `select idx_tup_fetch from pg_stat_user_tables where relname = 'event'`).
		Scan(&n)
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}
