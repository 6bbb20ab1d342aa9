package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/wire"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// enqueue enqueues a task as kind/biz_id.
func (s *workServer) enqueue(key, args string) {
	s.t.Helper()
	ledgertest.Enqueue(s.t, s.db, ledgertest.Key(s.t, key), args)
}

// A worker gets a task with its args, and each outcome is recorded as that of a handler.
func TestWorkOutcomes(t *testing.T) {
	t.Parallel()
	s := serveWork(t, 30*time.Second)
	in := 3600.0
	for i, test := range []struct {
		call string
		body func(wire.AttemptRef) any
		want ledger.State
		data string // a part of the last event's data
	}{
		{call: "finish", body: func(a wire.AttemptRef) any {
			return wire.Finish{AttemptRef: a, Result: json.RawMessage(`{"mail": 7}`)}
		}, want: ledger.StateSucceeded, data: `"result":{"mail":7}`},
		{call: "finish", body: func(a wire.AttemptRef) any { return wire.Finish{AttemptRef: a} },
			want: ledger.StateSucceeded},
		{call: "fail", body: func(a wire.AttemptRef) any {
			return wire.Fail{AttemptRef: a, Error: "refused", ErrorType: "SMTPError", Stack: "line 1", RetryIn: &in}
		}, want: ledger.StateRetrying, data: `"error":{"message":"refused","type":"SMTPError",`},
		{call: "fail", body: func(a wire.AttemptRef) any {
			return wire.Fail{AttemptRef: a, Error: "no such user", Permanent: true}
		}, want: ledger.StateDead, data: `"reason":"the handler returned a permanent error"`},
		{call: "fail", body: func(a wire.AttemptRef) any {
			return wire.Fail{AttemptRef: a, Error: "once", Retry: json.RawMessage(`{"attempts": 1}`)}
		}, want: ledger.StateDead, data: `"reason":"attempts used up"`},
		{call: "snooze", body: func(a wire.AttemptRef) any { return wire.Snooze{AttemptRef: a, In: &in} },
			want: ledger.StateScheduled},
	} {
		key := fmt.Sprintf("mail.send/%d é/%%", i)
		s.enqueue(key, `{"to": "ada"}`)
		task, got := s.one(askFor(1, "mail.send"))
		if string(task.BizID) != strings.TrimPrefix(key, "mail.send/") || string(task.Args) != `{"to":"ada"}` ||
			task.Attempt != 1 || task.Version != 1 || task.Fence == "" || task.Again || got.HeartbeatEvery != 10 {
			t.Errorf("%+v", got)
		}
		if state := s.end(test.call, test.body(task.Ref())); state != test.want {
			t.Errorf("%s: %s, want %s", test.call, state, test.want)
		}
		if state := s.end(test.call, test.body(task.Ref())); state != test.want {
			t.Errorf("%s again: %s, want %s", test.call, state, test.want)
		}
		newest, err := ledger.NewestOf(t.Context(), s.db, ledgertest.Key(t, key), ledger.NewestOptions{Limit: 1})
		if err != nil || !strings.Contains(string(newest[0].Data), test.data) ||
			!strings.HasPrefix(newest[0].Actor, "a-worker-") {
			t.Errorf("%s: %v %s %s", test.call, err, newest[0].Actor, newest[0].Data)
		}
		p := s.wantEnded(api.Worker, "finish",
			wire.Finish{AttemptRef: task.Ref(), Result: json.RawMessage(`"other"`)})
		if p.State != test.want || !strings.HasPrefix(p.History, "/v1/tasks/mail.send/") {
			t.Errorf("%+v", p)
		}
		if a := s.call(api.Worker, "GET", p.History, ""); a.status != http.StatusOK {
			t.Errorf("the history: %d %s", a.status, a.body)
		}
	}
}

