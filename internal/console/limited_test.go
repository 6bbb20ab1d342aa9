package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/periodic"
)

// A caller that is limited to kinds reads nothing of others: neither in lists, nor in the links to their next pages,
// nor in conditions. Its pages are full although most items are of other kinds.
func TestLimitedCallers(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.bury(110, "unseen.kind")
	s.bury(1, "other.kind")
	s.project()
	var schedules []periodic.Schedule
	for i := range 110 {
		schedules = append(schedules, periodic.Schedule{Name: fmt.Sprintf("unseen-%03d", i), Kind: "unseen.kind",
			Every: time.Hour})
	}
	schedules = append(schedules, periodic.Schedule{Name: "other", Kind: "other.kind", Every: time.Hour})
	if _, err := periodic.Apply(t.Context(), ledgertest.As(t, s.db, ledgertest.Owner), schedules, nil); err != nil {
		t.Fatal(err)
	}
	ledgertest.ExecAsOwner(t, s.db, `
		insert into taskledger.lease (name, holder, alive_until, detail)
		select 'worker/' || w, w, now() + interval '1 hour', json_build_object('kinds', array[k], 'shards', 'all')
		  from (select 'unseen-' || i as w, 'unseen.kind' as k from generate_series(101, 210) i
		         union all select 'other', 'other.kind') w`)
	// 60 groups of dead tasks of other kinds, whose fingerprints come first
	ledgertest.ExecAsOwner(t, s.db, `
		update taskledger.task set error = 'unseen ' || biz_id, fingerprint = '0' || substr(md5(biz_id), 1, 15)
		 where kind = 'unseen.kind'`)
	ledgertest.ExecAsOwner(t, s.db, `
		select taskledger_internal.set_start_limit(l, array['other.kind', k], '{1,1}', null, 5, null, null, null, 'op')
		  from (values ('other', 'other.a'), ('unseen', 'unseen.kind')) v (l, k)`)
	limited := s.as(api.Operator, "other.*")
	for path, want := range map[string]string{
		"/":                   "is limited to kinds",
		"/tasks":              "other.kind",
		"/tasks?prefix=o":     "other.kind",
		"/tasks?state=dead":   "other.kind",
		"/failures":           "other.kind",
		"/kinds":              "other.kind",
		"/workers":            "<code>other</code>",
		"/find?q=e":           "other.kind",
		"/?by=kind":           "is limited to kinds",
		"/schedules":          ">other<br>",
		"/limits":             "<b>other</b>",
		"/events":             "",
		"/subscribers":        "",
		"/tasks?prefix=order": "order-000",
	} {
		p := limited.get(path)
		limited.want(p, http.StatusOK, want)
		if strings.Contains(p.body, "unseen") || strings.Contains(p.body, "order-001") ||
			strings.Contains(p.body, `data-key="condition `) ||
			strings.Contains(p.body, "of the checks") {
			t.Errorf("%s has other kinds:\n%s", path, p.body)
		}
	}
	limited.want(limited.get("/kind?name=unseen.kind"), http.StatusForbidden, "limited to other kinds")
	limited.want(limited.get("/system"), http.StatusForbidden, "is limited to kinds")
	all := s.as(api.Viewer)
	all.want(all.get("/"), http.StatusOK, `data-key="condition `)
	all.want(all.get("/system"), http.StatusOK, `href="/system"`)
}
