package console_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/periodic"
)

func keyOf(k ledger.Key) string {
	return url.Values{"kind": {string(k.Kind)}, "biz_id": {string(k.BizID)}}.Encode()
}

// Each page shows the ledger, with a policy that admits no inline script or style, and without one.
func TestPages(t *testing.T) {
	t.Parallel()
	s := serve(t)
	k := ledgertest.Key(t, "coupon.send/order-1")
	ledgertest.Enqueue(t, s.db, k, `{"order":1,"card_number":"4111-1111-1111","nested":[{"api-key":"key-of-partner"}]}`)
	ledgertest.Enqueue(t, s.db, ledgertest.Key(t, "coupon.send/other"), `{}`)
	ledgertest.ExecAsOwner(t, s.db,
		`select taskledger_internal.set_start_limit(
		   'coupon.send', '{coupon.send}', '{1}', null, 5, null, null, null, 'op')`)
	s.project()
	b := s.as(api.Viewer)
	for path, texts := range map[string][]string{
		"/":                           {"Throughput", "coupon.send", "<svg", "by kind"},
		"/?range=30d&by=kind":         {"Backlog", "others", "coupon.send"},
		"/find?q=coupon":              {"coupon.send"},
		"/find?q=order":               {"coupon.send/order-1"},
		"/find?q=coupon.send/order-1": {"coupon.send/order-1", "available"},
		"/find?q=sched":               {"Schedules"},
		"/tasks":                      {"order-1", "other", "available"},
		"/tasks?prefix=order":         {"order-1", "Sorted by kind"},
		"/tasks?state=available":      {"order-1", "other"},
		"/tasks?state=dead":           {"No task matches"},
		"/tasks?kind=absent":          {"No task matches"},
		"/tasks?error=x&since=1d":     {"No task matches", "error: x", "since: 1d"},
		"/tasks?actor=nobody":         {"No task matches"},
		"/task?" + keyOf(k):           {"order-1", "&#34;order&#34;: 1", "enqueued", "•••"},
		"/task?version=1&" + keyOf(k): {"order-1"},
		"/failures":                   {"No task is dead"},
		"/kinds":                      {"coupon.send", "no worker", `href="/limits?name=coupon.send"`, ">5 running<"},
		"/kind?name=coupon.send":      {"coupon.send", "No live worker handles this kind", "Available<small>2</small>"},
		"/kind?name=coupon.send&a=1":  {"0 of 5 <small>in use</small>"},
		"/kind?name=absent":           {"absent"},
		"/kind?name=a&range=7d":       {"Max waiting", "No task has this kind"},
		"/limits":                     {"coupon.send", "0 of 5", "by op", "Only an operator may"},
		"/limits?name=absent":         {"There is no limit absent", "All limits"},
		"/workers":                    {"No worker is alive"},
		"/schedules":                  {"There are no schedules"},
		"/subscribers":                {"There are no subscribers"},
		"/events":                     {"order-1", "enqueued"},
		"/events?type=enqueued":       {"order-1"},
		"/events?type=failed":         {"No event matches."},
		"/events?actor=shop":          {"data", "All", "buried"},
		"/system": {"Relay", "0 undeliverable", " behind", "tasks wait", "Dispatcher", "Projector", "PostgreSQL",
			"Schema</dt><dd>2",
			"PostgreSQL is &lt;2 h&gt; ahead", "synchronize the clocks", "1 ok", "fsync on"},
	} {
		p := b.get(path)
		b.want(p, http.StatusOK, texts...)
		policy := p.header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: the policy is %q", path, policy)
		}
		for _, never := range []string{"<style", "style=", "onclick", "javascript:", "http://", "4111-1111-1111",
			"key-of-partner", "ZgotmplZ"} {
			if strings.Contains(p.body, never) {
				t.Errorf("%s has %q", path, never)
			}
		}
		if strings.Contains(p.body, "Cancel…") || strings.Contains(p.body, "checkbox") {
			t.Errorf("%s offers acts to a viewer", path)
		}
	}
	if p := b.get("/tasks?prefix=order"); strings.Contains(p.body, "<bdi>other") {
		t.Error("a prefix finds other tasks")
	}
	b.want(b.get("/tasks?since=soon"), http.StatusBadRequest, "such as 90m")
	b.want(b.get("/absent"), http.StatusNotFound, "There is no such page", `href="/failures"`)
	b.want(b.get("/task?kind=a&biz_id=absent"), http.StatusNotFound, "the task does not exist")
	for _, name := range []string{"console.css", "console.js", "icon.svg"} {
		b.want(s.anyone().get("/assets/"+name), http.StatusOK)
	}
}

