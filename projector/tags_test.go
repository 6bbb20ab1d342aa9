package projector_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// insertTagged inserts a task as a program does that writes rows by itself.
func insertTagged(tb testing.TB, pool *pgxpool.Pool, id, meta string) {
	tb.Helper()
	ledgertest.ExecAsOwner(tb, pool, `insert into taskledger.event
		(kind, biz_id, version, attempt, shard, type, actor, data, meta) values
		(case when $1 < 'm' then 'a' else 'b' end, $1, 1, 0, 0, 'enqueued', 'shop', '{}', $2::text::json)`, id, meta)
}

// listed returns the tasks of a filter, read in pages of two.
func listed(tb testing.TB, pool *pgxpool.Pool, f projector.TaskFilter) (ids []ledger.BizID) {
	tb.Helper()
	for f.Limit = 2; ; {
		tasks, next, err := projector.ReadTasks(tb.Context(), pool, f)
		if err != nil {
			tb.Fatal(err)
		}
		for _, task := range tasks {
			ids = append(ids, task.BizID)
		}
		if f.StartAfter = next; next == 0 {
			return ids
		}
	}
}

// isWhole reports whether tasks are found by the table of tags.
func isWhole(tb testing.TB, pool *pgxpool.Pool) (whole bool) {
	tb.Helper()
	if err := pool.QueryRow(tb.Context(), statement(tb, "tags_whole"), feed.ProjectorReader).Scan(&whole); err != nil {
		tb.Fatal(err)
	}
	return whole
}

