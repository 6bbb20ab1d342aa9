package console_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The page of workers shows the slots, the tasks in flight and the pace of each worker for kinds that
// the caller may use, and what a worker has written of itself stays text.
func TestWorkersOnThePage(t *testing.T) {
	t.Parallel()
	s := serve(t)
	owner := ledgertest.As(t, s.db, ledgertest.Owner)
	for id, more := range map[string]string{
		"w-1": `"load":{"coupon.send":{"slots":17,"running":16,"overdue":5,"in_flight":13,` +
			`"per_minute":123.4}},"version":"v1.2.3"`,
		"w-2": `"version":"<script>alert(1)</script>","names":["host-1","<script>"]`,
	} {
		_, err := owner.Exec(t.Context(), `insert into taskledger.lease (name, holder, since, alive_until, detail)
			values ('worker/' || $1::text, $1::text, now(), now() + interval '1 hour', $2::text::json)`,
			id, `{"kinds":["coupon.send"],"shards":"all",`+more+`}`)
		if err != nil {
			t.Fatal(err)
		}
	}
	ledgertest.Enqueue(t, s.db, ledgertest.Key(t, "mail.send/m-1"), `{}`)
	ledgertest.Enqueue(t, s.db, ledgertest.Key(t, "coupon.send/c-1"), `{}`)
	s.project()
	b := s.as(api.Viewer)
	p := b.get("/workers")
	b.want(p, http.StatusOK, "w-1", "w-2",
		`No live worker: <a href="/kind?name=mail.send"><bdi>mail.send</bdi></a> (<a href=`, ">1 waiting</a>",
		">Start the program that registers it.",
		"</svg> 16/17</td>", `data-label="in flight"><a href="/tasks?state=running&amp;worker=w-1" `, ">13</a>",
		`data-label="overdue">5<`, `data-label="a minute">123<`,
		"v1.2.3", "&lt;script&gt;", "host-1, &lt;script&gt;</bdi>", `data-label="a minute">–<`)
	if strings.Contains(p.body, "<script>") {
		t.Errorf("not escaped:\n%s", p.body)
	}
	limited := s.as(api.Viewer, "other.*")
	if p := limited.get("/workers"); strings.Contains(p.content(), "w-1") || !strings.Contains(p.body, "No worker") {
		t.Errorf("a caller reads workers of other kinds:\n%s", p.content())
	}
}

// The page of workers has 50 of them and leads to the others. The number of live workers of a kind counts all of them.
func TestWorkersInPages(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ledgertest.ExecAsOwner(t, s.db, `
		insert into taskledger.lease (name, holder, alive_until, detail)
		select 'worker/w-' || i, 'w-' || i, now() + case when i % 4 = 0 then -1 else 1 end * interval '1 hour',
		       '{"kinds":["coupon.send"],"shards":"all"}'
		  from generate_series(101, 220) i`)
	worker, next := regexp.MustCompile(`<code>(w-\d+)</code>`), regexp.MustCompile(`rel="next" href="([^"]+)"`)
	b := s.as(api.Viewer)
	seen := map[string]bool{}
	b.want(b.get("/kinds"), http.StatusOK, `data-label="workers">90<`)
	for path, pages := "/workers", 1; path != ""; pages++ {
		p := b.get(path)
		b.want(p, http.StatusOK)
		listed := worker.FindAllStringSubmatch(p.body, -1)
		if len(listed) > 50 || pages > 3 {
			t.Fatalf("page %d has %d workers", pages, len(listed))
		}
		for _, w := range listed {
			seen[w[1]] = true
		}
		path = ""
		if link := next.FindStringSubmatch(p.body); link != nil {
			path = link[1]
		}
	}
	if len(seen) != 120 {
		t.Errorf("the pages have %d workers, want 120", len(seen))
	}
	b.want(b.get("/workers?after=%ff"), http.StatusBadRequest, "after must be a name")
}

