package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// bury makes n dead tasks, and one of another beginning.
func (s *site) bury(n int, kind string) (keys []ledger.Key, other ledger.Key) {
	s.t.Helper()
	owner := ledgertest.As(s.t, s.db, ledgertest.Owner)
	for i := range n {
		keys = append(keys, ledgertest.Key(s.t, fmt.Sprintf("%s/order-%03d", kind, i)))
	}
	other = ledgertest.Key(s.t, kind+"/other")
	for _, k := range append(keys[:n:n], other) {
		ledgertest.Enqueue(s.t, s.db, k, `{}`)
		r := ledgertest.Request(k, 1, ledger.EventBuried)
		r.Data = []byte(`{"reason": "partner is down"}`)
		if _, err := ledger.Append(s.t.Context(), owner, r); err != nil {
			s.t.Fatal(err)
		}
	}
	s.project()
	return keys, other
}

// wantVersion checks that a task has as many events, and returns it.
func (s *site) wantVersion(k ledger.Key, version ledger.Version) ledger.Task {
	s.t.Helper()
	got, err := ledger.Load(s.t.Context(), s.db, k)
	if err != nil || got.Version != version {
		s.t.Errorf("%s: got the version %d, want %d: %v", k, got.Version, version, err)
	}
	return got
}

// A filter whose tasks cannot be changed at once leads to one by their prefix, for which there is an act on all.
func TestNarrow(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for n := range 3 {
		k := ledgertest.Key(t, fmt.Sprintf("image.resize/import-7/sku-%d", n))
		if _, err := ledger.Enqueue(t.Context(), s.db, k, nil, &ledger.EnqueueOptions{Actor: "import"}); err != nil {
			t.Fatal(err)
		}
	}
	s.project()
	const narrow = "/tasks?kind=image.resize&amp;prefix=import-7%2Fsku-&amp;state=available"
	b := s.as(api.Operator)
	p := b.get("/tasks?actor=import&kind=image.resize&state=available")
	b.want(p, http.StatusOK, `href="`+narrow+`"`)
	if strings.Contains(p.body, "Cancel all…") {
		t.Error("all tasks of a search by actor can be changed")
	}
	b.want(b.get(strings.ReplaceAll(narrow, "&amp;", "&")), http.StatusOK, "Cancel all…", "sku-2")
	p = s.as(api.Viewer).get("/tasks?actor=import&kind=image.resize&state=available")
	if strings.Contains(p.body, narrow) {
		t.Error("a viewer is led to an act")
	}
}