// A task of an answer that was lost is given again with the same fence; a task of an answer that was read is not.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	s := serveWork(t, 30*time.Second)
	s.enqueue("a.b/1", `1`)
	ask := askFor(1, "a.b")
	first, got := s.one(ask)
	again, gotAgain := s.one(ask) // received is still ""
	if !again.Again || again.Fence != first.Fence || gotAgain.Batch == got.Batch {
		t.Errorf("%+v, then %+v", got, gotAgain)
	}
	none := 0.0
	ask.Received, ask.Wait = gotAgain.Batch, &none
	if empty := s.ask(ask); len(empty.Tasks) > 0 || empty.Batch != gotAgain.Batch {
		t.Errorf("after the answer was read: %+v", empty)
	}
	if state := s.end("finish", wire.Finish{AttemptRef: first.Ref()}); state != ledger.StateSucceeded {
		t.Error(state)
	}
	if empty := s.ask(ask); len(empty.Tasks) > 0 {
		t.Errorf("after the task has finished: %+v", empty)
	}
}

// A later request of a session ends the one before.
func TestNewerRequestEndsTheOlder(t *testing.T) {
	t.Parallel()
	s := serveWork(t, 30*time.Second)
	answers := make(chan wire.Asked, 2)
	for range 2 { // the order in which the server takes them is open
		go func() { answers <- s.ask(askFor(1, "a.b")) }()
	}
	if got := <-answers; len(got.Tasks) > 0 {
		t.Errorf("%+v", got)
	}
	s.enqueue("a.b/1", `1`)
	got := <-answers
	if len(got.Tasks) != 1 {
		t.Fatalf("%+v", got)
	}
	s.end("finish", wire.Finish{AttemptRef: got.Tasks[0].Ref()})
}

// Two workers with one name, and two callers, have separate tasks. No caller ends or sees another's attempt.
func TestWorkersDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	s := serveWork(t, 30*time.Second)
	_, secret, err := api.CreateToken(t.Context(), s.db, api.TokenOptions{Name: "other", Role: api.Worker})
	if err != nil {
		t.Fatal(err)
	}
	s.tokens["other"] = secret
	for i := range 2 {
		s.enqueue(fmt.Sprintf("a.b/%d", i), `1`)
	}
	ask1, ask2 := askFor(1, "a.b"), askFor(2, "a.b")
	ask1.Limit, ask2.Limit = 1, 1
	first, _ := s.one(ask1)
	second, _ := s.one(ask2)
	if first.BizID == second.BizID {
		t.Errorf("both have %s", first.BizID)
	}
	s.wantEnded("other", "finish", wire.Finish{AttemptRef: first.Ref()})
	s.wantEnded("other", "progress",
		wire.ReportProgress{AttemptRef: first.Ref(), Progress: json.RawMessage(`1`)})
	for _, c := range []struct {
		token   api.Role
		session int
	}{{token: "other", session: 1}, {token: api.Worker, session: 2}} {
		beat := decode[wire.Beaten](s.server, s.post(c.token, "/v1/work:heartbeat",
			wire.Heartbeat{Session: session(c.session), Holds: []string{first.Fence}}), http.StatusOK)
		if len(beat.Ended) != 1 || beat.Ended[0].Reason != "unknown" {
			t.Errorf("%s: %+v", c.token, beat)
		}
		released := decode[wire.Released](s.server, s.post(c.token, "/v1/work:release",
			wire.Release{Session: session(c.session), Holds: []string{first.Fence}}), http.StatusOK)
		if released.Released != 0 {
			t.Errorf("%s has released another session's task", c.token)
		}
	}
	beat := decode[wire.Beaten](s.server, s.post(api.Worker, "/v1/work:heartbeat",
		wire.Heartbeat{Session: session(1), Holds: []string{first.Fence}}), http.StatusOK)
	if len(beat.Ended) != 0 {
		t.Errorf("%+v", beat)
	}
	s.end("finish", wire.Finish{AttemptRef: first.Ref()})
	s.end("finish", wire.Finish{AttemptRef: second.Ref()})
}

