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
	b.want(p, http.StatusOK, "5 dead, 2 retrying", "POST https://p-<var>",
		"</var>.example/<var>v1</var>: no answer &lt;after&gt; <var>", "Try one",
		"<b>3</b> dead", "<b>2</b> retrying", "partner is down", "Release 3",
		">Release 3 dead…<", ">Retry 2 now…<",
		`<summary class="danger">Cancel 3…<`, `class="over" width="60.0"`, `class="back" x="60.0" width="40.0"`,
		`class="over" width="40.0"`,
		"5 failed attempts of webhook.deliver in the last 24 h; red: the last ones of this group", `<rect class="bad"`)
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
	try := url.Values{"csrf": {token(t, p)}, "kind": {"webhook.deliver"}, "biz_id": {string(dead[0].BizID)},
		"act": {"try"}, "reason": {"it may answer"}}
	b.want(b.post("/group", try), http.StatusOK, "<h1>evt-1</h1>", "This task alone was released.", "it may answer")
	s.wantVersion(dead[0], 4)
	b.want(b.post("/group", try), http.StatusConflict, "available")
	dead = dead[1:]
	s.project()
	done := b.post("/group", url.Values{"csrf": {token(t, p)}, "kind": {"webhook.deliver"},
		"fingerprint": {fingerprint}, "reason": {"it answers again"}})
	b.want(done, http.StatusOK, "2 tasks of webhook.deliver released.")
	for _, k := range dead {
		s.wantVersion(k, 4)
	}
	_, rest, _ = strings.Cut(p.body, `value="coupon.send"><input type="hidden" name="fingerprint" value="`)
	fingerprint, _, _ = strings.Cut(rest, `"`)
	ended := b.post("/group", url.Values{"csrf": {token(t, p)}, "kind": {"coupon.send"}, "act": {"cancel"},
		"fingerprint": {fingerprint}, "reason": {"nobody wants it"}})
	b.want(ended, http.StatusOK, "2 tasks of coupon.send cancelled: no worker begins them.")
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

// A dead task is put away on its page and with others: it is cancelled in one step, and no worker begins it.
func TestCancelOfDeadTasks(t *testing.T) {
	t.Parallel()
	s := serve(t)
	keys, other := s.bury(3, "coupon.send")
	b := s.as(api.Operator)
	p := b.get("/task?" + keyOf(keys[0]))
	b.want(p, http.StatusOK, `value="cancel" class="danger">Cancel…</button>`, "Release…")
	b.want(b.get("/tasks?state=dead"), http.StatusOK, "Cancel all…")
	form := url.Values{"csrf": {token(t, p)}, "act": {"cancel"}, "key": {keyOf(keys[0])}}
	b.want(b.post("/act", form), http.StatusOK, "1 of 1 tasks can be changed so now.", "a dead one leaves Failures")
	form.Set("confirm", "yes")
	form.Set("reason", "nobody wants it")
	b.want(b.post("/act", form), http.StatusOK, "1 of 1 tasks were changed.")
	if got := s.wantVersion(keys[0], 4); got.State != ledger.StateCancelled || got.Actor != "ada-operator" ||
		got.Reason != "nobody wants it" {
		t.Errorf("got the task %+v", got)
	}
	b.want(b.post("/act", form), http.StatusOK, "0 of 1 tasks were changed.", "cancelled")
	s.wantVersion(keys[0], 4)
	s.project()
	form = url.Values{"csrf": {token(t, p)}, "act": {"cancel"}, "state": {"dead"}, "prefix": {"order-"},
		"confirm": {"yes"}, "reason": {"nor these"}}
	b.want(b.post("/bulk", form), http.StatusOK, "2 tasks were changed, 0 were not")
	s.wantVersion(keys[2], 4)
	s.wantVersion(other, 2)
	form = url.Values{"csrf": {token(t, p)}, "act": {"release"}, "key": {keyOf(keys[0])}, "confirm": {"yes"},
		"reason": {"somebody wants it"}}
	b.want(b.post("/act", form), http.StatusOK, "1 of 1 tasks were changed.")
	s.wantVersion(keys[0], 5)
}

