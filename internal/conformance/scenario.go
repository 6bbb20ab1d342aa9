package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/wire"
	"github.com/taskledger/taskledger/ledger"
)

// scenario is a test of a client.
type scenario struct {
	name string
	run  func(b *bench)
}

var scenarios = []scenario{
	{"results of every type", results},
	{"unicode keys", unicodeKeys},
	{"large args", largeArgs},
	{"credit", credit},
	{"failures", failures},
	{"progress", reports},
	{"a lost answer with tasks", lostAnswer},
	{"a task that comes again", duplicate},
	{"a task under a newer fence", newerFence},
	{"a newer fence after the refusal", newerFenceLater},
	{"a kind without tasks", unknownKind},
	{"a lost answer to an outcome", lostOutcome},
	{"a server that is unavailable", unavailable},
	{"an attempt that has ended", endedAttempt},
	{"a refused result", refusedResult},
	{"heartbeats", heartbeats},
	{"cancelled while running", func(b *bench) { endedWhileRunning(b, "cancelled") }},
	{"deadline while running", func(b *bench) { endedWhileRunning(b, "deadline") }},
	{"clocks that differ", clocks},
	{"killed and started again", killed},
	{"shutdown with a quick task", quickShutdown},
	{"shutdown with a slow task", slowShutdown},
	{"refused by the server", refused},
}

func results(b *bench) {
	for i, text := range []string{`{"a": [1, 2.5, true, null]}`, `[]`, `"text"`, `0`, `false`, `null`, `""`} {
		id := fmt.Sprint("value-", i)
		b.add(id, `{"do": "return", "value": `+text+`}`)
		var want any
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			panic(err)
		}
		if got := b.result(id); !reflect.DeepEqual(got, want) {
			b.failf("result %v, want %s", got, text)
		}
	}
}

func unicodeKeys(b *bench) {
	for _, id := range []string{"ключ/%2F?#&=", "𝄞 \"\\ 漢字", "é\u0301 ", "a:b", "..", strings.Repeat("ü", 127)} {
		b.add(id, `{"do": "echo", "text": "\u0001\ud834\udd1e ä"}`)
		got, _ := b.result(id).(map[string]any)
		args, _ := got["args"].(map[string]any)
		if got["biz_id"] != id || got["kind"] != kind || got["attempt"] != 1.0 || args["text"] != "\x01𝄞 ä" {
			b.failf("the handler has got %v for the biz_id %q", got, id)
		}
	}
}

func largeArgs(b *bench) {
	text := strings.Repeat("x", 250_000)
	b.add("large", `{"do": "echo", "text": "`+text+`"}`)
	got, _ := b.result("large").(map[string]any)
	if args, _ := got["args"].(map[string]any); args["text"] != text {
		b.failf("the handler has got other args")
	}
}

func credit(b *bench) {
	for i := range 3 * slots {
		b.add(fmt.Sprint("task-", i), `{"do": "sleep", "seconds": 0.2, "value": 1}`)
	}
	most := 0
	b.await("all tasks are finished", func() bool {
		b.mu.Lock()
		most = max(most, len(b.given))
		b.mu.Unlock()
		return len(b.found("finish", "")) == 3*slots
	})
	if most < slots || most > 2*slots { // a slot may be free before the outcome has arrived
		b.failf("%d tasks were at work at a time, want %d", most, slots)
	}
}

func failures(b *bench) {
	b.add("plain", `{"do": "fail", "error": "out of paper é"}`)
	b.add("permanent", `{"do": "fail", "error": "no such printer", "permanent": true}`)
	b.add("retry", `{"do": "fail", "error": "busy", "retry_in": 90}`)
	b.add("snooze", `{"do": "snooze", "seconds": 60}`)
	get := func(call, id string) (f wire.Fail) {
		if err := json.Unmarshal(b.awaitCalls(call, id, 1)[0].body, &f); err != nil {
			b.stop("%v", err)
		}
		return f
	}
	if f := get("fail", "plain"); !strings.Contains(f.Error, "out of paper é") || f.Permanent || f.RetryIn != nil {
		b.failf("a failure: %+v", f)
	}
	if f := get("fail", "permanent"); !f.Permanent || !strings.Contains(f.Error, "no such printer") {
		b.failf("a permanent failure: %+v", f)
	}
	if f := get("fail", "retry"); f.RetryIn == nil || *f.RetryIn != 90 {
		b.failf("a failure with a delay: %+v", f)
	}
	var s wire.Snooze
	err := json.Unmarshal(b.awaitCalls("snooze", "snooze", 1)[0].body, &s)
	if err != nil || s.In == nil || *s.In != 60 {
		b.failf("a snooze: %+v %v", s, err)
	}
}

