package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/wire"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A task is enqueued once, and returned with its version as ETag.
func TestPostAndGet(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	body := `{"kind":"coupon.send","biz_id":"A-1","args":{"cents":500},"tags":["x"]}`
	posted := s.call(api.Producer, "POST", "/v1/tasks", body)
	made := decode[client.Enqueued](s, posted, http.StatusCreated)
	if !made.New || made.State != ledger.StateAvailable || made.Position == 0 || made.Task != nil {
		t.Errorf("got %+v", made)
	}
	path := posted.header.Get("Location")
	if path != "/v1/tasks/coupon.send/A-1" || posted.header.Get("ETag") != `"1"` {
		t.Errorf("headers %v", posted.header)
	}
	again := decode[client.Enqueued](s, s.call(api.Producer, "POST", "/v1/tasks", body), http.StatusOK)
	if again.New || !again.SameArgs || again.Position != made.Position {
		t.Errorf("again: %+v", again)
	}
	other := s.call(api.Producer, "POST", "/v1/tasks", `{"kind":"coupon.send","biz_id":"A-1","args":{"cents":1}}`)
	p := s.wantProblem(other, http.StatusConflict, "other_args")
	if p.State != ledger.StateAvailable || p.Version != 1 || !strings.Contains(p.Detail, "args.cents was 500, is 1") {
		t.Errorf("other args: %+v", p)
	}
	equal := s.call(api.Producer, "POST", "/v1/tasks", `{"kind":"coupon.send","biz_id":"A-1","args":{ "cents" : 5e2 }}`)
	if equal.status != http.StatusOK {
		t.Errorf("equal args: %d %s", equal.status, equal.body)
	}
	got := s.call(api.Viewer, "GET", path, "")
	task := decode[ledger.Task](s, got, http.StatusOK)
	if task.Actor != "a-producer" || string(task.Args) != `{"cents":500}` || got.header.Get("ETag") != `"1"` {
		t.Errorf("got %+v, %v", task, got.header)
	}
	if same := s.call(api.Viewer, "GET", path, "", "If-None-Match", `"1"`); same.status != http.StatusNotModified {
		t.Errorf("If-None-Match: %d", same.status)
	}
	history := decode[client.List[ledger.Event]](s, s.call(api.Viewer, "GET", path+"/events", ""), http.StatusOK)
	if len(history.Items) != 1 || history.Items[0].Actor != "a-producer" || history.Items[0].Login == "" {
		t.Errorf("history: %+v", history)
	}
	s.wantProblem(s.call(api.Viewer, "GET", "/v1/tasks/coupon.send/A-2", ""), http.StatusNotFound, "unknown_task")
	s.wantProblem(s.call(api.Viewer, "GET", "/v1/tasks/coupon.send/A-2/events", ""), http.StatusNotFound,
		"unknown_task")
}

