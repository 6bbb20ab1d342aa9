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

// A limit is set, changed and removed by an operator, each after a preview and with a record of the reason. Texts of
// others are never markup.
func TestLimitsAreChanged(t *testing.T) {
	t.Parallel()
	s := serve(t)
	k := ledgertest.Key(t, "order.send/1")
	ledgertest.Enqueue(t, s.db, k, `{}`)
	b := s.as(api.Operator)
	p := b.get("/limits")
	b.want(p, http.StatusOK, "There are no limits.", "New limit…")
	form := url.Values{"csrf": {token(t, p)}, "act": {"set"}, "name": {"partner-x"},
		"kinds": {"order.send, order.track:2"}, "per": {""}, "max_running": {"5"}, "rate": {"100/m"}, "burst": {"10"}}
	find := func() (ledger.StartLimitStatus, bool) {
		t.Helper()
		l, isKnown, err := ledger.FindStartLimit(t.Context(), s.db, "partner-x")
		if err != nil {
			t.Fatal(err)
		}
		return l, isKnown
	}
	const text = "At most 5 tasks of order.send,order.track:2 may run at a time. " +
		"At most 100/m burst 10 tasks of order.send,order.track:2 may start."
	b.want(b.post("/limit", form), http.StatusOK, "There is no limit with this name.", text, `name="burst" value="10"`,
		"Set the limit as ada-operator")
	if _, isKnown := find(); isKnown {
		t.Error("the preview has set the limit")
	}
	form.Set("confirm", "yes")
	b.want(b.post("/limit", form), http.StatusBadRequest, "a reason is required")
	form.Set("reason", "the <partner> asked")
	b.want(b.post("/limit", form), http.StatusOK, "<h1>Limits</h1>", "partner-x: "+text, "0 of 5", "100/m burst 10",
		`value="order.send,order.track:2"`, `value="100/m"`, "by ada-operator")
	s.appendAll(k, ledger.AppendRequest{Type: ledger.EventStarted, Actor: "w-1"})
	b.want(b.get("/limits?name=partner-x"), http.StatusOK, "1 of 5", ">for ", "All limits")
	form.Del("confirm")
	form.Set("max_running", "0")
	form.Set("kinds", "order.send")
	form.Set("rate", "")
	form.Set("burst", "")
	b.want(b.post("/limit", form), http.StatusOK, text, "At most 0 tasks", "Running tasks now: 1.")
	form.Set("confirm", "yes")
	b.want(b.post("/limit", form), http.StatusOK, "1 of 0")
	if l, _ := find(); l.Rate != nil || *l.MaxRunning != 0 || l.Actor != "ada-operator" {
		t.Errorf("got %+v", l)
	}
	form = url.Values{"csrf": form["csrf"], "name": form["name"], "act": {"remove"}, "reason": {"x"}}
	b.want(b.post("/limit", form), http.StatusOK, "The limit is removed", "Remove the limit as ada-operator")
	form.Set("confirm", "yes")
	b.want(b.post("/limit", form), http.StatusOK, "partner-x was removed.", "There are no limits.")
	b.want(b.post("/limit", form), http.StatusNotFound, "There is no such limit.")
	b.want(b.get("/events?prefix=taskledger.operation"), http.StatusOK, "limit.set", "limit.remove",
		"asked")
}

// An invalid limit is refused with its field; a viewer, and a caller that is limited to other kinds, changes none.
func TestLimitsAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t)
	limit := ledger.StartLimit{Name: "mixed", Kinds: map[ledger.Kind]int{"order.send": 1, "a.b": 1}, MaxRunning: new(5)}
	if err := ledger.SetStartLimit(t.Context(), s.db, limit, ""); err != nil {
		t.Fatal(err)
	}
	b := s.as(api.Operator)
	csrf := token(t, b.get("/limits"))
	for _, test := range []struct{ field, value, want string }{
		{field: "max_running", value: "many", want: "must be a number"},
		{field: "max_running", value: "-1", want: "must be between 0 and 10000"},
		{field: "max_running", value: "", want: "must have a maximum of running tasks or a rate"},
		{field: "rate", value: "10", want: "as in 100/m"},
		{field: "burst", value: "3", want: "needs a rate"},
		{field: "kinds", value: "a:many", want: "must be KIND or KIND:WEIGHT"},
		{field: "per", value: "tenant", want: "must be partition or order_key"},
		{field: "name", value: "<b>", want: "must have the form of a kind"},
		{field: "name", value: "\x00", want: "must have the form of a kind"},
		{field: "kinds", value: "taskledger.alarm", want: "must not be one of taskledger"},
	} {
		form := url.Values{"csrf": {csrf}, "act": {"set"}, "name": {"a.b"}, "max_running": {"5"}, "confirm": {"yes"},
			"reason": {"x"}}
		form.Set(test.field, test.value)
		p := b.post("/limit", form)
		b.want(p, http.StatusBadRequest, test.want)
		if strings.Contains(p.body, `<b>"`) {
			t.Errorf("the name is markup:\n%s", p.content())
		}
	}
	for _, other := range []*browser{s.as(api.Viewer), s.as(api.Operator, "a.*")} {
		p := other.get("/limits")
		other.want(p, http.StatusOK)
		if strings.Contains(p.body, "Change…") {
			t.Errorf("the caller may change a limit:\n%s", p.content())
		}
		for _, act := range []string{"set", "remove"} {
			form := url.Values{"csrf": {token(t, other.get("/"))}, "act": {act}, "name": {"mixed"}, "kinds": {"a.b"},
				"max_running": {"9"}, "confirm": {"yes"}, "reason": {"x"}}
			other.want(other.post("/limit", form), http.StatusForbidden)
		}
	}
	l, _, err := ledger.FindStartLimit(t.Context(), s.db, "mixed")
	if err != nil || len(l.Kinds) != 2 || *l.MaxRunning != 5 {
		t.Errorf("got %+v, %v", l, err)
	}
}
