package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger"
)

// The words of the search box become parameters of the address, beside those that are there.
func TestSearchBox(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.bury(3, "coupon.send")
	b := s.as(api.Operator)
	b.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for text, want := range map[string]string{
		"order-1":                          "prefix=order-1&state=dead",
		"coupon.send/order-001":            "kind=coupon.send&prefix=order-001&state=dead",
		"http://x/1":                       "prefix=http%3A%2F%2Fx%2F1&state=dead",
		`error:"partner is" since:3d`:      "error=partner+is&since=3d&state=dead",
		"kind:coupon.send state:available": "kind=coupon.send&state=available",
		"tag:vip actor:shop":               "actor=shop&state=dead&tag=vip",
		"partition:tenant-7":               "partition=tenant-7&state=dead",
		"line:customer/17":                 "line=customer%2F17&state=dead",
		"worker:shop-1 actor:a":            "actor=a&state=dead&worker=shop-1",
	} {
		p := b.get("/tasks?state=dead&q=" + url.QueryEscape(text))
		if to := p.header.Get("Location"); p.status != http.StatusSeeOther || to != "/tasks?"+want {
			t.Errorf("%s leads to %q with %d, want %s", text, to, p.status, want)
		}
	}
	p := b.get("/tasks?state=dead&error=partner&since=1h")
	b.want(p, http.StatusOK, "order-000", "other", "The last enqueued first")
	if strings.Contains(p.body, "all…") {
		t.Error("the page offers an act on all tasks of a filter that the act does not know")
	}
	b.want(b.get("/tasks?partition=tenant-7"), http.StatusOK, "No task matches", "partition: tenant-7")
	for _, id := range []string{"1", "2"} {
		_, err := ledger.Enqueue(t.Context(), s.db, ledger.Key{Kind: "invoice.send", BizID: ledger.BizID(id)}, nil,
			&ledger.EnqueueOptions{OrderKey: "customer/<17>"})
		if err != nil {
			t.Fatal(err)
		}
	}
	s.project()
	p = b.get("/tasks?line=customer%2F%3C17%3E")
	b.want(p, http.StatusOK, "2 tasks wait in line customer/&lt;17&gt;.", "line: customer/&lt;17&gt;",
		`href="/tasks?line=customer%2F%3C17%3E" title="Line"`, "The last in line first")
	b.want(b.get("/tasks?line=customer%2F%3C17%3E&state=in_line"), http.StatusOK, "invoice.send")
	b.want(b.get("/tasks?line=customer"), http.StatusOK, "No task matches")
	b.want(b.get("/tasks?state=dead&error=mailer"), http.StatusOK, "No task matches", "Clear the search")
	b.want(b.get("/tasks?state=dead"), http.StatusOK, `Dead<small>4</small>`)
}