// Keyset pages have every task once.
func TestTasksInPages(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const tasks = 120
	for i := range tasks {
		ledgertest.Enqueue(t, s.db, ledgertest.Key(t, fmt.Sprintf("a/order-%03d", i)), `{}`)
	}
	s.project()
	b := s.as(api.Viewer)
	for _, first := range []string{"/tasks", "/tasks?prefix=order-"} {
		seen, path := map[string]bool{}, first
		for pages := 0; path != "" && pages < 10; pages++ {
			p := b.get(path)
			b.want(p, http.StatusOK)
			for i := range tasks {
				if name := fmt.Sprintf("order-%03d<", i); strings.Contains(p.body, name) {
					if seen[name] {
						t.Errorf("%s: %s is on two pages", first, name)
					}
					seen[name] = true
				}
			}
			_, rest, isMore := strings.Cut(p.body, `rel="next" href="`)
			path, _, _ = strings.Cut(rest, `"`)
			path = strings.ReplaceAll(path, "&amp;", "&")
			if !isMore {
				path = ""
			}
		}
		if len(seen) != tasks {
			t.Errorf("%s: %d tasks, want %d", first, len(seen), tasks)
		}
	}
}

// Texts of others are never markup, and cannot change the direction of what stands beside them.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const hostile = `<script>alert(1)</script>"' onx=1 ` + "\u202eevil"
	k := ledger.Key{Kind: "a", BizID: ledger.BizID(hostile)}
	args, err := json.Marshal(map[string]string{hostile: hostile + "\x1b[31m"})
	if err != nil {
		t.Fatal(err)
	}
	ledgertest.Enqueue(t, s.db, k, string(args))
	data, err := json.Marshal(map[string]string{"reason": hostile + "\nsecond line"})
	if err != nil {
		t.Fatal(err)
	}
	r := ledgertest.Request(k, 1, ledger.EventBuried)
	r.Data, r.Actor = data, hostile
	if _, err := ledger.Append(t.Context(), ledgertest.As(t, s.db, ledgertest.Owner), r); err != nil {
		t.Fatal(err)
	}
	s.project()
	b := s.as(api.Operator)
	for _, path := range []string{"/", "/failures", "/events", "/kinds", "/kind?name=a", "/find?q=%3Cscript",
		"/tasks", "/tasks?state=dead", "/task?" + keyOf(k),
		"/tasks?prefix=" + url.QueryEscape(hostile), "/tasks?kind=" + url.QueryEscape(hostile)} {
		p := b.get(path)
		if strings.Contains(p.body, "<script>") || strings.Contains(p.body, "\x1b") ||
			strings.Contains(p.body, "ZgotmplZ") || strings.Contains(p.body, `"' onx`) {
			t.Errorf("%s is not escaped:\n%s", path, p.body)
		}
		if strings.Contains(p.content(), ">\u202e") || strings.Contains(p.content(), "evil</bdi>") &&
			strings.Contains(p.content(), "\u202eevil</bdi>") {
			t.Errorf("%s changes the direction of writing", path)
		}
	}
	b.want(b.get("/task?"+keyOf(k)), http.StatusOK, `\u202e`, "second line")
}

// An act goes from a click over its preview to an event with the caller and the reason.
func TestAct(t *testing.T) {
	t.Parallel()
	s := serve(t)
	k := ledgertest.Key(t, "coupon.send/order-1")
	ledgertest.Enqueue(t, s.db, k, `{}`)
	s.project()
	b := s.as(api.Operator)
	p := b.get("/tasks")
	b.want(p, http.StatusOK, "Cancel…", "checkbox")
	form := url.Values{"csrf": {token(t, p)}, "act": {"cancel"}, "key": {keyOf(k)}}
	preview := b.post("/act", form)
	b.want(preview, http.StatusOK, "1 of 1 tasks can be changed", "Reason", "ada-operator")
	if got, err := ledger.Load(t.Context(), s.db, k); err != nil || got.Version != 1 {
		t.Fatalf("a preview changed the task: %v, %v", got, err)
	}
	form.Set("csrf", token(t, preview))
	form.Set("confirm", "yes")
	b.want(b.post("/act", form), http.StatusBadRequest, "a reason is required")
	form.Set("reason", "ordered twice")
	b.want(b.post("/act", form), http.StatusOK, "1 of 1 tasks were changed", "done")
	events, err := ledger.History(t.Context(), s.db, k)
	if err != nil || len(events) != 2 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	last := events[1]
	if last.Type != ledger.EventCancelled || last.Actor != "ada-operator" || last.ErrorText() == "" &&
		!strings.Contains(string(last.Data), "ordered twice") {
		t.Errorf("got the event %v with %s", last, last.Data)
	}
	b.want(b.post("/act", form), http.StatusOK, "0 of 1 tasks were changed")
}

