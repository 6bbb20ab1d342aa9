package console_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Not all retrying tasks are read: the number of a group is shown as a least one.
func TestManyRetrying(t *testing.T) {
	t.Parallel()
	s := serve(t)
	if _, err := ledgertest.As(t, s.db, ledgertest.Owner).Exec(t.Context(), `
		insert into taskledger.event (kind, biz_id, version, attempt, shard, type, recorded_at, data)
		select 'webhook.deliver', 'evt-' || n, v, v - 1, 0, -- later than the page's time, as after a slow statement
		       (case v when 1 then 'enqueued' else 'failed' end)::taskledger.event_type, now() + interval '5 minutes',
		       (case v when 1 then '{}' else $1 end)::json
		  from generate_series(1, 201) n, generate_series(1, 2) v
		 order by n, v`, fmt.Sprintf(`{"error":{"message":"refused"},"retry_at":%q}`,
		time.Now().Add(time.Hour).Format(time.RFC3339))); err != nil {
		t.Fatal(err)
	}
	s.project()
	b := s.as(api.Viewer)
	p := b.get("/failures")
	b.want(p, http.StatusOK, "201 retrying", "<b>200+</b> retrying", "last <time")
	if strings.Contains(p.body, ">in ") {
		t.Errorf("a failure is in the future:\n%s", p.content())
	}
}

// Dead and retrying tasks are in one group if their errors differ only in parts that vary. The group leads to its
// tasks, and releases the dead ones.
func TestFailures(t *testing.T) {
	t.Parallel()
	s := serve(t)
	fail := func(n int, isDead bool) ledger.Key {
		k := ledgertest.Key(t, fmt.Sprintf("webhook.deliver/evt-%d", n))
		ledgertest.Enqueue(t, s.db, k, `{}`)
		text := fmt.Sprintf(`{"error":{"type":"E","message":"POST https://p-%d.example/v1: no answer <after> %d ms"}}`,
			n, 10*n)
		events := []ledger.AppendRequest{{Type: ledger.EventFailed, Data: json.RawMessage(text), In: time.Hour}}
		if isDead {
			events = []ledger.AppendRequest{{Type: ledger.EventFailed, Data: json.RawMessage(text)},
				{Type: ledger.EventBuried, Data: json.RawMessage(text)}}
		}
		s.appendAll(k, events...)
		return k
	}
	var dead []ledger.Key
	for n := range 5 {
		if k := fail(n+1, n < 3); n < 3 {
			dead = append(dead, k)
		}
	}
	s.bury(1, "coupon.send")
	s.project()
	b := s.as(api.Operator)
	p := b.get("/failures")
	b.want(p, http.StatusOK, "5 dead, 2 retrying", "POST https://p-•.example/•: no answer &lt;after&gt; • ms",
		"<b>3</b> dead", "<b>2</b> retrying", "partner is down", "Release 3")
	if n := strings.Count(p.body, "no answer"); n > 4 { // the text, the key of the row, its links and its form
		t.Errorf("the group is shown %d times:\n%s", n, p.content())
	}
	if p := b.get("/failures?kind=coupon.send"); strings.Contains(p.body, "no answer") {
		t.Error("the groups of a kind have those of another one")
	}
	_, rest, _ := strings.Cut(p.body, `href="/tasks?error=`)
	query, _, _ := strings.Cut(rest, `"`)
	tasks := b.get("/tasks?error=" + strings.ReplaceAll(query, "&amp;", "&"))
	b.want(tasks, http.StatusOK, "evt-1", "evt-3")
	_, rest, _ = strings.Cut(p.body, `value="webhook.deliver"><input type="hidden" name="fingerprint" value="`)
	fingerprint, _, _ := strings.Cut(rest, `"`)
	done := b.post("/group", url.Values{"csrf": {token(t, p)}, "kind": {"webhook.deliver"},
		"fingerprint": {fingerprint}, "reason": {"it answers again"}})
	b.want(done, http.StatusOK, "3 tasks of webhook.deliver released.")
	for _, k := range dead {
		s.wantVersion(k, 4)
	}
	form := url.Values{"csrf": {token(t, p)}, "kind": {"webhook.deliver"}, "act": {"cancel"},
		"message": {"POST https://p-•.example/•: no answer <after> • ms"}, "reason": {"the partner has left"}}
	other := ledgertest.Key(t, "webhook.deliver/evt-9")
	ledgertest.Enqueue(t, s.db, other, `{}`)
	s.appendAll(other, ledger.AppendRequest{Type: ledger.EventFailed,
		Data: json.RawMessage(`{"error":{"type":"E","message":"refused"}}`), In: time.Hour})
	s.project()
	b.want(b.post("/group", form), http.StatusOK, "2 tasks of webhook.deliver cancelled.")
	for _, k := range []string{"evt-4", "evt-5"} {
		got, err := ledger.Load(t.Context(), s.db, ledgertest.Key(t, "webhook.deliver/"+k))
		if err != nil || got.State != ledger.StateCancelled || got.Actor != "ada-operator" ||
			got.Reason != "the partner has left" {
			t.Errorf("got the task %+v, %v", got, err)
		}
	}
	s.wantVersion(other, 2)
	form.Set("act", "drop")
	b.want(b.post("/group", form), http.StatusBadRequest, "act must be release, bury or cancel")
	viewer := s.as(api.Viewer)
	form.Set("csrf", token(t, viewer.get("/")))
	form.Set("act", "release")
	viewer.want(viewer.post("/group", form), http.StatusForbidden)
}