// The task of a worker that vanishes goes to another one after the term, and is dead after five such workers.
func TestLostWorker(t *testing.T) {
	t.Parallel()
	s := serveWork(t, term)
	s.enqueue("a.b/1", `1`)
	var first wire.Task
	for i := range 5 {
		task, _ := s.one(askFor(i, "a.b"))
		if task.Attempt != ledger.Attempt(i+1) {
			t.Errorf("attempt %d, want %d", task.Attempt, i+1)
		}
		if i == 0 {
			first = task
		}
	}
	if task := s.awaitState("a.b/1", ledger.StateDead); task.Error != "its workers were lost one after the other" {
		t.Errorf("error %q", task.Error)
	}
	p := s.wantEnded(api.Worker, "finish", wire.Finish{AttemptRef: first.Ref()})
	if p.State != ledger.StateDead {
		t.Errorf("%+v", p)
	}
}

// Heartbeats hold a task for longer than the term.
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	s := serveWork(t, term)
	s.enqueue("a.b/1", `1`)
	begun := time.Now()
	task, _ := s.one(askFor(1, "a.b"))
	for last := begun; time.Since(begun) < 3*term; time.Sleep(term / 10) {
		now := time.Now()
		ended := s.beat(1, task.Fence)
		wantHeld(t, ended, last, term)
		last = now
	}
	if state := s.end("finish", wire.Finish{AttemptRef: task.Ref()}); state != ledger.StateSucceeded {
		t.Error(state)
	}
}

// A heartbeat returns the attempts that were cancelled, took too long or passed their deadline.
func TestEndedAttempts(t *testing.T) {
	t.Parallel()
	s := serveWork(t, 30*time.Second)
	for _, test := range []struct {
		reason string
		want   ledger.State
		begin  func(key string, ask *wire.Ask)
		end    func(key string)
	}{
		{reason: "cancelled", want: ledger.StateCancelled, end: func(key string) {
			s.call(api.Operator, "DELETE", client.Path(ledgertest.Key(t, key)), "")
		}},
		{reason: "timeout", want: ledger.StateRetrying, begin: func(_ string, ask *wire.Ask) { ask.Timeout = 1 }},
	} {
		key := "a.b/" + test.reason
		ask := askFor(1, "a.b")
		if test.begin != nil {
			test.begin(key, &ask)
		}
		s.enqueue(key, `1`)
		task, _ := s.one(ask)
		if test.end != nil {
			test.end(key)
		}
		var ended []wire.Ended
		for begun := time.Now(); len(ended) == 0 && time.Since(begun) < time.Minute; time.Sleep(10 * time.Millisecond) {
			ended = decode[wire.Beaten](s.server, s.post(api.Worker, "/v1/work:heartbeat",
				wire.Heartbeat{Session: session(1), Holds: []string{task.Fence}}), http.StatusOK).Ended
		}
		want := wire.Ended{Kind: "a.b", BizID: task.BizID, Fence: task.Fence, Reason: test.reason}
		if !slices.Equal(ended, []wire.Ended{want}) {
			t.Errorf("ended %+v, want %+v", ended, want)
		}
		s.wantEnded(api.Worker, "finish", wire.Finish{AttemptRef: task.Ref()})
		s.awaitState(key, test.want)
	}
}

// Released tasks go to other workers at once.
func TestRelease(t *testing.T) {
	t.Parallel()
	s := serveWork(t, 30*time.Second)
	s.enqueue("a.b/1", `1`)
	s.one(askFor(1, "a.b"))
	released := decode[wire.Released](s.server, s.post(api.Worker, "/v1/work:release",
		wire.Release{Session: session(1)}), http.StatusOK)
	if released.Released != 1 {
		t.Errorf("%+v", released)
	}
	task, _ := s.one(askFor(2, "a.b"))
	if task.Attempt != 2 || s.task("a.b/1").Failures != 0 {
		t.Errorf("%+v", task)
	}
	s.end("finish", wire.Finish{AttemptRef: task.Ref()})
}