func reports(b *bench) {
	b.add("progress", `{"do": "progress", "value": {"percent": 40}}`)
	if got := string(b.awaitCalls("progress", "progress", 1)[0].body); !strings.Contains(got, "percent") {
		b.failf("progress %s", got)
	}
	b.result("progress")
}

func lostAnswer(b *bench) {
	b.mu.Lock()
	b.dropped = 2
	b.mu.Unlock()
	for _, id := range []string{"one", "two"} {
		b.add(id, `{"do": "count"}`)
		if got := b.result(id); got != 1.0 {
			b.failf("the handler has begun %v times", got)
		}
	}
}

func duplicate(b *bench) {
	b.add("task", `{"do": "sleep", "seconds": 2, "value": "x"}`)
	b.await("the task is given", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.given) == 1 })
	asks := len(b.found("ask", ""))
	b.mu.Lock()
	b.again = true
	b.mu.Unlock()
	b.add("wakes", `{"do": "return", "value": 1}`) // the call that waits gets this one, and the next the repeated task
	b.result("wakes")
	b.await("another request", func() bool { return len(b.found("ask", "")) > asks+1 })
	b.result("task")
	time.Sleep(500 * time.Millisecond)
	if n := len(b.found("finish", "task")); n != 1 {
		b.failf("the task was finished %d times", n)
	}
}

// newerFence gives a task under another fence while its outcome is on the way.
func newerFence(b *bench) {
	for _, test := range []struct {
		id      string
		version ledger.Version // of the task when it comes again
		answer  int            // to the first outcome
		want    float64        // how often the handler has begun
		fences  int            // under which outcomes were sent
	}{
		{id: "refused", version: 1, answer: http.StatusConflict, want: 1, fences: 2},
		{id: "accepted", version: 1, answer: http.StatusOK, want: 1, fences: 1},
		{id: "next", version: 3, answer: http.StatusOK, want: 2, fences: 2},
	} {
		b.mu.Lock()
		b.busy["finish "+test.id] = true
		b.mu.Unlock()
		b.add(test.id, `{"do": "count"}`)
		first := b.awaitCalls("finish", test.id, 1)[0]
		b.mu.Lock()
		t := b.given[first.fence]
		t.Version, t.Attempt = test.version, 2
		b.addTask(t)
		newer := b.queue[len(b.queue)-1].Fence
		b.mu.Unlock()
		b.await("a heartbeat names the newer fence", func() bool {
			return slices.ContainsFunc(b.found("heartbeat", ""), func(c call) bool {
				return slices.Contains(c.holds, newer)
			})
		})
		b.mu.Lock()
		b.answers["finish "+test.id] = []reply{{status: test.answer, code: "attempt_ended"}}
		delete(b.busy, "finish "+test.id)
		b.mu.Unlock()
		b.await("the last outcome is sent", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.answers["finish "+test.id]) == 0
		})
		b.add("after-"+test.id, `{"do": "return", "value": 1}`)
		b.result("after-" + test.id)
		time.Sleep(300 * time.Millisecond)
		fences, begun := map[string]bool{}, 0.0
		for _, c := range b.found("finish", test.id) {
			var sent struct {
				Result float64 `json:"result"`
			}
			if err := json.Unmarshal(c.body, &sent); err != nil {
				b.stop("%s: %v", c.body, err)
			}
			fences[c.fence], begun = true, max(begun, sent.Result)
		}
		if begun != test.want || len(fences) != test.fences {
			b.failf("%s: the handler has begun %v times, want %v; outcomes under %d fences, want %d",
				test.id, begun, test.want, len(fences), test.fences)
		}
	}
}