// Tasks are found by each of their tags, the last enqueued first, beside all other filters, also after a rebuild.
func TestListByTag(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	many := strings.Repeat(`"",`, 20)
	for i := range projector.MaxTags + 1 {
		many += fmt.Sprintf(`"n%d",`, i)
	}
	for _, task := range []struct{ id, meta string }{
		{id: "c", meta: `{"tags":["vip","eu","vip"]}`},
		{id: "d", meta: `{"tags" : [ "vip" ]}`},
		{id: "z", meta: `{"\u0074ags":["v\u0069p"]}`},
		{id: "e", meta: `{"tags":["eu]","a\"b\\","\u0000","` + strings.Repeat("x", projector.MaxTag+1) + `"]}`},
		{id: "f", meta: `{"Tags":["vip"],"note":"tags vip"}`},
		{id: "g", meta: `{"tags":5}`},
		{id: "h", meta: `{"tags":[` + many + `null]}`},
		{id: "i", meta: `{"encoding":5,"tags":["\ud800"]}`},
	} {
		insertTagged(t, pool, task.id, task.meta)
	}
	if _, err := ledger.Append(t.Context(), pool, ledgertest.Request(ledger.Key{Kind: "a", BizID: "d"}, 1,
		ledger.EventBuried)); err != nil {
		t.Fatal(err)
	}
	wantTags := func() {
		t.Helper()
		for _, test := range []struct {
			filter projector.TaskFilter
			want   []ledger.BizID
		}{
			{filter: projector.TaskFilter{Tag: "vip"}, want: []ledger.BizID{"z", "d", "c"}},
			{filter: projector.TaskFilter{Tag: "vip", Kind: "a"}, want: []ledger.BizID{"d", "c"}},
			{filter: projector.TaskFilter{Tag: "vip", State: ledger.StateDead}, want: []ledger.BizID{"d"}},
			{filter: projector.TaskFilter{Tag: "vip", State: ledger.StateRunning}, want: nil},
			{filter: projector.TaskFilter{Tag: "vip", Prefix: "c"}, want: []ledger.BizID{"c"}},
			{filter: projector.TaskFilter{Tag: "vip", Actor: "other"}, want: nil},
			{filter: projector.TaskFilter{Tag: "vip", Walk: 1}, want: []ledger.BizID{"z", "d", "c"}},
			{filter: projector.TaskFilter{Tag: "eu"}, want: []ledger.BizID{"c"}},
			{filter: projector.TaskFilter{Tag: "eu]"}, want: []ledger.BizID{"e"}},
			{filter: projector.TaskFilter{Tag: `a"b\`}, want: []ledger.BizID{"e"}},
			{filter: projector.TaskFilter{Tag: "\uFFFD"}, want: []ledger.BizID{"i", "e"}},
			{filter: projector.TaskFilter{Tag: "vi"}, want: nil},
			{filter: projector.TaskFilter{Tag: fmt.Sprint("n", projector.MaxTags-1)}, want: []ledger.BizID{"h"}},
			{filter: projector.TaskFilter{Tag: fmt.Sprint("n", projector.MaxTags)}, want: nil},
		} {
			if diff := difference.Of(test.want, listed(t, pool, test.filter)); diff != "" {
				t.Errorf("%+v (-want +have):\n%s", test.filter, diff)
			}
		}
	}
	project(t, pool)
	if !isWhole(t, pool) {
		t.Fatal("the projector of a new ledger has not all tags")
	}
	wantTags()
	check(t, pool)
	rebuildTasks(t, pool)
	if !isWhole(t, pool) {
		t.Error("a rebuild has not all tags")
	}
	wantTags()
	insertTagged(t, pool, "x", `{}`)
	project(t, pool)
	wantTags()
	check(t, pool)
	for _, tag := range []string{"a\x00", "\xff", strings.Repeat("x", projector.MaxTag+1)} {
		_, _, err := projector.ReadTasks(t.Context(), pool, projector.TaskFilter{Tag: tag})
		var invalid *ledger.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "tag" {
			t.Errorf("%.10q: got %v, want an InvalidError about tag", tag, err)
		}
	}
}

// olderProjector does what a projector of an older version does to the table of tags: it adds none, and its mark does
// not have the place.
func olderProjector(tb testing.TB, pool *pgxpool.Pool, since ledger.Position) {
	tb.Helper()
	ledgertest.ExecAsOwner(tb, pool, `delete from taskledger.task_tag where position > $1`, int64(since))
	ledgertest.ExecAsOwner(tb, pool, `update taskledger.cursor
		set mark = (mark::jsonb - 'tagged' - 'tagging')::json where reader = $1`, feed.ProjectorReader)
}

// Tasks that a projector of an older version has projected are found by their tags: first by reading events, then by
// the table, to which the projector adds them beside its other work. Not parallel: the settings are of the process.
func TestTagsOfEarlierTasks(t *testing.T) {
	defer projector.SetTagHistoryPage(3)()
	for name, setIdle := range map[string]func() func(){
		"idle": func() func() { return projector.SetLingerPage(100) },
		"busy": func() func() { return func() {} },
	} {
		t.Run(name, func(t *testing.T) {
			defer setIdle()()
			pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
			var want []ledger.BizID
			insert := func(n int) {
				for i := range n {
					id := fmt.Sprintf("%03d", len(want)+i)
					insertTagged(t, pool, id, `{"tags":["vip"]}`)
					insertTagged(t, pool, id+" other", `{"tags":["other"]}`)
				}
				for range n {
					want = slices.Insert(want, 0, ledger.BizID(fmt.Sprintf("%03d", len(want))))
				}
			}
			wantAll := func(whole bool) {
				t.Helper()
				if have := isWhole(t, pool); have != whole {
					t.Errorf("the table has all tags: %t, want %t", have, whole)
				}
				if diff := difference.Of(want, listed(t, pool, projector.TaskFilter{Tag: "vip"})); diff != "" {
					t.Errorf("-want +have:\n%s", diff)
				}
				check(t, pool)
			}
			insert(20)
			project(t, pool)
			wantAll(true)
			for _, since := range []ledger.Position{0, 50} { // the second time, between two newer versions
				olderProjector(t, pool, since)
				wantAll(false)
				stop := start(t, projector.Config{DB: pool, PageSize: 2})
				await(t, "all tags are added", func() bool {
					insert(1)
					awaitCaughtUp(t, pool)
					return isWhole(t, pool)
				})
				stop()
				wantAll(true)
			}
		})
	}
}

// A page of a tag costs the same beside many tasks with the tag as beside few, and reads no table as a whole.
func TestListByTagCostsTheSameInALargeLedger(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	fill := func(tasks int) {
		if _, err := pool.Exec(t.Context(), `insert into taskledger.event
			(kind, biz_id, version, attempt, shard, type, data, meta)
			select 'a', gen_random_uuid()::text, 1, 0, 0, 'enqueued', '{}',
			       case when n % 2 = 0 then '{"tags":["vip"]}' end::json
			  from generate_series(1, $1::integer) n`, tasks); err != nil {
			t.Fatal(err)
		}
		project(t, pool)
		const vacuum = "vacuum analyze taskledger.event, taskledger.task, taskledger.task_tag"
		if _, err := pool.Exec(t.Context(), vacuum); err != nil {
			t.Fatal(err)
		}
	}
	measure := func() int {
		return blocksOf(t, pool, "list_tagged", "", "", int64(1)<<62, 50, "", "", "vip", "", "", "", "false", "", "",
			5000, 0) +
			blocksOf(t, pool, "list_tagged", "none", "", int64(1)<<62, 50, "", "", "vip", "", "", "", "false",
				"none", "", 50, 0)
	}
	fill(1_000)
	small := measure()
	fill(50_000)
	if large := measure(); large > small+60 { // an index is one level deeper for each of 50 tasks
		t.Errorf("%d blocks beside 25,000 tasks with the tag, %d beside 500", large, small)
	}
}

// Tasks without tags write nothing into the table of tags.
func TestTasksWithoutTagsCostNoRows(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	enqueueAndSucceed(t, pool, 0, 50)
	insertTagged(t, pool, "c", `{"tags":[],"note":"\u0041"}`)
	project(t, pool)
	var size int
	if err := pool.QueryRow(t.Context(), `select pg_relation_size('taskledger.task_tag')`).Scan(&size); err != nil {
		t.Fatal(err)
	}
	if size != 0 {
		t.Errorf("the table has %d bytes, want 0", size)
	}
}

// The plans of the statements of tags, by the statistics of a large ledger.
func TestPlansOfTags(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	plantest.Enlarge(t, pool)
	insertTagged(t, pool, "a", `{"tags":["vip"]}`) // a table without a page has no rows for the planner
	project(t, pool)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), "set local plan_cache_mode to force_generic_plan"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"list_tagged": {"Index Only Scan Backward using task_tag_pkey", "Index Scan using event_position_key",
			"Index Scan using task_pkey"},
		"tags_history": {"Index Scan using event_position_key", "Index Only Scan using task_pkey"},
		"verify_tags":  {"Index Only Scan using task_tag_pkey"},
	} {
		plan := explain(t, tx, name)
		for _, scan := range want {
			if !strings.Contains(plan, scan) {
				t.Errorf("%s: want %s, got\n%s", name, scan, plan)
			}
		}
		if strings.Contains(plan, "Seq Scan on") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}
