package archiver_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

var (
	perDay   = flag.Int("archive-tasks", 200, "how many tasks TestQuarter finishes each day")
	isSealed = flag.Bool("archive-seal", false, "TestQuarter seals each day, and archives to files")
)

// A day's tasks, with times in the past, projected and read.
const day = `
insert into taskledger.event (xid, recorded_at, version, attempt, shard, type, kind, biz_id, actor, data)
select pg_current_xact_id(), $1::timestamptz + i * interval '1 second' * 80000 / $2::bigint, v.version, v.attempt, 1,
       v.type::taskledger.event_type, 'coupon.send', 'order-' || $3::bigint || '-' || i, 'shop',
       case v.version when 1 then '{"customer":"c-1234","cents":1250,"template":"welcome"}'::json
                      when 2 then '{"duration_ms":12.125}' end
  from generate_series(1, $2::bigint) i
 cross join (values (1, 0, 'enqueued'), (2, 1, 'succeeded')) v(version, attempt, type)
 order by v.version, i`

// A quarter with 30 days kept: from the second month on, the disk space of the tables does not grow, except for the
// keys. The tables of the seal are among them.
func TestQuarter(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	owner := ledgertest.As(t, f.DB, ledgertest.Owner)
	// The test vacuums. An analyze by autovacuum, whose snapshot lasts long on a busy machine, would keep removed rows.
	ledgertest.ExecAsOwner(t, f.DB, `
		do $$ declare t regclass; begin
		  for t in select oid from pg_class where relkind = 'r' and relnamespace = 'taskledger'::regnamespace loop
		    execute format('alter table %s set (autovacuum_enabled = off)', t);
		  end loop;
		end $$`)
	begin := time.Now().Add(-92 * 24 * time.Hour)
	place := filepath.Join(t.TempDir(), "archive")
	var kept seal.Checkpoint
	var first, last int64
	var rate float64
	for d := range 91 {
		if _, err := owner.Exec(t.Context(), day, begin.Add(time.Duration(d)*24*time.Hour), *perDay, d); err != nil {
			t.Fatal(err)
		}
		if *isSealed {
			kept = f.seal()
		}
		if d%7 != 6 {
			continue
		}
		f.Project()
		now := begin.Add(time.Duration(d+1) * 24 * time.Hour)
		began := time.Now()
		o := archiver.Options{OlderThan: time.Since(now) + 30*24*time.Hour}
		if *isSealed {
			o.Files = archiver.In(f.As("archiver"), archive.Directory(place), place)
		}
		r, err := archiver.Run(t.Context(), f.As("archiver"), o)
		if err != nil {
			t.Fatal(err)
		}
		// Positions follow the time, so the records of the run get the time of their day.
		ledgertest.ExecAsOwner(t, f.DB, "alter table taskledger.event disable trigger user")
		ledgertest.ExecAsOwner(t, f.DB, `
			update taskledger.event set recorded_at = $1 where kind = 'taskledger.operation' and recorded_at > $1`, now)
		ledgertest.ExecAsOwner(t, f.DB, "alter table taskledger.event enable trigger user")
		if r.Tasks > 0 {
			rate = float64(r.Tasks) / time.Since(began).Seconds()
		}
		f.awaitNoSnapshot()
		for _, table := range []string{
			"event", "task", "kind_stats", "kind_hour", "task_count", "cursor", "archived_key",
			"seal", "seal_cut", "seal_rest",
		} {
			if _, err := owner.Exec(t.Context(), "vacuum taskledger."+table); err != nil {
				t.Fatal(err)
			}
		}
		var tables, keys, seals, others, events int64
		if err := owner.QueryRow(t.Context(), `
			select pg_total_relation_size('taskledger.event') + pg_total_relation_size('taskledger.task')
			       + pg_total_relation_size('taskledger.kind_stats') + pg_total_relation_size('taskledger.kind_hour'),
			       pg_total_relation_size('taskledger.archived_key'),
			       pg_total_relation_size('taskledger.seal') + pg_total_relation_size('taskledger.seal_cut')
			       + pg_total_relation_size('taskledger.seal_rest'), (
			         select sum(pg_total_relation_size(c.oid))::bigint from pg_class c
			          where c.relkind = 'r'
			            and c.relname not in ('event', 'task', 'kind_stats', 'kind_hour', 'archived_key', 'seal',
			                                  'seal_cut', 'seal_rest')
			            and c.relnamespace::regnamespace::text in ('taskledger', 'taskledger_internal')),
			       (select count(*) from taskledger.event)`).
			Scan(&tables, &keys, &seals, &others, &events); err != nil {
			t.Fatal(err)
		}
		t.Logf("week %2d: %8d events, %6.1f MB with their tasks and statistics, %5.1f MB of keys, %5.1f MB of the seal"+
			", %4.1f MB of other tables; removed %d tasks and %d leaves", d/7+1, events, float64(tables)/1e6,
			float64(keys)/1e6, float64(seals)/1e6, float64(others)/1e6, r.Tasks, r.Leaves)
		tables += seals
		if d >= 62 && first == 0 {
			first = tables
		}
		last = tables
	}
	t.Logf("removal: %.0f tasks a second in the last run", rate)
	t.Log(f.text(fmt.Sprintf(`select 'bytes a key: ' || pg_total_relation_size('taskledger.archived_key') / count(*)
		from taskledger.archived_key having count(*) > %d`, *perDay)))
	// Of few tasks, some pages are more than a twentieth.
	if slack := max(first/20, 1<<20); last > first+slack {
		t.Errorf("%d bytes at the end of the quarter, %d after its second month", last, first)
	}
	if *isSealed {
		f.wantSealed([]seal.Checkpoint{kept}, place)
	}
	n := f.text(`select count(*)::text from taskledger.archived_key`)
	if n != fmt.Sprint(60**perDay) && n != fmt.Sprint(61**perDay) {
		t.Errorf("%s keys, want those of 61 days", n)
	}
}

// awaitNoSnapshot waits until a vacuum can remove all dead rows and freeze all others. A snapshot, such as that of an
// analyze of the catalog on a busy machine, would keep them.
func (f *fixture) awaitNoSnapshot() {
	f.T.Helper()
	for deadline := time.Now().Add(time.Minute); f.text(`
		select count(*)::text from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
		   and (backend_xmin is not null or backend_xid is not null)`) != "0"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.T.Fatal("a transaction stays open")
		}
	}
}
