package archiver_test

import (
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// The minutes of archived tasks become hours, but for the last two days. Nothing else changes: sums, histograms, a
// verification, and the search for tasks of a time. A killed run is continued by the next.
func TestMinutesBecomeHours(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	old := time.Now().UTC().Add(-72 * time.Hour).Truncate(time.Hour)
	add := func(from time.Time, id string) {
		t.Helper()
		ledgertest.ExecAsOwner(t, f.DB, `
			insert into taskledger.event (xid, recorded_at, version, attempt, shard, type, kind, biz_id, actor, data)
			select pg_current_xact_id(), $1::timestamptz + i * interval '1 minute', v.version, v.attempt, 1,
			       v.type::taskledger.event_type, 'coupon.send', $2 || i, 'shop',
			       case v.version when 2 then '{"duration_ms":12.125}' end::json
			  from generate_series(3, 150) i
			 cross join (values (1, 0, 'enqueued'), (2, 1, 'succeeded')) v(version, attempt, type)
			 where v.version = 1 or i <> 50
			 order by i, v.version`, from, id)
	}
	add(old, "old-")
	add(time.Now().Add(-24*time.Hour), "new-")
	f.Project()
	const sums = `
		select (kind, sum(enqueued), sum(started), sum(succeeded), min(first_position), max(last_position), (
		         select array_agg(b.n order by b.i)
		           from (
		            select u.i, sum(u.n) as n
		              from taskledger.kind_stats h
		             cross join lateral unnest(h.running) with ordinality u(n, i)
		             where h.kind = s.kind
		             group by u.i) b))::text
		  from taskledger.kind_stats s
		 where kind = 'coupon.send'
		 group by kind`
	const minutes = `
		select string_agg(distinct to_char(minute at time zone 'utc', 'HH24:MI'), ' ')
		  from taskledger.kind_stats
		 where minute < now() - interval '60 hours'`
	before := f.text(sums)

	f.SpawnAs("archiver", "archive", fault.ArchiveMerged).AwaitKilled(t)
	f.want("sums after a killed run", f.text(sums), before)
	check := func(when string) {
		t.Helper()
		f.want("sums "+when, f.text(sums), before)
		f.want("minutes "+when, f.text(minutes), old.Format("15:04 ")+old.Add(time.Hour).Format("15:04 ")+
			old.Add(2*time.Hour).Format("15:04"))
		r, err := projector.Verify(t.Context(), f.DB, nil)
		if err != nil || !r.Equal() {
			t.Errorf("verify %s: %+v, %v", when, r, err)
		}
		from := old.Add(45 * time.Minute)
		found, _, err := projector.ReadTasks(t.Context(), f.DB, projector.TaskFilter{
			Kind: kind, From: from, To: from.Add(10 * time.Minute), Limit: 10,
		})
		if err != nil || len(found) != 1 || found[0].BizID != "old-50" {
			t.Errorf("tasks of a time %s: %v, %v", when, found, err)
		}
	}
	f.archive()
	check("after a run")
	f.want("rows of the last day", f.text(`
		select (count(*) > 140)::text from taskledger.kind_stats where minute > now() - interval '30 hours'`), "true")

	for _, change := range []string{"+ 1", "- 1"} {
		ledgertest.ExecAsOwner(t, f.DB, "update taskledger.kind_stats set enqueued = enqueued "+change+
			" where minute = $1", old)
		r, err := projector.Verify(t.Context(), f.DB, nil)
		if err != nil || r.Equal() != (change == "- 1") {
			t.Errorf("verify after a change of %s: %+v, %v", change, r, err)
		}
	}

	// An event that comes late is merged by the next run.
	ledgertest.ExecAsOwner(t, f.DB, `
		insert into taskledger.event (xid, recorded_at, version, attempt, shard, type, kind, biz_id, actor)
		values (pg_current_xact_id(), $1, 1, 0, 1, 'enqueued', 'coupon.send', 'late', 'shop')`,
		old.Add(100*time.Minute))
	f.Project()
	before = f.text(sums)
	f.archive()
	check("after a late event")
}

// After a rebuild, the next run leaves the same rows as before it.
func TestMinutesAfterARebuild(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ledgertest.ExecAsOwner(t, f.DB, `
		insert into taskledger.event (xid, recorded_at, version, attempt, shard, type, kind, biz_id, actor)
		select pg_current_xact_id(), now() - interval '72 hours' + i * interval '1 minute', 1, 0, 1, 'enqueued',
		       'coupon.send', i, 'shop'
		  from generate_series(1, 150) i`)
	f.finish("done")
	f.Project()
	old := archiver.Options{OlderThan: 50 * time.Hour}
	const rows = `
		select s::text from taskledger.kind_stats s
		 where kind = 'coupon.send' and minute < now() - interval '60 hours' order by minute`
	run := func() string {
		t.Helper()
		if _, err := archiver.Run(t.Context(), f.As("archiver"), old); err != nil {
			t.Fatal(err)
		}
		return f.text(rows)
	}
	minutes := f.text(rows)
	want := run()
	if want == minutes {
		t.Error("no minute was merged")
	}
	owner := ledgertest.As(t, f.DB, ledgertest.Owner)
	if err := projector.RebuildTasks(t.Context(), owner, nil); err != nil {
		t.Fatal(err)
	}
	f.want("minutes after a rebuild", f.text(rows), minutes)
	f.want("rows after a rebuild and a run", run(), want)
	if r, err := projector.Verify(t.Context(), f.DB, nil); err != nil || !r.Equal() {
		t.Errorf("%+v, %v", r, err)
	}
}
