package api_test

import (
	"encoding/json"
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

// serveTwice starts two processes' servers of one ledger, with the same tokens.
func serveTwice(t *testing.T, term time.Duration) (here, there *workServer) {
	t.Helper()
	here = serveWork(t, term)
	there = serveMoreWork(t, here.db, here.nats, term)
	there.tokens = here.tokens
	return here, there
}

// awaitStart waits until the start of an attempt is recorded.
func (s *workServer) awaitStart(key string) { s.awaitState(key, ledger.StateRunning) }

// Any process accepts the outcome of an attempt, before its start is recorded and after. The same outcome again is a
// success in both processes, another one is not.
func TestOutcomeAtAnotherProcess(t *testing.T) {
	t.Parallel()
	here, there := serveTwice(t, 30*time.Second)
	in := 60.0
	for _, test := range []struct {
		name, call string
		isStarted  bool
		guarantee  string
		body       func(wire.AttemptRef) any
		want       ledger.State
		data       string
	}{
		{name: "quick", call: "finish", body: func(a wire.AttemptRef) any {
			return wire.Finish{AttemptRef: a, Result: json.RawMessage(`{"n": 1}`)}
		}, want: ledger.StateSucceeded, data: `"n":`},
		{name: "started", call: "finish", isStarted: true, body: func(a wire.AttemptRef) any {
			return wire.Finish{AttemptRef: a, Result: json.RawMessage(`7`)}
		}, want: ledger.StateSucceeded, data: `"result":7`},
		{name: "failed", call: "fail", isStarted: true, body: func(a wire.AttemptRef) any {
			return wire.Fail{AttemptRef: a, Error: "out of paper", ErrorType: "Paper"}
		}, want: ledger.StateRetrying, data: `out of paper`},
		{name: "failed-quick", call: "fail", body: func(a wire.AttemptRef) any {
			return wire.Fail{AttemptRef: a, Error: "busy", RetryIn: &in}
		}, want: ledger.StateRetrying, data: `busy`},
		{name: "dead", call: "fail", body: func(a wire.AttemptRef) any {
			return wire.Fail{AttemptRef: a, Error: "no", Permanent: true}
		}, want: ledger.StateDead},
		{name: "once", call: "fail", guarantee: "at most once", body: func(a wire.AttemptRef) any {
			return wire.Fail{AttemptRef: a, Error: "unknown"}
		}, want: ledger.StateDead},
		{name: "once-safe", call: "fail", guarantee: "at most once", body: func(a wire.AttemptRef) any {
			return wire.Fail{AttemptRef: a, Error: "nothing has happened", Safe: true}
		}, want: ledger.StateRetrying, data: `nothing has happened`},
		{name: "snoozed", call: "snooze", isStarted: true, body: func(a wire.AttemptRef) any {
			return wire.Snooze{AttemptRef: a, In: &in}
		}, want: ledger.StateScheduled},
	} {
		kind := "a.b"
		if test.guarantee != "" {
			kind = "c.d"
		}
		key := kind + "/" + test.name
		here.enqueue(key, `1`)
		ask := askFor(1, ledger.Kind(kind))
		ask.Guarantee = test.guarantee
		task, _ := here.one(ask)
		if test.isStarted {
			here.awaitStart(key)
		}
		if state := there.end(test.call, test.body(task.Ref())); state != test.want {
			t.Errorf("%s: %s, want %s", test.name, state, test.want)
		}
		newest, err := ledger.NewestOf(t.Context(), here.db, ledgertest.Key(t, key), ledger.NewestOptions{Limit: 1})
		if err != nil || !strings.Contains(string(newest[0].Data), test.data) ||
			!strings.HasPrefix(newest[0].Actor, "a-worker-") || newest[0].Attempt != task.Attempt {
			t.Errorf("%s: %v %+v", test.name, err, newest)
		}
		if test.call != "snooze" && test.want != ledger.StateDead { // both are found by the newest success or failure
			for _, s := range []*workServer{there, here} {
				if state := s.end(test.call, test.body(task.Ref())); state != test.want {
					t.Errorf("%s again: %s, want %s", test.name, state, test.want)
				}
			}
		}
		for _, s := range []*workServer{there, here} {
			p := s.wantEnded(api.Worker, "finish",
				wire.Finish{AttemptRef: task.Ref(), Result: json.RawMessage(`"other"`)})
			if p.State != test.want || !strings.HasPrefix(p.History, "/v1/tasks/") {
				t.Errorf("%s: %+v", test.name, p)
			}
		}
	}
}

// No caller ends an attempt with a fence that was given to another one, or that was changed.
func TestForgedFence(t *testing.T) {
	t.Parallel()
	here, there := serveTwice(t, 30*time.Second)
	_, secret, err := api.CreateToken(t.Context(), here.db, api.TokenOptions{Name: "other", Role: api.Worker})
	if err != nil {
		t.Fatal(err)
	}
	here.tokens["other"] = secret
	here.enqueue("a.b/1", `1`)
	here.enqueue("a.b/2", `1`)
	ask := askFor(1, "a.b")
	ask.Limit = 1
	task, got := here.one(ask)
	ask.Received = got.Batch
	second, _ := here.one(ask)
	there.wantEnded("other", "finish", wire.Finish{AttemptRef: task.Ref()})
	there.wantEnded("other", "progress", wire.ReportProgress{AttemptRef: task.Ref(), Progress: json.RawMessage(`1`)})
	other := second.Ref()
	other.Fence = task.Fence
	there.wantEnded(api.Worker, "finish", wire.Finish{AttemptRef: other})
	for i := range task.Fence {
		forged := task.Ref()
		flip := byte('A')
		if task.Fence[i] == flip {
			flip = 'B'
		}
		forged.Fence = task.Fence[:i] + string(flip) + task.Fence[i+1:]
		if i%7 == 0 {
			there.wantEnded(api.Worker, "finish", wire.Finish{AttemptRef: forged})
		}
	}
	for _, c := range []struct {
		token   api.Role
		session int
	}{{token: "other", session: 1}, {token: api.Worker, session: 2}} {
		beat := decode[wire.Beaten](there.server, there.post(c.token, "/v1/work:heartbeat",
			wire.Heartbeat{Session: session(c.session), Holds: []string{task.Fence}}), http.StatusOK)
		if len(beat.Ended) != 1 || beat.Ended[0].Reason != "unknown" {
			t.Errorf("%+v", beat)
		}
		if n := decode[wire.Released](there.server, there.post(c.token, "/v1/work:release",
			wire.Release{Session: session(c.session), Holds: []string{task.Fence}}), http.StatusOK); n.Released != 0 {
			t.Errorf("%+v", n)
		}
	}
	for _, task := range []wire.Task{task, second} {
		if state := there.end("finish", wire.Finish{AttemptRef: task.Ref()}); state != ledger.StateSucceeded {
			t.Error(state)
		}
	}
}

// Heartbeats at one process hold the attempts that another one has given, and return those that are over.
func TestHeartbeatAtAnotherProcess(t *testing.T) {
	t.Parallel()
	const term = 3 * time.Second // of four tasks, each started before the first heartbeat
	here, there := serveTwice(t, term)
	for _, id := range []string{"held", "cancelled", "timeout", "released"} {
		here.enqueue("a.b/"+id, `1`)
	}
	tasks := map[string]wire.Task{}
	last := time.Now()
	ask := askFor(1, "a.b")
	ask.Limit, ask.Timeout = 1, 12
	for range 4 {
		task, got := here.one(ask)
		ask.Received = got.Batch
		tasks[string(task.BizID)] = task
		here.awaitStart("a.b/" + string(task.BizID))
	}
	beat := func(ids ...string) map[string]string {
		var holds []string
		for _, id := range ids {
			holds = append(holds, tasks[id].Fence)
		}
		ended := map[string]string{}
		for _, e := range there.beat(1, holds...) {
			ended[string(e.BizID)] = e.Reason
		}
		return ended
	}
	held := func(ids ...string) {
		t.Helper()
		now := time.Now()
		var all []string
		for id, reason := range beat(ids...) {
			all = append(all, id+" "+reason)
		}
		wantHeld(t, all, last, term)
		last = now
	}
	held("held", "cancelled", "timeout", "released")
	if n := decode[wire.Released](there.server, there.post(api.Worker, "/v1/work:release", wire.Release{
		Session: session(1), Holds: []string{tasks["released"].Fence}}), http.StatusOK); n.Released != 1 {
		t.Errorf("%+v", n)
	}
	ask.Session, ask.Received = session(2), ""
	if again, _ := here.one(ask); again.BizID != "released" || again.Attempt != 2 {
		t.Errorf("%+v", again)
	}
	here.call(api.Operator, "DELETE", client.Path(ledgertest.Key(t, "a.b/cancelled")), "")
	if ended := beat("held", "cancelled", "timeout"); ended["cancelled"] != "cancelled" || len(ended) != 1 {
		t.Errorf("ended %v", ended)
	}
	for begun := time.Now(); time.Since(begun) < 2*term; time.Sleep(term / 10) {
		held("held", "timeout")
	}
	if state := there.end("finish", wire.Finish{AttemptRef: tasks["held"].Ref()}); state != ledger.StateSucceeded {
		t.Error(state)
	}
	var ended map[string]string
	for begun := time.Now(); len(ended) == 0 && time.Since(begun) < time.Minute; time.Sleep(term / 10) {
		ended = beat("timeout")
	}
	if ended["timeout"] != "timeout" {
		t.Errorf("ended %v", ended)
	}
	here.awaitState("a.b/timeout", ledger.StateRetrying)
}

// Progress that another process receives does not end the attempt.
func TestProgressAtAnotherProcess(t *testing.T) {
	t.Parallel()
	here, there := serveTwice(t, 30*time.Second)
	here.enqueue("a.b/1", `1`)
	task, _ := here.one(askFor(1, "a.b"))
	here.awaitStart("a.b/1")
	report := wire.ReportProgress{AttemptRef: task.Ref(), Progress: json.RawMessage(`{"percent": 4}`)}
	there.end("progress", report)
	here.end("progress", report)
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		newest, err := ledger.NewestOf(t.Context(), here.db, ledgertest.Key(t, "a.b/1"), ledger.NewestOptions{Limit: 1})
		if err != nil || time.Since(begun) > time.Minute {
			t.Fatalf("no report: %v %v", newest, err)
		}
		if newest[0].Type == ledger.EventProgressed {
			break
		}
	}
	if state := there.end("finish", wire.Finish{AttemptRef: task.Ref()}); state != ledger.StateSucceeded {
		t.Error(state)
	}
}

