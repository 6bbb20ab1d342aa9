package console_test

import (
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

var consoleTasks = flag.Int("console-tasks", 20_000,
	"number of tasks in TestPagesOfALargeLedger; from 1,000,000 on, a page may take 150 ms")

const (
	// fillTasks inserts the tasks of a range, two a second: $1 the first, $2 the last, $3 the number of all. Of a kind,
	// 90 % have succeeded. Of 10,000 tasks, one has expired.
	fillTasks = `
		with tx as materialized (
		  select pg_current_xact_id() as xid, taskledger_internal.login_id() as login_id
		)
		insert into taskledger.event
		       (xid, recorded_at, version, attempt, type, login_id, shard, kind, biz_id, actor, data, meta)
		select tx.xid, now() - interval '0.52 seconds' * ($3::integer - n + 1.0 / v.version), v.version,
		       case when v.type in ('succeeded', 'failed', 'started') then 1 else 0 end,
		       v.type::taskledger.event_type, tx.login_id, n % 64,
		       case when n <= 10 then 'rare' else 'shop.kind-' || to_char(n % 97, 'FM00') end,
		       'order-' || to_char(n, 'FM00000000'), case when n % 7 = 0 then 'web' else 'shop' end,
		       case when v.version = 1 then '{"customer":17,"percent":10}'
		            when v.type in ('buried', 'failed')
		            then '{"error":{"type":"Refused","message":"refused by ' || repeat('x', n / 9700 % 3) || '"}}'
		            when v.type = 'succeeded' then '{"duration_ms":3}' end::json,
		       case when v.version > 1 then null
		            when k.m = 94 then '{"run_at":"2099-01-01T00:00:00Z"}'
		            when n % 1000 = 500 then '{"tags":["vip","seldom"]}'
		            when n % 10 = 5 then '{"tags":["vip"]}' end::json
		  from tx
		 cross join generate_series($1::integer, $2::integer) n
		 cross join lateral (
		   select case when n <= 10 or n > 0.98 * $3::integer and n / 97 % 100 = 97 then 0
		               else n / 97 % 100 end as m) k -- no task of the newest ones is running
		 cross join lateral (
		   values (1, case when k.m = 94 then 'scheduled' else 'enqueued' end),
		          (2, case when n % 10000 = 77 then 'expired' when k.m < 90 then 'succeeded' when k.m < 92 then 'buried'
		                   when k.m < 94 then 'cancelled' when k.m = 97 then 'started'
		                   when k.m = 98 then 'failed' end)) v(version, type)
		 where v.type is not null`
	fillTimers = `
		insert into taskledger.timer (due_at, kind, biz_id, version, reason)
		select now() + interval '1 day' + e.position * interval '1 second', e.kind, e.biz_id, e.version,
		       case when e.type = 'failed' then 'retry' else 'due' end
		  from taskledger.event e
		 where e.type in ('scheduled', 'failed')`
	fillSchedules = `
		insert into taskledger.schedule (name, kind, every_ms, anchor, missed, missed_limit, overlap, actor, next_at)
		select 'schedule-' || i, 'shop.kind-00', 60000, now(), 'one', 1, 'allow', 'a', now() + interval '1 hour'
		  from generate_series(1, 1000) i`
	// copyCursor gives $1 readers the cursor of another one, $2: 'relay', or subscribers.
	copyCursor = `
		insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, until, top, bound, after_position,
		                               audited, origin, timeline)
		select case when $1::integer = 0 then 'relay' else 'subscriber/copy-' || i end, c.n, c.seen, c.seen_top,
		       c.seen_bound, c.until, c.top, c.bound, c.after_position, c.audited, c.origin, c.timeline
		  from (select * from taskledger.cursor where reader = $2::text order by n desc limit 1) c
		 cross join generate_series(least($1::integer, 1), $1::integer) i`
)

// fillLedger makes a ledger of so many tasks with its projection, timers, schedules and subscribers.
func fillLedger(t *testing.T, owner *pgxpool.Pool, tasks int) {
	t.Helper()
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := owner.Exec(t.Context(), sql, args...); err != nil {
			t.Fatalf("%v: %s", err, sql)
		}
	}
	begun := time.Now()
	const part = 250_000
	for first := 1; first <= tasks; first += part {
		exec(fillTasks, first, min(first+part-1, tasks), tasks)
	}
	t.Logf("%d tasks were inserted in %s", tasks, time.Since(begun).Round(time.Millisecond))
	exec("vacuum (analyze) taskledger.event")
	if err := projector.RebuildTasks(t.Context(), owner, nil); err != nil {
		t.Fatal(err)
	}
	t.Logf("projected after %s", time.Since(begun).Round(time.Millisecond))
	exec(fillTimers)
	exec(fillSchedules)
	exec(copyCursor, 0, "projector")
	exec(copyCursor, 50, "projector")
	for _, name := range []string{"a-first", "b-second"} { // all events are left for them
		if err := feed.Seek(t.Context(), owner, name, feed.After(0)); err != nil {
			t.Fatal(err)
		}
	}
	exec("vacuum (analyze)")
	t.Logf("filled after %s", time.Since(begun).Round(time.Millisecond))
}