// The preview of an act contains why the state of a task does not allow it, and what to do instead.
func TestWhyAnActIsNotAllowed(t *testing.T) {
	t.Parallel()
	s := serve(t)
	running, ended := ledgertest.Key(t, "coupon.send/order-1"), ledgertest.Key(t, "coupon.send/order-2")
	ledgertest.Enqueue(t, s.db, running, `{}`)
	ledgertest.Enqueue(t, s.db, ended, `{}`)
	s.appendAll(running, ledger.AppendRequest{Type: ledger.EventStarted, Actor: "w-1"})
	s.appendAll(ended, ledger.AppendRequest{Type: ledger.EventSucceeded, Actor: "w-1"})
	s.project()
	b := s.as(api.Operator)
	form := url.Values{"csrf": {token(t, b.get("/tasks"))}, "act": {"release"}, "key": {keyOf(running), keyOf(ended)}}
	b.want(b.post("/act", form), http.StatusOK, "0 of 2 tasks can be changed",
		"it runs; cancel it first, then release it", "it has succeeded; its page has")
	form["act"], form["key"] = []string{"bury"}, []string{keyOf(ended)}
	b.want(b.post("/act", form), http.StatusOK, "no: it has ended")
}

// Posts without the token of the form, of another session, of another site, and of viewers are refused.
func TestPostsAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t)
	k := ledgertest.Key(t, "coupon.send/order-1")
	ledgertest.Enqueue(t, s.db, k, `{}`)
	s.project()
	operator, viewer := s.as(api.Operator), s.as(api.Viewer)
	form := url.Values{"act": {"cancel"}, "key": {keyOf(k)}, "confirm": {"yes"}, "reason": {"x"}}
	operator.want(operator.post("/act", form), http.StatusForbidden, "not one of this session")
	form.Set("csrf", token(t, viewer.get("/")))
	operator.want(operator.post("/act", form), http.StatusForbidden, "not one of this session")
	viewer.want(viewer.post("/act", form), http.StatusForbidden, "has the role viewer")
	nobody := s.anyone()
	nobody.want(nobody.post("/act", form), http.StatusUnauthorized, "Nothing was changed")
	limited := s.as(api.Admin, "other.*")
	form.Set("csrf", token(t, limited.get("/")))
	limited.want(limited.post("/act", form), http.StatusForbidden, "may not use the kind")
	limited.want(limited.get("/task?"+keyOf(k)), http.StatusForbidden)
	if p := limited.get("/tasks"); strings.Contains(p.body, "order-1") {
		t.Error("a caller reads tasks of other kinds")
	}

	form.Set("csrf", token(t, operator.get("/")))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/act", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	answer, err := operator.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusForbidden {
		t.Errorf("a page of another site got the status %d", answer.StatusCode)
	}
	if got, err := ledger.Load(t.Context(), s.db, k); err != nil || got.Version != 1 {
		t.Errorf("the task was changed: %v, %v", got, err)
	}
}