// An answer that one process has sent and the worker has not read is given again by that process, although the worker
// has read an answer of another process since.
func TestLostAnswerOfOneProcess(t *testing.T) {
	t.Parallel()
	here, there := serveTwice(t, 30*time.Second)
	none := 0.0
	ask := askFor(1, "a.b")
	here.enqueue("a.b/1", `1`)
	lost, _ := here.one(ask)
	there.enqueue("a.b/2", `1`)
	second, got := there.one(ask)
	ask.Received = got.Batch
	again, got := here.one(ask)
	if !again.Again || again.Fence != lost.Fence {
		t.Errorf("got %+v, want %+v again", again, lost)
	}
	ask.Received, ask.Wait = got.Batch, &none
	for _, s := range []*workServer{there, here} {
		if got := s.ask(ask); len(got.Tasks) > 0 || got.Batch != ask.Received {
			t.Errorf("both answers were read, got %+v", got)
		}
	}
	here.end("finish", wire.Finish{AttemptRef: again.Ref()})
	there.end("finish", wire.Finish{AttemptRef: second.Ref()})
}

// After a restore that has lost commits, a task may be enqueued again with the key and versions that a fence names.
// The fence is of the lost events.
func TestFenceOfLostEvents(t *testing.T) {
	t.Parallel()
	here, there := serveWork(t, 30*time.Second), serveWork(t, 30*time.Second) // there: the ledger after the restore
	here.enqueue("a.b/1", `1`)
	old, _ := here.one(askFor(1, "a.b"))
	var key []byte
	if err := here.owner().QueryRow(t.Context(), "select key from taskledger.fence_key").Scan(&key); err != nil {
		t.Fatal(err)
	}
	_, err := there.owner().Exec(t.Context(), "insert into taskledger.fence_key (key) values ($1)", key)
	if err != nil {
		t.Fatal(err)
	}
	there.enqueue("a.b/1", `2`)
	refused := func() {
		t.Helper()
		for call, body := range map[string]any{
			"finish":   wire.Finish{AttemptRef: old.Ref()},
			"fail":     wire.Fail{AttemptRef: old.Ref(), Error: "old"},
			"progress": wire.ReportProgress{AttemptRef: old.Ref(), Progress: json.RawMessage(`1`)},
		} {
			there.wantEnded(api.Worker, call, body)
		}
		twice := wire.FinishMany{Tasks: []wire.Finish{{AttemptRef: old.Ref()}, {AttemptRef: old.Ref()}}}
		answer := there.post(api.Worker, "/v1/work:finish", twice)
		many := decode[wire.Tasks[wire.Finished[client.Problem]]](there.server, answer, http.StatusOK)
		for _, one := range many.Tasks {
			if one.Problem == nil || one.Problem.Code != "attempt_ended" {
				t.Errorf("%+v", one)
			}
		}
		held := decode[wire.Beaten](there.server, there.post(api.Worker, "/v1/work:heartbeat",
			wire.Heartbeat{Session: session(1), Holds: []string{old.Fence}}), http.StatusOK)
		if len(held.Ended) != 1 || held.Ended[0].Reason != "unknown" {
			t.Errorf("%+v", held)
		}
		released := decode[wire.Released](there.server, there.post(api.Worker, "/v1/work:release",
			wire.Release{Session: session(1), Holds: []string{old.Fence}}), http.StatusOK)
		if released.Released != 0 {
			t.Errorf("%+v", released)
		}
	}
	refused()
	task, _ := there.one(askFor(1, "a.b"))
	if string(task.Args) != `2` || task.Attempt != 1 {
		t.Errorf("%+v", task)
	}
	there.awaitStart("a.b/1")
	refused()
	there.end("finish", wire.Finish{AttemptRef: task.Ref()})
}