// A dead task that is erased cannot run: the result of an act contains why. An act on a group skips it.
func TestErasedAmongDeadTasks(t *testing.T) {
	t.Parallel()
	s := serve(t)
	keys, other := s.bury(3, "coupon.send")
	ledgertest.ExecAsOwner(t, s.db, `insert into taskledger.erasure (id, kind, biz_id, until, shard, actor, reason)
		select gen_random_uuid(), kind, biz_id, max(position), min(shard), 'op', 'request 17'
		  from taskledger.event where biz_id in ('order-000', 'order-002') group by kind, biz_id`)
	b := s.as(api.Operator)
	p := b.get("/failures")
	form := url.Values{"csrf": {token(t, p)}, "key": {keyOf(keys[0])}, "confirm": {"yes"}, "reason": {"it is old"}}
	for _, act := range []string{"cancel", "release"} {
		form.Set("act", act)
		b.want(b.post("/act", form), http.StatusOK, "0 of 1 tasks were changed.", "is erased, and cannot run")
	}
	_, rest, _ := strings.Cut(p.body, `name="fingerprint" value="`)
	fingerprint, _, _ := strings.Cut(rest, `"`)
	group := url.Values{"csrf": {token(t, p)}, "kind": {"coupon.send"}, "fingerprint": {fingerprint},
		"reason": {"it is up"}}
	b.want(b.post("/group", group), http.StatusOK,
		"2 tasks of coupon.send released. 2 tasks skipped: moved on, locked or erased.")
	for _, k := range []ledger.Key{keys[1], other} {
		again := ledgertest.Request(k, 3, ledger.EventBuried)
		again.Data = []byte(`{"reason": "partner is down"}`)
		if _, err := ledger.Append(t.Context(), ledgertest.As(t, s.db, ledgertest.Owner), again); err != nil {
			t.Fatal(err)
		}
	}
	s.project()
	group.Set("act", "cancel")
	b.want(b.post("/group", group), http.StatusOK,
		"2 tasks of coupon.send cancelled: no worker begins them. 2 tasks skipped: moved on, locked or erased.")
}

// Errors with different statuses are in groups of their own, whose other numbers are marked as parts that vary.
func TestStatusesAreKeptApart(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for n := range 6 {
		k := ledgertest.Key(t, fmt.Sprintf("webhook.deliver/evt-%d", n))
		ledgertest.Enqueue(t, s.db, k, `{}`)
		data := json.RawMessage(fmt.Sprintf(`{"error":{"message":"order 7%d: status %d"}}`, n, 401+99*(n%2)))
		failed := ledger.AppendRequest{Type: ledger.EventFailed, Data: data, In: time.Hour}
		if n < 4 {
			failed.In = 0
			s.appendAll(k, failed, ledger.AppendRequest{Type: ledger.EventBuried, Data: data})
			continue
		}
		s.appendAll(k, failed)
	}
	s.project()
	b := s.as(api.Viewer)
	p := b.get("/failures")
	b.want(p, http.StatusOK, "</var>: status 401", "</var>: status 500", "order <var>7")
	if n := strings.Count(p.body, "<b>2</b> dead"); n != 2 || strings.Count(p.body, "<b>1</b> retrying") != 2 {
		t.Errorf("%d groups with 2 dead tasks, want 2, each with a retrying one:\n%s", n, p.content())
	}
}

