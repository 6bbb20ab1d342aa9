package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A producer enqueues a task by a form, which begins with the args of the last task of the kind or of a named task, and
// with none if they have hidden values. The rules of the API apply.
func TestEnqueueForm(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ledgertest.Enqueue(t, s.db, ledgertest.Key(t, "coupon.send/order-1"), `{"percent":10}`)
	ledgertest.Enqueue(t, s.db, ledgertest.Key(t, "card.charge/order-1"), `{"card_number":"4111-1111-1111"}`)
	s.project()
	b := s.as(api.Producer)
	p := b.get("/enqueue?kind=coupon.send")
	b.want(p, http.StatusOK, "&#34;percent&#34;: 10", "The args are taken from coupon.send/order-1")
	if hidden := b.get("/enqueue?kind=card.charge&from=order-1"); strings.Contains(hidden.body, "•••") ||
		strings.Contains(hidden.body, "4111-1111-1111") || !strings.Contains(hidden.body, "values that pages hide") {
		t.Errorf("the form has hidden values:\n%s", hidden.content())
	}
	form := url.Values{"csrf": {token(t, p)}, "kind": {"coupon.send"}, "biz_id": {"order-2"}, "args": {`{"percent":`}}
	b.want(b.post("/enqueue", form), http.StatusBadRequest, "not JSON", "order-2")
	form.Set("args", `{"percent": 20}`)
	b.want(b.post("/enqueue", form), http.StatusOK, "coupon.send/order-2 was enqueued.", "&#34;percent&#34;: 20")
	got, err := ledger.Load(t.Context(), s.db, ledgertest.Key(t, "coupon.send/order-2"))
	if err != nil || got.Actor != "ada-producer" {
		t.Errorf("got the task %v, %v", got, err)
	}
	b.want(b.post("/enqueue", form), http.StatusOK, "existed already")
	form.Set("args", "{}")
	b.want(b.post("/enqueue", form), http.StatusConflict, "order-2")
	form.Set("kind", "taskledger.operation")
	if p := b.post("/enqueue", form); p.status < http.StatusBadRequest {
		t.Errorf("a reserved kind got the status %d", p.status)
	}
	viewer := s.as(api.Viewer)
	viewer.want(viewer.get("/enqueue"), http.StatusForbidden, "the role producer is required")
	form.Set("csrf", token(t, viewer.get("/")))
	form.Set("kind", "coupon.send")
	form.Set("biz_id", "order-3")
	viewer.want(viewer.post("/enqueue", form), http.StatusForbidden)
}