// Each page of a large ledger is complete. With -console-tasks 5000000 it is one of 30 days with 9,700,000 events, and
// each page takes at most 150 ms.
func TestPagesOfALargeLedger(t *testing.T) {
	t.Parallel()
	const bound, isLarge = 150 * time.Millisecond, 1_000_000
	tasks := *consoleTasks
	s := serve(t)
	fillLedger(t, ledgertest.As(t, s.db, ledgertest.Owner), tasks)
	b := s.as(api.Operator)
	task := func(n int) string {
		return fmt.Sprintf("/task?kind=shop.kind-%02d&biz_id=order-%08d", n%97, n)
	}
	for _, test := range []struct{ path, want string }{
		{path: "/", want: "shop.kind-07"},
		{path: "/?range=24h", want: "shop.kind-07"},
		{path: "/?range=30d&by=kind", want: "shop.kind-07"},
		{path: "/find?q=order-0001", want: "order-0001"},
		{path: "/tasks", want: fmt.Sprintf("order-%08d", tasks)},
		{path: fmt.Sprint("/tasks?after=", tasks), want: `rel="next"`}, // in the middle
		{path: "/tasks?state=succeeded", want: `rel="next"`},
		{path: "/tasks?state=available", want: `rel="next"`},
		{path: "/tasks?state=running", want: `rel="next"`},
		{path: "/tasks?state=running&kind=rare", want: "No task matches in the part that was read"},
		{path: "/tasks?kind=shop.kind-07", want: `rel="next"`},
		{path: "/tasks?kind=rare", want: "No task matches in the part that was read"},
		{path: "/tasks?state=dead", want: `rel="next"`},
		{path: "/tasks?state=dead&kind=shop.kind-10", want: "order-"},
		{path: "/tasks?state=scheduled", want: "order-000"},
		{path: "/tasks?state=scheduled&prefix=order-0000", want: "order-0000"},
		{path: "/tasks?state=expired", want: fmt.Sprintf("order-%08d", tasks-10_000+77)}, // few, beside many others
		{path: "/tasks?state=cancelled&kind=rare", want: "No task matches"},
		{path: "/tasks?state=discarded", want: "No task matches"},
		{path: "/tasks?prefix=order-0000", want: `rel="next"`},
		{path: "/tasks?prefix=order-0&kind=shop.kind-07&state=succeeded", want: `rel="next"`},
		{path: "/tasks?tag=vip", want: `rel="next"`},
		{path: "/tasks?tag=seldom", want: "order-00000500"},
		{path: "/tasks?tag=vip&kind=rare", want: "order-00000005"},
		{path: "/tasks?tag=vip&state=dead&prefix=none", want: "No task matches"},
		{path: task(11), want: "succeeded"},
		{path: task(90 * 97), want: "refused by"},
		{path: "/failures", want: "refused by"},
		{path: "/kinds", want: "shop.kind-07"},
		{path: "/kind?name=shop.kind-07", want: "refused by"},
		{path: "/workers", want: "No worker"},
		{path: "/schedules", want: "schedule-1"},
		{path: "/subscribers", want: "a-first"},
		{path: "/events", want: `rel="next"`},
		{path: "/events?prefix=shop.kind-07/order-00019989", want: "order-00019989"},
		{path: "/events?type=failed", want: `rel="next"`},
		{path: "/events?actor=nobody", want: "No event matches"},
		{path: "/system", want: "Schema"},
	} {
		if tasks > 20_000 && strings.HasPrefix(test.want, "order-00000") {
			test.want = `rel="next"` // it is on a later page
		}
		b.timePage(test.path, test.want, bound, tasks >= isLarge)
	}
	form := url.Values{"csrf": {token(t, b.get("/tasks?state=dead"))}, "act": {"cancel"}, "state": {"retrying"}}
	begun := time.Now()
	b.want(b.post("/bulk", form), http.StatusOK, "tasks match")
	t.Logf("%8s  preview of an act on a filter", time.Since(begun).Round(100*time.Microsecond))
}

// timePage asks for a page ten times, and logs the first, the median and the longest time. Each page is checked. Of the
// pages with the state of the services, and of one other, each time is one at which the numbers in the menu are read
// again.
func (b *browser) timePage(path, want string, bound time.Duration, isBound bool) {
	b.t.Helper()
	var times []time.Duration
	for range 10 {
		if isBound && (path == "/" || path == "/system" || path == "/workers") {
			time.Sleep(2100 * time.Millisecond) // maxKeptAge
		}
		begun := time.Now()
		p := b.get(path)
		times = append(times, time.Since(begun))
		b.want(p, http.StatusOK, want)
	}
	first := times[0]
	slices.Sort(times)
	round := func(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
	b.t.Logf("%8s median, %8s first, %8s longest  %s", round(times[5]), round(first), round(times[9]), path)
	if isBound && times[5] > bound {
		b.t.Errorf("%s takes %s, more than %s", path, round(times[5]), bound)
	}
}