// While a kind fails, the pages of its dead tasks advise to pause it, and none has a release as its main act. Once it
// is paused, a release is safe.
func TestReleaseWhileTheKindFails(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for n := range 5 {
		k := ledgertest.Key(t, fmt.Sprintf("coupon.send/%d", n))
		ledgertest.Enqueue(t, s.db, k, `{}`)
		data := json.RawMessage(`{"error":{"message":"refused"}}`)
		s.appendAll(k, ledger.AppendRequest{Type: ledger.EventFailed, Data: data},
			ledger.AppendRequest{Type: ledger.EventBuried, Data: data})
	}
	s.bury(1, "invoice.print") // without attempts
	b := s.as(api.Admin)
	dead := ledgertest.Key(t, "coupon.send/3")
	const fails, main = "fails now: 5 of 5 attempts failed in the last 5 minutes.", `class="main"`
	pages := func(k ledger.Key) map[string]page {
		csrf := token(t, b.get("/failures"))
		return map[string]page{
			"the task": b.get("/task?" + keyOf(k)), "failures": b.get("/failures?kind=" + string(k.Kind)),
			"act": b.post("/act", url.Values{"csrf": {csrf}, "act": {"release"}, "key": {keyOf(k)}}),
			"bulk": b.post("/bulk", url.Values{"csrf": {csrf}, "act": {"release"}, "state": {"dead"},
				"kind": {string(k.Kind)}}),
		}
	}
	for name, p := range pages(dead) {
		b.want(p, http.StatusOK, fails, "Pause")
		content := p.content()
		if _, acts, _ := strings.Cut(content, ">Release"); strings.Contains(acts, main) ||
			strings.Contains(content, main+">Release") || strings.Contains(content, main+` name="act" value="rel`) {
			t.Errorf("%s: the release is the main act:\n%s", name, p.content())
		}
	}
	for name, p := range pages(ledgertest.Key(t, "invoice.print/other")) {
		if strings.Contains(p.body, "fails now") || !strings.Contains(p.content(), main) {
			t.Errorf("%s: a kind that does not fail has another main act:\n%s", name, p.content())
		}
	}
	form := url.Values{"csrf": {token(t, b.get("/failures"))}, "kind": {"coupon.send"}, "biz_id": {"3"},
		"reason": {"it is down"}, "act": {"pause"}, "to": {"task"}}
	b.want(b.post("/kind", form), http.StatusOK, "<h1>3</h1>", "coupon.send is paused.")
	for name, p := range pages(dead) {
		if strings.Contains(p.body, "fails now") || !strings.Contains(p.content(), main) {
			t.Errorf("%s: while the kind is paused:\n%s", name, p.content())
		}
	}
	form.Set("act", "resume")
	form.Set("to", "failures")
	b.want(b.post("/kind", form), http.StatusOK, "<h1>Failures</h1>", "coupon.send is resumed.")
}

// Straight after its resumption, a kind that failed before its pause is shown as resumed, with the next step.
func TestResumedKind(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for n := range 6 {
		k := ledgertest.Key(t, fmt.Sprintf("coupon.send/%d", n))
		ledgertest.Enqueue(t, s.db, k, `{}`)
		data := json.RawMessage(`{"error":{"message":"refused"}}`)
		s.appendAll(k, ledger.AppendRequest{Type: ledger.EventFailed, Data: data},
			ledger.AppendRequest{Type: ledger.EventBuried, Data: data})
	}
	s.project()
	b := s.as(api.Admin)
	p := b.get("/")
	b.want(p, http.StatusOK, `<span class="level critical">critical</span> coupon.send is failing: 6 of 6 attempts`)
	form := url.Values{"csrf": {token(t, p)}, "kind": {"coupon.send"}, "reason": {"it is down"}, "act": {"pause"},
		"to": {"overview"}}
	b.want(b.post("/kind", form), http.StatusOK, "coupon.send is paused.")
	form.Set("act", "resume")
	form.Set("reason", "it is up")
	b.want(b.post("/kind", form), http.StatusOK, "coupon.send is resumed. 6 tasks wait on Failures for a release.")
	s.project()
	b.want(b.get("/"), http.StatusOK, "ago by ada-admin. Before that, 6 of 6 attempts failed in 5 minutes.",
		"Wait for its next attempts.", "Pause…")
	b.want(b.get("/kind?name=coupon.send"), http.StatusOK, "by ada-admin. Before that, 6 of 6")
	if other := s.as(api.Admin).get("/failures"); !strings.Contains(other.body, "6 dead") {
		t.Errorf("the dead tasks are not on Failures:\n%s", other.content())
	}
}