// newerFenceLater gives a task under another fence after the older one was refused, or has ended while its outcome was
// on the way.
func newerFenceLater(b *bench) {
	for _, test := range []struct {
		id      string
		version ledger.Version // of the task when it comes again
		reason  string         // of the older fence's end, by an answer to a heartbeat. None: the outcome is refused
		want    float64        // how often the handler has begun
	}{
		{id: "refused", version: 1, want: 1},
		{id: "fenced", version: 1, reason: "fenced", want: 1},
		{id: "next", version: 3, want: 2},
	} {
		key := "finish " + test.id
		b.mu.Lock()
		b.busy[key] = test.reason != ""
		if test.reason == "" {
			b.answers[key] = []reply{{status: http.StatusConflict, code: "attempt_ended"}}
		}
		b.mu.Unlock()
		b.add(test.id, `{"do": "count"}`)
		older := b.awaitCalls("finish", test.id, 1)[0].fence
		if test.reason != "" {
			b.mu.Lock()
			b.ended[older] = test.reason
			named := len(b.calls)
			b.mu.Unlock()
			b.await("a heartbeat names the older fence", func() bool {
				b.mu.Lock()
				defer b.mu.Unlock()
				return slices.ContainsFunc(b.calls[named:], func(c call) bool {
					return slices.Contains(c.holds, older)
				})
			})
		}
		time.Sleep(300 * time.Millisecond) // the client has read the answer
		b.mu.Lock()
		t := b.given[older]
		t.Version, t.Attempt = test.version, 2
		b.addTask(t)
		newer := b.queue[len(b.queue)-1].Fence
		b.answers[key] = []reply{{status: http.StatusOK}}
		delete(b.busy, key)
		b.mu.Unlock()
		var last struct {
			Result float64 `json:"result"`
		}
		b.await("an outcome under the newer fence", func() bool {
			return slices.ContainsFunc(b.found("finish", test.id), func(c call) bool {
				return c.fence == newer && json.Unmarshal(c.body, &last) == nil
			})
		})
		if last.Result != test.want {
			b.failf("%s: the handler has begun %v times, want %v", test.id, last.Result, test.want)
		}
	}
}

// unknownKind gives the client a hint that its kind never had a task, which it may not know.
func unknownKind(b *bench) {
	b.await("a request for tasks", func() bool { return len(b.found("ask", "")) > 0 })
	b.mu.Lock()
	b.hints = true
	b.wakeUp()
	b.mu.Unlock()
	b.await("the answer with the hint", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return !b.hints })
	b.add("first", `{"do": "return", "value": 1}`)
	b.result("first")
}

func lostOutcome(b *bench) {
	for _, test := range []struct{ call, args string }{
		{"finish", `{"do": "return", "value": 7}`}, {"fail", `{"do": "fail", "error": "x"}`},
	} {
		b.mu.Lock()
		b.answers[test.call+" "+test.call] = []reply{{}, {}}
		b.mu.Unlock()
		b.add(test.call, test.args)
		calls := b.awaitCalls(test.call, test.call, 3)
		for _, c := range calls {
			if string(c.body) != string(calls[0].body) {
				b.failf("the repeated call differs: %s, %s", calls[0].body, c.body)
			}
		}
	}
}

func unavailable(b *bench) {
	b.mu.Lock()
	b.answers["finish task"] = []reply{{status: http.StatusServiceUnavailable, code: "unavailable", retryAfter: 1}}
	b.mu.Unlock()
	b.add("task", `{"do": "return", "value": 7}`)
	calls := b.awaitCalls("finish", "task", 2)
	if d := calls[1].at.Sub(calls[0].at); d < 900*time.Millisecond {
		b.failf("the call was repeated after %s, before Retry-After", d)
	}
}

func endedAttempt(b *bench) {
	b.mu.Lock()
	b.answers["finish task"] = []reply{{status: http.StatusConflict, code: "attempt_ended"}}
	b.mu.Unlock()
	b.add("task", `{"do": "return", "value": 7}`)
	b.awaitCalls("finish", "task", 1)
	b.mu.Lock()
	clear(b.given)
	b.mu.Unlock()
	b.add("next", `{"do": "return", "value": 7}`)
	b.result("next")
	time.Sleep(500 * time.Millisecond)
	if n := len(b.found("finish", "task")) + len(b.found("fail", "task")); n != 1 {
		b.failf("%d outcomes of an attempt that has ended", n)
	}
}