// At most once, the handler of a released task may have begun: it is not begun again, and a person decides.
func TestReleaseAtMostOnce(t *testing.T) {
	t.Parallel()
	s := serveWork(t, 30*time.Second)
	for n, holds := range []func(wire.Task) []string{
		func(wire.Task) []string { return nil },
		func(t wire.Task) []string { return []string{t.Fence} },
	} {
		ask := askFor(n+1, "a.b")
		ask.Guarantee = "at most once"
		key := fmt.Sprintf("a.b/%d", n)
		s.enqueue(key, `1`)
		task, _ := s.one(ask)
		released := decode[wire.Released](s.server, s.post(api.Worker, "/v1/work:release",
			wire.Release{Session: ask.Session, Holds: holds(task)}), http.StatusOK)
		if released.Released != 1 {
			t.Errorf("%+v", released)
		}
		if have := s.awaitState(key, ledger.StateDead); have.Reason != "unknown outcome" {
			t.Errorf("reason %q", have.Reason)
		}
	}
}

// A kind that is named twice is one kind.
func TestKindNamedTwice(t *testing.T) {
	t.Parallel()
	s := serveWork(t, 30*time.Second)
	s.enqueue("a.b/1", `1`)
	ask := askFor(1, "a.b")
	ask.Kinds = append(ask.Kinds, "a.b")
	task, _ := s.one(ask)
	s.end("finish", wire.Finish{AttemptRef: task.Ref()})
}

// Progress is recorded with the start.
func TestWorkProgress(t *testing.T) {
	t.Parallel()
	s := serveWork(t, 30*time.Second)
	s.enqueue("a.b/1", `1`)
	task, _ := s.one(askFor(1, "a.b"))
	s.end("progress", wire.ReportProgress{AttemptRef: task.Ref(), Progress: json.RawMessage(`{"percent": 40}`)})
	s.awaitState("a.b/1", ledger.StateRunning)
	for begun := time.Now(); !strings.Contains(string(s.task("a.b/1").Progress), "40"); {
		if time.Since(begun) > time.Minute {
			t.Fatal("no progress")
		}
	}
	s.wantProblem(s.post(api.Worker, "/v1/work:progress", wire.ReportProgress{AttemptRef: task.Ref(),
		Progress: json.RawMessage(`"` + strings.Repeat("x", 20_000) + `"`)}), http.StatusBadRequest, "invalid")
	s.end("finish", wire.Finish{AttemptRef: task.Ref()})
}

// At most once: the start is recorded before the task is given, an attempt without a safe outcome is never repeated.
func TestAtMostOnceOverHTTP(t *testing.T) {
	t.Parallel()
	s := serveWork(t, term)
	ask := askFor(1, "a.b")
	ask.Guarantee = "at most once"
	for i, test := range []struct {
		end    func(wire.AttemptRef)
		want   ledger.State
		reason string
	}{
		{end: func(a wire.AttemptRef) { s.end("fail", wire.Fail{AttemptRef: a, Error: "x"}) },
			want: ledger.StateDead, reason: "the handler did not mark its error as safe to retry"},
		{end: func(a wire.AttemptRef) { s.end("fail", wire.Fail{AttemptRef: a, Error: "x", Safe: true}) },
			want: ledger.StateRetrying},
		{end: func(wire.AttemptRef) {}, want: ledger.StateDead, reason: "unknown outcome"},
	} {
		key := fmt.Sprintf("a.b/%d", i)
		s.enqueue(key, `1`)
		task, got := s.one(ask)
		if state := s.task(key).State; state != ledger.StateRunning {
			t.Errorf("given while it is %s", state)
		}
		ask.Received = got.Batch
		test.end(task.Ref())
		if have := s.awaitState(key, test.want); have.Reason != test.reason {
			t.Errorf("reason %q, want %q", have.Reason, test.reason)
		}
	}
}