// All tasks of a filter, over many batches, are changed once, by the caller and with the reason. A repeated form, as
// after a server that was killed, changes what was not changed, although the projection is behind.
func TestBulk(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const tasks = 450
	keys, other := s.bury(tasks, "coupon.send")
	b := s.as(api.Operator)
	p := b.get("/tasks?state=dead&prefix=order-")
	b.want(p, http.StatusOK, "Release all…")
	if strings.Contains(p.body, "Bury all…") || strings.Contains(b.get("/tasks").body, "all…") {
		t.Error("the page offers an act that the state of the filter does not allow")
	}
	// The first tasks were changed before the server was killed.
	for _, k := range keys[:7] {
		if _, err := ledger.Append(t.Context(), ledgertest.As(t, s.db, ledgertest.Owner),
			ledgertest.Request(k, 2, ledger.EventReleased)); err != nil {
			t.Fatal(err)
		}
	}
	form := url.Values{"csrf": {token(t, p)}, "act": {"release"}, "state": {"dead"}, "prefix": {"order-"}}
	preview := b.post("/bulk", form)
	b.want(preview, http.StatusOK, "450 tasks match now", "order-000", "order-019", "Release 450 as")
	if strings.Contains(preview.body, "data-live") {
		t.Error("the answer to a form is read again, which only the form can be")
	}
	s.wantVersion(keys[449], 2)
	form.Set("confirm", "yes")
	b.want(b.post("/bulk", form), http.StatusBadRequest, "a reason is required")
	form.Set("reason", "it is up again")
	b.want(b.post("/bulk", form), http.StatusOK, "443 tasks were changed, 7 were not", "it has left the state")
	b.want(b.post("/bulk", form), http.StatusOK, "0 tasks were changed")
	for _, k := range keys {
		s.wantVersion(k, 3)
	}
	s.wantVersion(other, 2)
	events, err := ledger.History(t.Context(), s.db, keys[449])
	if err != nil {
		t.Fatal(err)
	}
	last := events[2]
	if last.Type != ledger.EventReleased || last.Actor != "ada-operator" ||
		!strings.Contains(string(last.Data), "it is up again") {
		t.Errorf("got the event %v with %s", last, last.Data)
	}
	s.project()
	b.want(b.post("/bulk", form), http.StatusOK, "0 tasks were changed, 0 were not")

	// A form that continues begins after its key.
	form = url.Values{"csrf": {token(t, p)}, "act": {"bury"}, "state": {"available"}, "kind": {"coupon.send"},
		"after_kind": {"coupon.send"}, "after_id": {"order-447"}, "confirm": {"yes"}, "reason": {"not yet"}}
	b.want(b.post("/bulk", form), http.StatusOK, "2 tasks were changed, 0 were not")
	s.wantVersion(keys[447], 3)
	s.wantVersion(keys[448], 4)
}

// A form by a filter is refused without its token, of viewers and of other kinds, and hostile texts stay texts.
func TestBulkIsRefused(t *testing.T) {
	t.Parallel()
	s := serve(t)
	keys, _ := s.bury(1, "coupon.send")
	operator, viewer := s.as(api.Operator), s.as(api.Viewer)
	form := url.Values{"act": {"release"}, "state": {"dead"}, "confirm": {"yes"}, "reason": {"x"}}
	operator.want(operator.post("/bulk", form), http.StatusForbidden, "not one of this session")
	if p := viewer.get("/tasks?state=dead"); strings.Contains(p.body, "all…") {
		t.Error("the page offers acts to a viewer")
	}
	form.Set("csrf", token(t, viewer.get("/")))
	viewer.want(viewer.post("/bulk", form), http.StatusForbidden, "has the role viewer")
	nobody := s.anyone()
	nobody.want(nobody.post("/bulk", form), http.StatusUnauthorized, "Nothing was changed")
	limited := s.as(api.Operator, "other.*")
	form.Set("csrf", token(t, limited.get("/")))
	limited.want(limited.post("/bulk", form), http.StatusOK, "0 tasks were changed, 0 were not")
	form.Set("kind", "coupon.send")
	limited.want(limited.post("/bulk", form), http.StatusForbidden, "may not use the kind")
	form.Set("csrf", token(t, operator.get("/")))
	for _, state := range []string{"", "succeeded", "<script>"} {
		form.Set("state", state)
		p := operator.post("/bulk", form)
		operator.want(p, http.StatusBadRequest, "the filter needs a state")
		if strings.Contains(p.body, "<script>") {
			t.Errorf("not escaped:\n%s", p.body)
		}
	}
	form.Set("state", "dead")
	form.Set("act", "erase")
	operator.want(operator.post("/bulk", form), http.StatusBadRequest, "act must be")
	const hostile = `<script>alert(1)</script>"' onx=1 ` + "\u202eevil"
	form.Set("act", "release")
	form.Set("prefix", hostile)
	form.Set("kind", "")
	form.Del("confirm")
	p := operator.post("/bulk", form)
	operator.want(p, http.StatusOK, "0 tasks match now", `\u202e`)
	if strings.Contains(p.body, "<script>") || strings.Contains(p.body, `"' onx`) {
		t.Errorf("not escaped:\n%s", p.body)
	}
	s.wantVersion(keys[0], 2)
}