// A session lasts as long as its token, and its cookie is out of reach of scripts and other sites.
func TestSession(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.anyone()
	b.want(b.get("/tasks?prefix=a"), http.StatusUnauthorized, `name="next" value="tasks?prefix=a"`)
	b.want(b.signIn("tl_wrong_wrong"), http.StatusUnauthorized, "unknown, expired or revoked")
	made, secret, err := api.CreateToken(t.Context(), s.db, api.TokenOptions{Name: "eve", Role: api.Viewer})
	if err != nil {
		t.Fatal(err)
	}
	for b.signIn(secret).status == http.StatusUnauthorized { // until the API reads its tokens again
	}
	b.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	p := b.signIn(secret)
	cookie := strings.Join(p.header.Values("Set-Cookie"), "\n")
	if p.status != http.StatusSeeOther || strings.Count(cookie, "HttpOnly") != 2 ||
		strings.Count(cookie, "SameSite=Strict") != 2 {
		t.Errorf("status %d, cookies %s", p.status, cookie)
	}
	home := b.get("/")
	b.want(home, http.StatusOK, "eve", "Sign out")
	if _, err := api.RevokeToken(t.Context(), s.db, made.ID, ""); err != nil {
		t.Fatal(err)
	}
	for b.get("/").status == http.StatusOK { // until the API reads its tokens again
	}
	b.want(b.signIn(secret), http.StatusUnauthorized)
	for _, next := range []string{"//evil.example", "https://evil.example", "/\\evil", "absent", "javascript:x"} {
		if p := b.get("/sign-in?next=" + url.QueryEscape(next)); !strings.Contains(p.body, `name="next" value=""`) {
			t.Errorf("the page leads to %s: %s", next, p.body)
		}
	}
}

// A group of dead tasks is released, and a kind is paused and resumed, each with a record of its caller.
func TestGroupsAndKinds(t *testing.T) {
	t.Parallel()
	s := serve(t)
	k := ledgertest.Key(t, "coupon.send/order-1")
	ledgertest.Enqueue(t, s.db, k, `{}`)
	r := ledgertest.Request(k, 1, ledger.EventBuried)
	r.Data = json.RawMessage(`{"reason": "partner is down"}`)
	if _, err := ledger.Append(t.Context(), ledgertest.As(t, s.db, ledgertest.Owner), r); err != nil {
		t.Fatal(err)
	}
	s.project()
	b := s.as(api.Admin)
	dead := b.get("/failures")
	b.want(dead, http.StatusOK, "partner is down", "Release 1")
	_, rest, _ := strings.Cut(dead.body, `name="fingerprint" value="`)
	fingerprint, _, _ := strings.Cut(rest, `"`)
	form := url.Values{"csrf": {token(t, dead)}, "kind": {"coupon.send"}, "fingerprint": {fingerprint},
		"reason": {"it is up"}, "act": {"pause"}}
	b.want(b.post("/group", form), http.StatusOK, "1 task of coupon.send released.")
	if p := b.get("/failures"); strings.Contains(p.body, "released.") {
		t.Error("the result of an act is shown twice")
	}
	if got, err := ledger.Load(t.Context(), s.db, k); err != nil || got.State != ledger.StateAvailable ||
		got.Actor != "ada-admin" {
		t.Errorf("got the task %v, %v", got, err)
	}
	b.want(b.post("/kind", form), http.StatusOK, "by ada-admin: it is up", "Resume…", "coupon.send is paused.")
	b.want(b.get("/"), http.StatusOK, "coupon.send is paused by ada-admin: it is up", `data-key="kind coupon.send"`,
		"Resume…", `name="to" value="overview"`, `<div class="acts calm">`, `<p class="by">Paused by ada-admin <time`)
	for _, path := range []string{"/", "/kinds", "/kind?name=coupon.send"} {
		if p := b.get(path); strings.Count(p.body, ": it is up") != 2 || // once in the form
			strings.Contains(p.body, `class="main" name="act" value="resume"`) {
			t.Errorf("%s urges to end a pause, or hides its reason:\n%s", path, p.content())
		}
	}
	form.Set("to", "overview")
	b.want(b.post("/kind", form), http.StatusOK, "<h1>Overview</h1>", "coupon.send is paused.")
	form.Set("to", "kind")
	b.want(b.post("/kind", form), http.StatusOK, "<h1>coupon.send</h1>", "coupon.send is paused.")
	form.Del("to")
	form.Set("act", "resume")
	if p := b.post("/kind", form); strings.Contains(p.body, "Resume…") {
		t.Error("the kind was not resumed")
	}
	b.want(b.get("/events?prefix=taskledger.operation"), http.StatusOK, "kind.pause", "kind.resume", "ada-admin")
	form.Set("fingerprint", "\x00")
	b.want(b.post("/group", form), http.StatusBadRequest, "must be UTF-8")
	b.want(b.get("/failures?after_fingerprint=%ff"), http.StatusBadRequest, "must be UTF-8")
	viewer := s.as(api.Viewer)
	form.Set("csrf", token(t, viewer.get("/")))
	viewer.want(viewer.post("/kind", form), http.StatusForbidden)
	viewer.want(viewer.post("/group", form), http.StatusForbidden)
}

