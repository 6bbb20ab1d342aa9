package console_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/api"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The page of kinds shows the slots, the tasks in flight and the pace of each worker, of kinds that the caller may use,
// and what a worker has written of itself stays text.
func TestWorkersOnThePage(t *testing.T) {
	t.Parallel()
	s := serve(t)
	owner := ledgertest.As(t, s.db, ledgertest.Owner)
	for id, more := range map[string]string{
		"w-1": `"load":{"coupon.send":{"slots":17,"in_flight":13,"per_minute":123.4}},"version":"v1.2.3"`,
		"w-2": `"version":"<script>alert(1)</script>"`,
	} {
		_, err := owner.Exec(t.Context(), `insert into taskledger.lease (name, holder, since, alive_until, detail)
			values ('worker/' || $1::text, $1::text, now(), now() + interval '1 hour', $2::text::json)`,
			id, `{"kinds":["coupon.send"],"shards":"all",`+more+`}`)
		if err != nil {
			t.Fatal(err)
		}
	}
	b := s.as(api.Viewer)
	p := b.get("/kinds")
	b.want(p, http.StatusOK, "w-1", "w-2", `<td class="n">17</td><td class="n">13</td><td class="n">123.4</td>`,
		"v1.2.3", "&lt;script&gt;", `<td class="n">–</td>`)
	if strings.Contains(p.body, "<script>") {
		t.Errorf("not escaped:\n%s", p.body)
	}
	limited := s.as(api.Viewer, "other.*")
	if p := limited.get("/kinds"); strings.Contains(p.content(), "w-1") || !strings.Contains(p.body, "No worker") {
		t.Errorf("a caller reads workers of other kinds:\n%s", p.content())
	}
}