// All workers of a kind need one guarantee: those of a caller, of two callers, and in Go.
func TestGuaranteeOfAKind(t *testing.T) {
	t.Parallel()
	s := serveWork(t, 30*time.Second)
	_, secret, err := api.CreateToken(t.Context(), s.db, api.TokenOptions{Name: "other", Role: api.Worker})
	if err != nil {
		t.Fatal(err)
	}
	s.tokens["other"] = secret
	none := 0.0
	ask := askFor(1, "a.b")
	ask.Wait = &none
	s.ask(ask)
	ask.Session, ask.Guarantee = session(2), "at most once"
	for _, token := range []api.Role{api.Worker, "other"} {
		s.wantProblem(s.post(token, "/v1/work", ask), http.StatusConflict, "guarantee")
	}
	ask.Kinds = []ledger.Kind{"other.kind"}
	if a := s.post("other", "/v1/work", ask); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// One call ends several attempts; each has its own answer.
func TestFinishMany(t *testing.T) {
	t.Parallel()
	s := serveWork(t, 30*time.Second)
	for i := range 3 {
		s.enqueue(fmt.Sprintf("a.b/%d", i), `1`)
	}
	ask := askFor(1, "a.b")
	var body struct {
		Tasks []wire.Finish `json:"tasks"`
	}
	for len(body.Tasks) < 3 {
		got := s.ask(ask)
		ask.Received = got.Batch
		for _, task := range got.Tasks {
			body.Tasks = append(body.Tasks, wire.Finish{AttemptRef: task.Ref(), Result: json.RawMessage(`1`)})
		}
	}
	body.Tasks[1].Fence = "x"
	for range 2 { // the answer is the same
		done := decode[wire.Tasks[wire.Finished[client.Problem]]](s.server,
			s.post(api.Worker, "/v1/work:finish", body), http.StatusOK)
		for i, task := range done.Tasks {
			if isBad := i == 1; isBad != (task.Problem != nil && task.Problem.Code == "attempt_ended") ||
				isBad == (task.State == ledger.StateSucceeded) {
				t.Errorf("%d: %+v", i, task)
			}
		}
	}
}

// wantEnded checks that a call is refused because the attempt has ended.
func (s *workServer) wantEnded(token api.Role, call string, body any) client.Problem {
	s.t.Helper()
	return s.wantProblem(s.post(token, "/v1/work:"+call, body), http.StatusConflict, "attempt_ended")
}

// Bad requests of workers are refused with the field and a cure.
func TestBadWork(t *testing.T) {
	t.Parallel()
	s := serveWork(t, 30*time.Second)
	_, secret, err := api.CreateToken(t.Context(), s.db, api.TokenOptions{Name: "limited", Role: api.Worker,
		Kinds: []string{"mail.*"}})
	if err != nil {
		t.Fatal(err)
	}
	s.tokens["limited"] = secret
	s.enqueue("mail.send/1", `1`)
	task, _ := s.one(askFor(1, "mail.send"))
	ref := fmt.Sprintf(`"kind":"mail.send","biz_id":"1","attempt":1,"fence":%q`, task.Fence)
	ask := func(more string) string {
		return `{"worker":"w","session":"0123456789abcdef","limit":1,"wait":0,` + more + `}`
	}
	for _, test := range []struct {
		token            api.Role // default: worker
		call, body       string
		status           int // 0: 400 invalid
		code, field, has string
	}{
		{call: "", body: `{}`, field: "worker"},
		{call: "", body: ask(`"kinds":[]`), field: "kinds"},
		{call: "", body: ask(`"kinds":["a b"]`), field: "kind"},
		{call: "", body: ask(`"kinds":["a"],"guarantee":"twice"`), field: "guarantee"},
		{call: "", body: ask(`"kinds":["a"],"protocol":"1.7"`), field: "protocol", has: "upgrade the server"},
		{call: "", body: ask(`"kinds":["a"],"protocol":"0.9"`), field: "protocol", has: "upgrade the client"},
		{call: "", body: ask(`"kinds":["a"],"protocol":"one"`), field: "protocol"},
		{call: "", body: ask(`"kinds":["a"],"timeout":0.5`), field: "timeout"},
		{call: "", body: ask(`"kinds":["a"],"received":"x"`), field: "received"},
		{call: "", body: ask(`"kinds":["a"],"received":"x.1~y.-1"`), field: "received"},
		{call: "", body: ask(`"kinds":["a"],"received":"` + strings.Repeat("x", 1001) + `.1"`), field: "received"},
		{call: "", body: ask(`"kinds":["a"],"credit":1`), field: "credit"},
		{call: "", body: `{"worker":"w","session":"short","kinds":["a"],"limit":1}`, field: "session"},
		{call: "", body: `{"worker":"w","session":"0123456789abcdef","kinds":["a"],"limit":0}`, field: "limit"},
		{call: "", body: ask(`"kinds":["taskledger.alarm"]`), status: 403, code: "forbidden"},
		{token: "limited", call: "", body: ask(`"kinds":["mail.send","other"]`), status: 403, code: "kind_forbidden"},
		{token: api.Producer, call: "", body: ask(`"kinds":["a"]`), status: 403, code: "forbidden",
			has: "needs worker"},
		{call: ":finish", body: `{` + ref + `,"result":{]}`, field: "body"},
		{call: ":finish", body: `{` + ref + `,"result":"` + strings.Repeat("x", 300<<10) + `"}`, field: "result"},
		{call: ":finish", body: `{` + ref + `,"result":` + strings.Repeat("[", 513) + strings.Repeat("]", 513) + `}`,
			field: "result", has: "512 levels"},
		{call: ":finish", body: `{"kind":"mail.send","biz_id":"1","attempt":"1","fence":"x"}`, field: "attempt"},
		{call: ":finish", body: `{` + ref + `,"result":"` + strings.Repeat("x", 10<<20) + `"}`, status: 413,
			code: "too_large"},
		{call: ":finish", body: `{"kind":"mail.send","biz_id":"1","attempt":1}`, field: "fence",
			has: "taskledger.finish"},
		{call: ":finish", body: `{"kind":"mail.send","biz_id":"1","attempt":1,"fence":"x"}`, status: 409,
			code: "attempt_ended"},
		{call: ":finish", body: `{"kind":"mail.send","biz_id":"2","attempt":1,"fence":"x"}`, status: 404,
			code: "unknown_task"},
		{token: "limited", call: ":finish", body: `{"kind":"a","biz_id":"1","attempt":1,"fence":"x"}`, status: 403,
			code: "kind_forbidden"},
		{call: ":finish", body: `{` + ref + `,"tasks":[]}`, field: "tasks"},
		{call: ":fail", body: `{` + ref + `}`, field: "error"},
		{call: ":fail", body: `{` + ref + `,"error":"x","retry_in":-1}`, field: "retry_in"},
		{call: ":fail", body: `{` + ref + `,"error":"x","retry_in":1,"permanent":true}`, field: "retry_in"},
		{call: ":fail", body: `{` + ref + `,"error":"x","retry":{"ladder":"no"}}`, field: "retry"},
		{call: ":snooze", body: `{` + ref + `}`, field: "in"},
		{call: ":snooze", body: `{` + ref + `,"in":1,"at":"2030-01-01T00:00:00Z"}`, field: "in"},
		{call: ":progress", body: `{` + ref + `}`, field: "progress"},
		{call: ":heartbeat", body: `{"session":"0123456789abcdef","holds":[""]}`, field: "holds"},
	} {
		if test.token == "" {
			test.token = api.Worker
		}
		if test.status == 0 {
			test.status, test.code = http.StatusBadRequest, "invalid"
		}
		p := s.wantProblem(s.call(test.token, "POST", "/v1/work"+test.call, test.body), test.status, test.code)
		if p.Field != test.field || !strings.Contains(p.Detail+p.Cure, test.has) {
			t.Errorf("%s %.100s: field %q, want %q: %s", test.call, test.body, p.Field, test.field, p.Error())
		}
	}
	if state := s.end("finish", wire.Finish{AttemptRef: task.Ref()}); state != ledger.StateSucceeded {
		t.Errorf("after the refused calls: %s", state)
	}
}

// A worker whose kind never had a task waits for the first one, and gets a hint after a second: with similar kinds that
// its token may have, also of archived tasks.
func TestUnknownKinds(t *testing.T) {
	t.Parallel()
	s := serveWork(t, 30*time.Second)
	_, secret, err := api.CreateToken(t.Context(), s.db, api.TokenOptions{Name: "limited", Role: api.Worker,
		Kinds: []string{"coupons.*", "mail.*"}})
	if err != nil {
		t.Fatal(err)
	}
	s.tokens["limited"] = secret
	s.enqueue("coupon.send/1", `1`)
	if _, err := s.owner().Exec(t.Context(), `insert into taskledger.task_count (kind, state, n, value)
		values ('coupon.print', 'succeeded', 1, 7)`); err != nil { // all its tasks are archived
		t.Fatal(err)
	}
	task, got := s.one(askFor(1, "coupon.send"))
	if len(got.UnknownKinds) > 0 {
		t.Errorf("hints about a kind with tasks: %+v", got)
	}
	ask := askFor(1, "coupon.sned")
	ask.Kinds = append(ask.Kinds, "coupon.send", "coupon.pritn", "report.daily")
	ask.Received, ask.Wait = got.Batch, new(0.1)
	hinted := func(token api.Role, a wire.Ask) wire.Asked {
		t.Helper()
		for begun := time.Now(); ; { // kinds are not read more often than once a second
			got := decode[wire.Asked](s.server, s.post(token, "/v1/work", a), http.StatusOK)
			if len(got.UnknownKinds) > 0 || len(got.Tasks) > 0 || time.Since(begun) > time.Minute {
				return got
			}
			a.Wait = new(0.1)
		}
	}
	got = hinted(api.Worker, ask)
	want := []wire.UnknownKind{
		{Kind: "coupon.sned", Similar: []ledger.Kind{"coupon.send"},
			Detail: "no task of kind coupon.sned has been enqueued yet; did you mean coupon.send?"},
		{Kind: "coupon.pritn", Similar: []ledger.Kind{"coupon.print"},
			Detail: "no task of kind coupon.pritn has been enqueued yet; did you mean coupon.print?"},
		{Kind: "report.daily", Detail: "no task of kind report.daily has been enqueued yet: " +
			"compare it with the name that the producer uses"},
	}
	if diff := difference.Of(want, got.UnknownKinds); diff != "" {
		t.Error(diff)
	}
	if state := s.end("finish", wire.Finish{AttemptRef: task.Ref()}); state != ledger.StateSucceeded {
		t.Errorf("the task is %s", state)
	}

	// The first call of a session ends early, and the next ones wait.
	limited := askFor(2, "coupons.send")
	limited.Wait = new(50.0)
	begun := time.Now()
	got = hinted("limited", limited)
	if d := time.Since(begun); len(got.UnknownKinds) != 1 || got.UnknownKinds[0].Similar != nil || d >= 50*time.Second {
		t.Errorf("%+v after %s", got, d)
	}
	time.AfterFunc(300*time.Millisecond, func() { s.enqueue("coupons.send/1", `1`) })
	got = decode[wire.Asked](s.server, s.post("limited", "/v1/work", limited), http.StatusOK)
	if len(got.Tasks) != 1 || len(got.UnknownKinds) > 0 {
		t.Errorf("the first task of the kind: %+v", got)
	}
}