// A schedule is paused, resumed and run by an admin, each with a record of its caller and the reason.
func TestSchedulesAreChanged(t *testing.T) {
	t.Parallel()
	s := serve(t)
	hourly := periodic.Schedule{Name: "nightly", Kind: "report.make", Every: time.Hour}
	owner := ledgertest.As(t, s.db, ledgertest.Owner)
	if _, err := periodic.Apply(t.Context(), owner, []periodic.Schedule{hourly}, nil); err != nil {
		t.Fatal(err)
	}
	b := s.as(api.Admin)
	p := b.get("/schedules")
	b.want(p, http.StatusOK, "nightly", "every hour", "Pause…", "Run now…")
	form := url.Values{"csrf": {token(t, p)}, "name": {"nightly"}, "reason": {"month end"}, "act": {"pause"}}
	b.want(b.post("/schedule", form), http.StatusOK, "by ada-admin: month end", "Resume…", "nightly is paused.")
	form.Set("act", "run")
	b.want(b.post("/schedule", form), http.StatusOK, "<h1>nightly@", "ada-admin") // the page of the task
	form.Set("act", "resume")
	b.want(b.post("/schedule", form), http.StatusOK, "Pause…", "nightly is resumed.")
	var records []string
	rows, err := owner.Query(t.Context(), `
		select concat_ws(' ', actor, data->>'schedule', data->>'action', data->>'reason')
		  from taskledger.event where kind = 'taskledger.schedule' and version = 1 order by position offset 1`)
	if err == nil {
		records, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"ada-admin nightly pause month end", "ada-admin nightly run month end",
		"ada-admin nightly resume month end"}
	if !slices.Equal(records, want) {
		t.Errorf("on record: %q, want %q", records, want)
	}
	form.Set("act", "drop")
	b.want(b.post("/schedule", form), http.StatusBadRequest, "must be pause, resume or run")
	form.Set("act", "pause")
	form.Set("name", "unknown")
	p = b.post("/schedule", form)
	b.want(p, http.StatusNotFound, "load the page Schedules again")
	if strings.Contains(p.body, "/v1/") {
		t.Errorf("the cure is one for programs: %s", p.content())
	}
	p = b.get("/task?kind=report.make&biz_id=unknown")
	b.want(p, http.StatusNotFound, "search the task on the page Tasks")
	viewer := s.as(api.Viewer)
	form.Set("csrf", token(t, viewer.get("/")))
	viewer.want(viewer.post("/schedule", form), http.StatusForbidden) // not whether it exists
	form.Set("name", "nightly")
	viewer.want(viewer.post("/schedule", form), http.StatusForbidden)
}

// The page Events leads back to the first event, with its filters.
func TestEventsLeadBack(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for i := range 250 {
		ledgertest.Enqueue(t, s.db, ledgertest.Key(t, fmt.Sprintf("mail.send/m-%d", i)), `{}`)
		ledgertest.Enqueue(t, s.db, ledgertest.Key(t, fmt.Sprintf("coupon.send/c-%d", i)), `{}`)
	}
	b := s.as(api.Viewer)
	next := regexp.MustCompile(`href="(/events\?[^"]*before=[^"]*)"`)
	seen, pages := make(map[string]int), 0
	for path := "/events?type=enqueued&prefix=mail.send/m"; path != ""; pages++ {
		p := b.get(path)
		b.want(p, http.StatusOK)
		for _, m := range regexp.MustCompile(`<bdi>([mc]-\d+)</bdi>`).FindAllStringSubmatch(p.body, -1) {
			seen[m[1]]++
		}
		path = ""
		if m := next.FindStringSubmatch(p.body); m != nil {
			path = html.UnescapeString(m[1])
		}
	}
	if len(seen) != 250 || seen["m-0"] != 1 || seen["m-249"] != 1 || seen["c-0"] != 0 || pages != 3 {
		t.Errorf("%d tasks on %d pages: %v", len(seen), pages, seen)
	}
	b.want(b.get("/events?type=done"), http.StatusBadRequest, "invalid type")
	b.want(b.get("/events?before=x"), http.StatusBadRequest, "before must be a position")
}