// Lost workers come first, with the time of their last lease and the tasks that they hold of kinds that the caller may
// use. Those that were lost long ago and hold none are folded.
func TestLostWorkersComeFirst(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, key := range []string{"coupon.send/1", "coupon.send/2", "other.make/1"} {
		k := ledgertest.Key(t, key)
		ledgertest.Enqueue(t, s.db, k, `{}`)
		s.appendAll(k, ledger.AppendRequest{Type: ledger.EventStarted, Actor: "w-lost"})
	}
	s.project()
	ledgertest.ExecAsOwner(t, s.db, "update taskledger.task set lingering = version where state = 'running'")
	ledgertest.ExecAsOwner(t, s.db, `
		insert into taskledger.lease (name, holder, since, alive_until, term, detail)
		select 'worker/' || w.id, w.id, now() - interval '1 day', now() + w.until, '15 seconds',
		       '{"kinds":["coupon.send","other.make"],"shards":"all"}'
		  from (values ('w-alive', interval '15 seconds'), ('w-lost', interval '-165 seconds'),
		               ('w-none', interval '-15 minutes'), ('w-old', interval '-3 hours')) w(id, until)`)
	for held, b := range map[string]*browser{"3": s.as(api.Viewer), "2": s.as(api.Viewer, "coupon.*")} {
		p := b.get("/workers")
		b.want(p, http.StatusOK, "<h2>2 lost</h2>", `<span class="state dead">lost</span>`, ">3 min ago</time>",
			`data-label="holds tasks">`+held+"</td>", "1 lost for more than an hour")
		last := -1
		for _, id := range []string{"w-lost", "w-none", "w-alive", "w-old"} {
			at := strings.Index(p.body, "<code>"+id+"</code>")
			if at < last {
				t.Errorf("%s is before another worker:\n%s", id, p.content())
			}
			last = at
		}
	}
}

// The charts mark when the first worker of a version began, and what a worker has written as its version stays text.
func TestVersionsOnTheCharts(t *testing.T) {
	t.Parallel()
	s := serve(t)
	owner := ledgertest.As(t, s.db, ledgertest.Owner)
	for id, w := range map[string]struct{ version, since, until string }{
		"old":     {version: `"v1"`, since: "-2 days", until: "-1 hour"},
		"again":   {version: `"v1"`, since: "-30 minutes", until: "1 hour"},
		"earlier": {version: `"v2"`, since: "-3 hours", until: "-2 hours"},
		"new":     {version: `"v3"`, since: "-20 minutes", until: "1 hour"},
		"second":  {version: `"v3"`, since: "-10 minutes", until: "1 hour"},
		"hostile": {version: `"<script>alert(1)</script>"`, since: "-5 minutes", until: "1 hour"},
		"nul":     {version: `"\u0000"`, since: "-5 minutes", until: "1 hour"},
		"number":  {version: `17`, since: "-5 minutes", until: "1 hour"},
		"none":    {version: `null`, since: "-5 minutes", until: "1 hour"},
	} {
		_, err := owner.Exec(t.Context(), `insert into taskledger.lease (name, holder, since, alive_until, detail)
			values ('worker/' || $1::text, $1::text, now() + $2::text::interval, now() + $3::text::interval,
			        $4::text::json)`,
			id, w.since, w.until, `{"kinds":["coupon.send"],"shards":"all","version":`+w.version+`}`)
		if err != nil {
			t.Fatal(err)
		}
	}
	p := s.as(api.Viewer).get("/?range=24h")
	if p.status != http.StatusOK {
		t.Fatalf("status %d\n%s", p.status, p.body)
	}
	for text, want := range map[string]int{
		`<title>v1</title>`: 0, `<title>v2</title>`: 1, `<title>v3</title>`: 1, "<bdi>v3</bdi>": 1,
		"<title>&lt;script&gt;": 1, "<script>": 0, "<title>17": 0,
	} {
		if n := strings.Count(p.body, text); n != want {
			t.Errorf("%d times %s, want %d", n, text, want)
		}
	}
}