func refusedResult(b *bench) {
	for i, r := range []reply{
		{status: http.StatusBadRequest, code: "invalid"}, {status: http.StatusRequestEntityTooLarge, code: "too_large"},
	} {
		id := fmt.Sprint("task-", i)
		b.mu.Lock()
		b.answers["finish "+id] = []reply{r, r, r}
		b.mu.Unlock()
		b.add(id, `{"do": "large", "bytes": 200000}`)
		b.awaitCalls("fail", id, 1)
	}
}

func heartbeats(b *bench) {
	b.add("task", `{"do": "sleep", "seconds": 2, "value": 1}`)
	b.result("task")
	n := 0
	for _, c := range b.found("heartbeat", "") {
		if len(c.holds) > 0 {
			n++
		}
		if slices.ContainsFunc(c.holds, func(f string) bool { return !strings.HasPrefix(f, "fence-") }) {
			b.failf("holds %v", c.holds)
		}
	}
	if n < 3 {
		b.failf("%d heartbeats in 2 s, every %s", n, beatEvery)
	}
}

func endedWhileRunning(b *bench, reason string) {
	for i := range slots {
		b.add(fmt.Sprint("task-", i), `{"do": "sleep", "seconds": 600, "value": 1}`)
	}
	b.await("all tasks are given", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.given) == slots })
	b.mu.Lock()
	for f := range b.given {
		b.ended[f] = reason
	}
	b.mu.Unlock()
	b.add("next", `{"do": "return", "value": 1}`) // a slot must be free
	b.result("next")
	for i := range slots {
		id := fmt.Sprint("task-", i)
		if len(b.found("finish", id))+len(b.found("fail", id)) > 0 {
			b.failf("an outcome of an attempt that has ended")
		}
	}
}

func clocks(b *bench) {
	now := time.Now()
	for i, t := range []wire.Task{
		{AvailableAt: now.Add(-100 * 365 * 24 * time.Hour), FinishBy: now.Add(-time.Hour)},
		{AvailableAt: now.Add(24 * time.Hour), FinishBy: now.Add(48 * time.Hour)},
	} {
		t.Kind, t.BizID, t.Version, t.Attempt, t.Priority, t.Timeout = kind, "task", 1, 1, 3, 900
		t.Args = json.RawMessage(`{"do": "return", "value": 1}`)
		b.mu.Lock()
		b.addTask(t)
		b.mu.Unlock()
		b.awaitCalls("finish", "task", i+1)
	}
}

func killed(b *bench) {
	b.add("task", `{"do": "sleep", "seconds": 600, "value": 1}`)
	b.await("the task is given", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.given) == 1 })
	first := b.found("ask", "")[0].session
	b.process.kill()
	b.mu.Lock()
	b.killed = first
	clear(b.given)
	b.mu.Unlock()
	b.start()
	b.add("next", `{"do": "return", "value": 1}`)
	b.result("next")
	asks := b.found("ask", "")
	if asks[len(asks)-1].session == first {
		b.failf("the session is the same after a start")
	}
}

func quickShutdown(b *bench) {
	b.add("task", `{"do": "sleep", "seconds": 2, "value": 1}`)
	b.await("the client holds the task", func() bool { // it may not have read the answer before
		return slices.ContainsFunc(b.found("heartbeat", ""), func(c call) bool { return len(c.holds) > 0 })
	})
	if code := b.terminate(); code != 0 {
		b.failf("exit code %d", code)
	}
	if len(b.found("finish", "task")) != 1 {
		b.failf("the task was not finished at the shutdown")
	}
	if len(b.found("release", "")) == 0 {
		b.failf("the session was not released at the shutdown")
	}
}

func slowShutdown(b *bench) {
	b.add("task", `{"do": "sleep", "seconds": 600, "value": 1}`)
	b.await("the task is given", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.given) == 1 })
	if code := b.terminate(); code != 0 {
		b.failf("exit code %d", code)
	}
	if len(b.found("release", "")) == 0 {
		b.failf("the task was not released at the shutdown")
	}
	if n := len(b.found("finish", "task")); n > 0 {
		b.failf("a task that has not ended was finished")
	}
}

func refused(b *bench) {
	b.await("a request for tasks", func() bool { return len(b.found("ask", "")) > 0 })
	b.mu.Lock()
	b.refuses = true
	b.mu.Unlock()
	b.add("task", `{"do": "return", "value": 1}`) // the call that waits gets it, and the outcome is refused
	if code := b.exitCode(); code == 0 {
		b.failf("exit code 0 although the server has refused the client")
	}
}