// Every biz_id has one path, and the API finds the task by it.
func TestBizIDsInPaths(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for _, id := range []ledger.BizID{"a/b", "/", "//", ".", "..", "...", "a..b", "a:release", ":", "a b", "a+b",
		"ä€😀", "%2F", "%", "?x=1", "#", "a//b/../c", "~-_.", `"\`, ledger.BizID(strings.Repeat("é", 127))} {
		k := ledger.Key{Kind: "coupon.send", BizID: id}
		ledgertest.Enqueue(t, s.db, k, `{}`)
		if task := decode[ledger.Task](s, s.call(api.Viewer, "GET", client.Path(k), ""), http.StatusOK); task.Key != k {
			t.Errorf("%q: got %q", id, task.Key)
		}
		history := s.call(api.Viewer, "GET", client.Path(k)+"/events", "")
		if events := decode[client.List[ledger.Event]](s, history, http.StatusOK); events.Items[0].Key != k {
			t.Errorf("history of %q: got %q", id, events.Items[0].Key)
		}
		buried := decode[ledger.Task](s, s.call(api.Operator, "POST", client.Path(k)+":bury", `{}`), http.StatusOK)
		if buried.Key != k || buried.State != ledger.StateDead {
			t.Errorf("bury %q: got %q %s", id, buried.Key, buried.State)
		}
	}
	for path, field := range map[string]string{
		"/v1/tasks/coupon.send/%FF": "path", "/v1/tasks/coupon.send/a%00": "path",
	} {
		if p := s.wantProblem(s.call(api.Viewer, "GET", path, ""), http.StatusBadRequest, "invalid"); p.Field != field {
			t.Errorf("%s: %+v", path, p)
		}
	}
	// A path that a client did not escape is never that of another task.
	for _, path := range []string{"/v1/tasks/coupon.send/a/b", "/v1/tasks/coupon.send//", "/v1/tasks//a",
		"/v1/tasks/coupon.send/"} {
		s.wantProblem(s.call(api.Viewer, "GET", path, ""), http.StatusNotFound, "not_found")
	}
	wrong := s.call(api.Viewer, "PUT", "/v1/tasks/coupon.send/a", "")
	s.wantProblem(wrong, http.StatusMethodNotAllowed, "method_not_allowed")
	if allow := wrong.header.Get("Allow"); allow != "GET, HEAD, POST, DELETE" {
		t.Errorf("Allow: %s", allow)
	}
}

// The header Idempotency-Key is the biz_id of a task without one.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	post := func(body, key string) answer {
		return s.call(api.Producer, "POST", "/v1/tasks", body, "Idempotency-Key", key)
	}
	first := decode[client.Enqueued](s, post(`{"kind":"mail.send","args":1}`, `"8e03978e"`), http.StatusCreated)
	if first.BizID != "8e03978e" {
		t.Errorf("biz_id %q", first.BizID)
	}
	decode[client.Enqueued](s, post(`{"kind":"mail.send","args":1}`, `8e03978e`), http.StatusOK)
	s.wantProblem(post(`{"kind":"mail.send","args":2}`, `8e03978e`), http.StatusConflict, "other_args")
	named := decode[client.Enqueued](s, post(`{"kind":"mail.send","biz_id":"b"}`, "8e03978e"), http.StatusCreated)
	if named.BizID != "b" {
		t.Errorf("biz_id %q", named.BizID)
	}
	if p := s.wantProblem(post(`{"kind":"mail.send"}`, strings.Repeat("x", 256)), 400, "invalid"); p.Field !=
		"Idempotency-Key" {
		t.Errorf("%+v", p)
	}
	s.wantProblem(s.call(api.Producer, "POST", "/v1/tasks", `{"kind":"mail.send"}`), 400, "invalid")
}

// A task after others waits for them, in one request and in a batch. Its predecessors exist, and their kinds are among
// those of the caller, since its handler can read their results.
func TestPostAfter(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	o := api.TokenOptions{Name: "sums", Role: api.Producer, Kinds: []string{"sum.all"}}
	_, secret, err := api.CreateToken(t.Context(), s.db, o)
	if err != nil {
		t.Fatal(err)
	}
	s.tokens["sums"] = secret
	post := func(path, body string) answer { return s.call(api.Producer, "POST", path, body) }
	decode[client.Enqueued](s, post("/v1/tasks", `{"kind":"sum.part","biz_id":"1"}`), http.StatusCreated)
	const after = `{"kind":"sum.all","biz_id":"%s","after":{"keys":[{"kind":"sum.part","biz_id":"%s"}],"otherwise":%q}}`
	all := decode[client.Enqueued](s, post("/v1/tasks", fmt.Sprintf(after, "1", "1", "run")), http.StatusCreated)
	if all.State != ledger.StateScheduled {
		t.Errorf("the task is %s, want scheduled", all.State)
	}
	history, err := ledger.History(t.Context(), s.db, ledgertest.Key(t, "sum.all/1"))
	if err != nil {
		t.Fatal(err)
	}
	if a := history[0].Awaited(); len(a.Keys) != 1 || a.Keys[0].String() != "sum.part/1" || a.Otherwise != "run" {
		t.Errorf("the task comes after %+v", a)
	}
	batch := `{"tasks":[{"kind":"sum.part","biz_id":"2"},` + fmt.Sprintf(after, "2", "2", "") + `]}`
	made := decode[wire.Tasks[client.Enqueued]](s, post("/v1/tasks:batch", batch), http.StatusOK)
	if made.Tasks[1].State != ledger.StateScheduled {
		t.Errorf("in a batch the task is %s, want scheduled", made.Tasks[1].State)
	}
	keys := strings.Repeat(`{"kind":"sum.part","biz_id":"1"},`, 10_000)
	for _, test := range []struct{ name, body, field string }{
		{name: "unknown", body: fmt.Sprintf(after, "3", "none", "run"), field: "after"},
		{name: "many", body: `{"kind":"a","biz_id":"3","after":{"keys":[` + strings.TrimSuffix(keys, ",") + `]}}`,
			field: "after"},
		{name: "many", body: `{"kind":"a","biz_id":"3","after":{"keys":[` + keys[:len(keys)-1] + `]}}`, field: "after"},
		{name: "itself", body: `{"kind":"a","biz_id":"3","after":{"keys":[{"kind":"a","biz_id":"3"}]}}`,
			field: "after"},
		{name: "no keys", body: `{"kind":"a","biz_id":"3","after":{}}`, field: "after"},
		{name: "misspelled", body: `{"kind":"a","biz_id":"3","after":{"key":[]}}`, field: "after.key"},
		{name: "otherwise", body: fmt.Sprintf(after, "3", "1", "dance"), field: "otherwise"},
		{name: "due", body: `{"kind":"a","biz_id":"3","run_in":1,"after":{"keys":[{"kind":"sum.part","biz_id":"1"}]}}`,
			field: "after"},
	} {
		if p := s.wantProblem(post("/v1/tasks", test.body), 400, "invalid"); p.Field != test.field {
			t.Errorf("%s: the field is %q, want %q: %s", test.name, p.Field, test.field, p.Detail)
		}
	}
	p := s.wantProblem(post("/v1/tasks:batch", `{"tasks":[{"kind":"a","biz_id":"4","runin":7}]}`), 400, "invalid")
	if p.Field != "runin" {
		t.Errorf("an unknown member in a batch: %+v", p)
	}
	s.wantProblem(s.call("sums", "POST", "/v1/tasks", fmt.Sprintf(after, "4", "1", "run")), 403, "kind_forbidden")
	cycle := `{"tasks":[{"kind":"a","biz_id":"x","after":{"keys":[{"kind":"a","biz_id":"y"}]}},
		{"kind":"a","biz_id":"y","after":{"keys":[{"kind":"a","biz_id":"x"}]}}]}`
	if p := s.wantProblem(post("/v1/tasks:batch", cycle), 400, "invalid"); p.Field != "after" {
		t.Errorf("a cycle: %+v", p)
	}
}

// A limit that refuses a task is 429 with the operator's Retry-After.
func TestLimitRefuses(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	ledgertest.ExecAsOwner(t, s.db, `
		insert into taskledger.kind_limit (kind, max_waiting, policy, retry_after_ms, actor)
		values ('mail.send', 0, 'reject', 2500, 'op')`)
	refused := s.call(api.Producer, "POST", "/v1/tasks", `{"kind":"mail.send","biz_id":"1"}`)
	p := s.wantProblem(refused, http.StatusTooManyRequests, "overloaded")
	if p.RetryAfter != 3 || refused.header.Get("Retry-After") != "3" {
		t.Errorf("got %+v, %v", p, refused.header)
	}
}

// Prefer waits for the result, and answers 202 when the time is up. Requests that wait see a result at once, and a
// version that changes.
func TestWait(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	body := `{"kind":"coupon.send","biz_id":"A-1"}`
	late := s.call(api.Producer, "POST", "/v1/tasks", body, "Prefer", "wait=1")
	if got := decode[client.Enqueued](s, late, http.StatusAccepted); got.Task == nil || !got.New ||
		got.State != ledger.StateAvailable || late.header.Get("Preference-Applied") != "wait=1" ||
		late.header.Get("Location") == "" {
		t.Errorf("got %+v, %v", got, late.header)
	}
	async := s.call(api.Producer, "POST", "/v1/tasks", body, "Prefer", "respond-async")
	decode[client.Enqueued](s, async, http.StatusAccepted)

	k := ledger.Key{Kind: "coupon.send", BizID: "A-1"}
	waits := map[string]func() answer{
		"POST": func() answer {
			return s.call(api.Producer, "POST", "/v1/tasks", body, "Prefer", "respond-async, wait=60")
		},
		"GET":    func() answer { return s.call(api.Viewer, "GET", client.Path(k)+"?wait=60", "") },
		"Prefer": func() answer { return s.call(api.Viewer, "GET", client.Path(k), "", "Prefer", "wait=60") },
		"version": func() answer {
			return s.call(api.Viewer, "GET", client.Path(k)+"?wait=60", "", "If-None-Match", `"2"`)
		},
	}
	changed := make(chan answer, 1)
	go func() {
		changed <- s.call(api.Viewer, "GET", client.Path(k)+"?wait=60", "", "If-None-Match", `"1"`)
	}()
	s.awaitWaiting(1)
	ledgertest.Append(t, s.owner(), k, ledger.EventStarted)
	if got := <-changed; got.header.Get("ETag") != `"2"` || got.status != http.StatusOK {
		t.Errorf("If-None-Match: %d, %v", got.status, got.header)
	}
	answers := make(chan error, len(waits))
	for name, wait := range waits {
		go func() {
			var err error
			if a := wait(); a.status != http.StatusOK || a.header.Get("ETag") != `"3"` ||
				!strings.Contains(string(a.body), `"state":"succeeded"`) {
				err = fmt.Errorf("%s: %d %s", name, a.status, a.body)
			}
			answers <- err
		}()
	}
	s.awaitWaiting(len(waits))
	ledgertest.Append(t, s.owner(), k, ledger.EventSucceeded)
	for range waits {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	s.awaitWaiting(0)
	begun := time.Now()
	if a := s.call(api.Producer, "POST", "/v1/tasks", body, "Prefer", "wait=60"); a.status != http.StatusOK ||
		time.Since(begun) >= time.Minute {
		t.Errorf("finished: %d after %s", a.status, time.Since(begun))
	}
	if same := s.call(api.Viewer, "GET", client.Path(k)+"?wait=1", "", "If-None-Match", `"3"`); same.status !=
		http.StatusNotModified {
		t.Errorf("time is up: %d", same.status)
	}
}

// A shutdown answers the requests that wait as if their time were up, and ends streams.
func TestDrain(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	posted := make(chan answer, 1)
	go func() {
		posted <- s.call(api.Producer, "POST", "/v1/tasks", `{"kind":"a.b","biz_id":"1"}`, "Prefer", "wait=60")
	}()
	open := s.stream("", "")
	s.awaitWaiting(2)
	s.handler.Drain()
	if a := <-posted; a.status != http.StatusAccepted {
		t.Errorf("got %d %s", a.status, a.body)
	}
	for { // the event of the task may come first
		if _, _, ok := open.next(); !ok {
			break
		}
	}
	stream := s.call(api.Viewer, "GET", "/v1/events", "", "Accept", "text/event-stream")
	s.wantProblem(stream, http.StatusServiceUnavailable, "shutdown")
	if _, users := s.handler.Waiting(); users != 0 {
		t.Errorf("%d users are left", users)
	}
}

// A batch is enqueued whole or not at all.
func TestBatch(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	ledgertest.Enqueue(t, s.db, ledger.Key{Kind: "a.b", BizID: "2"}, `1`)
	batch := s.call(api.Producer, "POST", "/v1/tasks:batch",
		`{"tasks":[{"kind":"a.b","biz_id":"1"},{"kind":"a.b","biz_id":"2","args":2},{"kind":"c","biz_id":"/"}]}`)
	got := decode[wire.Tasks[client.Enqueued]](s, batch, http.StatusOK)
	if len(got.Tasks) != 3 || !got.Tasks[0].New || got.Tasks[1].New || got.Tasks[1].SameArgs ||
		got.Tasks[2].BizID != "/" {
		t.Errorf("got %+v", got)
	}
	broken := s.call(api.Producer, "POST", "/v1/tasks:batch",
		`{"tasks":[{"kind":"a.b","biz_id":"7"},{"kind":"a..b","biz_id":"8"}]}`)
	if p := s.wantProblem(broken, 400, "invalid"); p.Index == nil || *p.Index != 1 || p.Field != "kind" {
		t.Errorf("got %+v", p)
	}
	for second, field := range map[string]string{
		`{"kind":1}`: "kind", `{"Kind":"a","biz_id":"1"}`: "Kind", `{"kind":"a","kind":"b"}`: "kind", `[]`: "body",
	} {
		a := s.call(api.Producer, "POST", "/v1/tasks:batch", `{"tasks":[{"kind":"a.b","biz_id":"9"},`+second+`]}`)
		if p := s.wantProblem(a, 400, "invalid"); p.Index == nil || *p.Index != 1 || p.Field != field {
			t.Errorf("%s: got %+v", second, p)
		}
	}
	s.wantProblem(s.call(api.Viewer, "GET", "/v1/tasks/a.b/7", ""), 404, "unknown_task")
	s.wantProblem(s.call(api.Producer, "POST", "/v1/tasks:batch", `{"tasks":[]}`), 400, "invalid")
	many := `{"tasks":[` + strings.Repeat(`{"kind":"a","biz_id":"1"},`, 1000) + `{"kind":"a","biz_id":"1"}]}`
	s.wantProblem(s.call(api.Producer, "POST", "/v1/tasks:batch", many), 400, "invalid")
}

// Args are any JSON, and the document allows each in every answer.
func TestArgsOfEveryType(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for i, args := range []string{
		`null`, `true`, `1.5`, `"x"`, `[]`, `{}`, `"\u0000"`, `{"\ud800":"\u0000"}`, `"\udfff"`,
	} {
		path := fmt.Sprintf("/v1/tasks/a.b/%d", i)
		body := fmt.Sprintf(`{"kind":"a.b","biz_id":"%d","args":%s}`, i, args)
		if a := s.call(api.Producer, "POST", "/v1/tasks", body); a.status != http.StatusCreated {
			t.Errorf("%s: %d %s", args, a.status, a.body)
		}
		for _, path := range []string{path, path + "/events", "/v1/events"} { // each answer is checked
			a := s.call(api.Viewer, "GET", path, "")
			if a.status != http.StatusOK || !strings.Contains(string(a.body), ":"+args) {
				t.Errorf("%s: %s: %d %s", args, path, a.status, a.body)
			}
		}
	}
}

// The changes of an operator, each an event with the caller as its actor.
func TestChanges(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	k := ledger.Key{Kind: "a.b", BizID: "1"}
	ledgertest.Enqueue(t, s.db, k, `{}`)
	path := client.Path(k)
	nul := s.call(api.Operator, "POST", path+":bury", `{"reason":"bad\u0000"}`)
	if p := s.wantProblem(nul, http.StatusBadRequest, "invalid"); p.Field != "reason" {
		t.Errorf("NUL in a reason: %+v", p)
	}
	for _, step := range []struct {
		method, path, body string
		state              ledger.State
	}{
		{method: "POST", path: path + ":reschedule", body: `{"in":36.5,"reason":"x"}`, state: ledger.StateScheduled},
		{method: "POST", path: path + ":release", body: ``, state: ledger.StateAvailable},
		{method: "POST", path: path + ":bury", body: `{"reason":"bad\u0001"}`, state: ledger.StateDead},
		{method: "POST", path: path + ":release", body: `{}`, state: ledger.StateAvailable},
		{method: "POST", path: path + ":cancel", body: `{}`, state: ledger.StateCancelled},
		{method: "POST", path: path + ":release", body: `{}`, state: ledger.StateAvailable},
		{method: "DELETE", path: path + "?reason=gone", body: ``, state: ledger.StateCancelled},
	} {
		task := decode[ledger.Task](s, s.call(api.Operator, step.method, step.path, step.body), http.StatusOK)
		if task.State != step.state || task.Actor != "a-operator" {
			t.Errorf("%s: %s by %s", step.path, task.State, task.Actor)
		}
	}
	p := s.wantProblem(s.call(api.Operator, "POST", path+":bury", `{}`), http.StatusConflict, "state")
	if p.State != ledger.StateCancelled {
		t.Errorf("got %+v", p)
	}
	for path, code := range map[string]string{":unknown": "not_found", "": "not_found", "%3Abury": "not_found"} {
		s.wantProblem(s.call(api.Operator, "POST", client.Path(k)+path, `{}`), http.StatusNotFound, code)
	}
	s.wantProblem(s.call(api.Operator, "POST", path+":reschedule", `{}`), 400, "invalid")
	s.wantProblem(s.call(api.Operator, "POST", path+":release", `{"in":1}`), 400, "invalid")
	for change, changed := range map[string]bool{":pause": true, ":resume": true} {
		got := decode[struct{ Changed bool }](s, s.call(api.Admin, "POST", "/v1/kinds/a.b"+change, ""), 200)
		if change == ":pause" && got.Changed != changed {
			t.Errorf("%s: %+v", change, got)
		}
	}
}
