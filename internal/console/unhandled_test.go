package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Kinds without a worker have one level on all pages: a note, and a warning once the condition kind_unhandled holds.
func TestKindsWithoutAWorkerHaveOneLevel(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, id := range []string{"coupon.send/1", "coupon.send/2", "account.book/1"} {
		ledgertest.Enqueue(t, s.db, ledgertest.Key(t, id), `{}`)
	}
	for n := range 5 {
		k := ledgertest.Key(t, fmt.Sprintf("partner.call/%d", n))
		ledgertest.Enqueue(t, s.db, k, `{}`)
		s.appendAll(k, ledger.AppendRequest{Type: ledger.EventStarted, Actor: "w-1"},
			ledger.AppendRequest{Type: ledger.EventFailed, Actor: "w-1",
				Data: []byte(`{"error":"it is down","final":true}`)})
	}
	s.project()
	since := func(seconds int) {
		ledgertest.ExecAsOwner(t, s.db, fmt.Sprintf(`update taskledger.task set lingering = version,
			updated_at = now() - interval '%d seconds' where state = 'available'`, seconds))
	}
	since(10)
	b, limited := s.as(api.Viewer), s.as(api.Viewer, "coupon.*")
	const names = ": coupon.send, account.book"
	p := b.get("/")
	b.want(p, http.StatusOK, `<span class="level note">note</span> 2 kinds wait without a worker for `, names+".</h2>",
		`<small class="tag note">no worker</small>`)
	limited.want(limited.get("/"), http.StatusOK,
		`<span class="level note">note</span> 1 kind waits without a worker`)
	b.want(b.get("/system"), http.StatusOK, `<div class="node note"><b>Workers</b>`,
		"2 kinds wait without a worker for ", names)
	b.want(b.get("/workers"), http.StatusOK,
		`<div class="condition note"><h2><span class="level note">note</span> No live`,
		"(<a href=\"/tasks?kind=coupon.send&amp;state=available\">2 waiting</a> for 1")
	p = b.get("/kinds")
	b.want(p, http.StatusOK, `<small class="tag note">no worker</small>`)
	if strings.Index(p.body, `data-key="partner.call"`) > strings.Index(p.body, `data-key="coupon.send"`) {
		t.Errorf("a kind that waits for a worker is before a critical one:\n%s", p.content())
	}

	since(60)
	for begun := time.Now(); !strings.Contains(b.get("/").body, "no worker handles their kind"); {
		if time.Since(begun) > time.Minute {
			t.Fatal("the condition does not hold")
		}
	}
	b.want(b.get("/"), http.StatusOK, `<small class="tag warning">no worker</small>`)
	limited.want(limited.get("/"), http.StatusOK,
		`<span class="level warning">warning</span> 1 kind waits without a wor`)
	b.want(b.get("/system"), http.StatusOK, `<div class="node warning"><b>Workers</b>`)
	b.want(b.get("/workers"), http.StatusOK,
		`<div class="condition warning"><h2><span class="level warning">warning</span>`)
	b.want(b.get("/kinds"), http.StatusOK, `<small class="tag warning">no worker</small>`)
	if p := b.get("/"); strings.Contains(p.body, "without a worker") {
		t.Errorf("a trouble is shown twice:\n%s", p.content())
	}
}
