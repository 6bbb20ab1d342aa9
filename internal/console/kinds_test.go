package console_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A producer may enqueue tasks of any number of kinds: pages have at most 200 of them, and lead to the others.
func TestManyKinds(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ledgertest.Enqueue(t, s.db, ledgertest.Key(t, "zz.last/1"), `{}`)
	ledgertest.ExecAsOwner(t, s.db, `
		select taskledger.enqueue('many.k' || i, b::text) from generate_series(1001, 1450) i, generate_series(1, 2) b`)
	s.project()
	b := s.as(api.Viewer)
	count := func(p page) int {
		return strings.Count(p.content(), "<bdi>many.k") + strings.Count(p.content(), "<bdi>zz.last")
	}
	if p := b.get("/"); count(p) != 200 || !strings.Contains(p.body, "251 others") {
		t.Errorf("the overview has %d kinds", count(p))
	}
	seen := 0
	for _, path := range []string{"/kinds", "/kinds?after_kind=many.k1200", "/kinds?after_kind=many.k1400"} {
		p := b.get(path)
		b.want(p, http.StatusOK)
		seen += count(p)
		if count(p) > 200 || (count(p) == 200) != strings.Contains(p.body, "More kinds") {
			t.Errorf("%s has %d kinds", path, count(p))
		}
	}
	if seen != 451 {
		t.Errorf("the pages of kinds have %d kinds, want 451", seen)
	}
	if p := b.get("/tasks?kind=zz.last"); strings.Count(p.body, "<option") > 220 ||
		!strings.Contains(p.body, "kind: zz.last") || !strings.Contains(p.body, "all kinds") {
		t.Errorf("the filter has %d options", strings.Count(p.body, "<option"))
	}
}

// Kinds in trouble come first. Each has its limits of starts with a link, and the number of tasks that may wait.
func TestKindsByTrouble(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.bury(2, "m.dead")
	for _, id := range []string{"z.waits/1", "a.works/1"} {
		ledgertest.Enqueue(t, s.db, ledgertest.Key(t, id), `{}`)
	}
	ledgertest.ExecAsOwner(t, s.db, `
		insert into taskledger.lease (name, holder, alive_until, detail)
		values ('worker/w', 'w', now() + interval '1 hour', '{"kinds":["a.works","m.dead"],"shards":"all"}');
		select taskledger_internal.set_start_limit('both', '{a.works,z.waits}', '{1,2}', null, 20, 100, 60, 100, 'op');
		select taskledger_internal.set_start_limit('z.waits', '{z.waits}', '{1}', 'order_key', 2, null, null, null,
		       'op')`)
	s.project()
	p := s.as(api.Viewer).get("/kinds")
	if strings.Contains(p.body, ">Max waiting<") {
		t.Errorf("an empty column:\n%s", p.content())
	}
	if err := ledger.SetLimit(t.Context(), ledgertest.As(t, s.db, "operator"),
		ledger.Limit{Kind: "m.dead", MaxWaiting: 9}, "op"); err != nil {
		t.Fatal(err)
	}
	p = s.as(api.Viewer).get("/kinds")
	const both = `<a href="/limits?name=both" title="Limit both">20 running, 100/m</a></span>`
	s.as(api.Viewer).want(p, http.StatusOK, ">Max waiting<", both+`<br><span><a href="/limits?name=z.waits" `,
		">2 per order key</a>")
	last := -1
	for _, kind := range []string{"z.waits", "m.dead", "a.works"} {
		at := strings.Index(p.body, `<tr data-key="`+kind+`"`)
		if at <= last {
			t.Errorf("%s is not in its place:\n%s", kind, p.content())
		}
		last = at
	}
	limited := s.as(api.Viewer, "z.*").get("/kinds")
	if strings.Contains(limited.body, "name=both") || !strings.Contains(limited.body, "name=z.waits") {
		t.Errorf("a caller sees limits of other kinds:\n%s", limited.content())
	}
}

// The numbers of thousands of kinds are read once for many pages. A later page has them while a read takes long.
func TestNumbersOfManyKindsAreKept(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ledgertest.ExecAsOwner(t, s.db, "select taskledger.enqueue('many.k' || i, 'a') from generate_series(1, 5000) i")
	s.project()
	b := s.as(api.Viewer)
	b.want(b.get("/tasks"), http.StatusOK, "many.k1000")
	tx, err := ledgertest.As(t, s.db, ledgertest.Owner).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), "lock taskledger.task_count in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	b.want(b.get("/tasks"), http.StatusOK, "many.k1000")
}
