package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/wire"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A fail-over may lose commits, and with them a task at work. Its worker drops it: a client stops after 404.
func TestOutcomeOfALostTask(t *testing.T) {
	t.Parallel()
	here, there := serveWork(t, 30*time.Second), serveWork(t, 30*time.Second) // there: the ledger after the fail-over
	here.enqueue("a.b/1", `1`)
	task, _ := here.one(askFor(1, "a.b"))
	var key []byte
	if err := here.owner().QueryRow(t.Context(), "select key from taskledger.fence_key").Scan(&key); err != nil {
		t.Fatal(err)
	}
	_, err := there.owner().Exec(t.Context(), "insert into taskledger.fence_key (key) values ($1)", key)
	if err != nil {
		t.Fatal(err)
	}
	in := 1.0
	for call, body := range map[string]any{
		"finish":   wire.Finish{AttemptRef: task.Ref()},
		"fail":     wire.Fail{AttemptRef: task.Ref(), Error: "lost"},
		"snooze":   wire.Snooze{AttemptRef: task.Ref(), In: &in},
		"progress": wire.ReportProgress{AttemptRef: task.Ref(), Progress: json.RawMessage(`1`)},
	} {
		if p := there.wantEnded(api.Worker, call, body); p.State != "" || p.History != "" {
			t.Errorf("%s: %+v", call, p)
		}
	}
	forged := wire.Finish{AttemptRef: task.Ref()}
	forged.Fence = "x"
	there.wantProblem(there.post(api.Worker, "/v1/work:finish", forged), http.StatusNotFound, "unknown_task")
}

// Another process accepts the outcome of an attempt, however its task became available, before its start is recorded
// and after.
func TestOutcomeElsewhereHoweverAvailable(t *testing.T) {
	t.Parallel()
	here, there := serveTwice(t, 30*time.Second)
	soon, none, n := 60.0, 0.0, 0
	for _, isStarted := range []bool{false, true} {
		for _, how := range []string{
			"retry", "retry-in", "snooze", "delayed", "released", "rerun", "line", "priority", "given back",
		} {
			n++
			key := fmt.Sprintf("a.k%d/%s", n, how)
			kind := ledger.Kind(fmt.Sprintf("a.k%d", n))
			ask := askFor(n%usedSessions+1, kind)
			get := func() wire.Task {
				t.Helper()
				got := here.ask(ask)
				if len(got.Tasks) != 1 {
					t.Fatalf("%s: %+v; %+v", how, got, here.task(key))
				}
				ask.Received = got.Batch
				return got.Tasks[0]
			}
			o := &ledger.EnqueueOptions{}
			switch how {
			case "delayed":
				o.RunIn = time.Minute
			case "line":
				o.OrderKey = "line"
				first := ledgertest.Key(t, fmt.Sprintf("a.k%d/first", n))
				if _, err := ledger.Enqueue(t.Context(), here.db, first, []byte(`1`), o); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := ledger.Enqueue(t.Context(), here.db, ledgertest.Key(t, key), []byte(`1`), o); err != nil {
				t.Fatal(err)
			}
			change := func(verb, body string) {
				t.Helper()
				a := here.call(api.Operator, "POST", client.Path(ledgertest.Key(t, key))+":"+verb, body)
				if a.status != http.StatusOK {
					t.Errorf("%s: %d %s", how, a.status, a.body)
				}
			}
			switch how {
			case "delayed":
				change("release", `{}`)
			case "priority":
				change("reschedule", `{"priority": 1}`)
				change("release", `{}`)
			}
			task := get()
			switch how {
			case "retry":
				here.end("fail", wire.Fail{AttemptRef: task.Ref(), Error: "x", RetryIn: &none})
			case "retry-in":
				here.end("fail", wire.Fail{AttemptRef: task.Ref(), Error: "x", RetryIn: &soon})
			case "snooze":
				here.end("snooze", wire.Snooze{AttemptRef: task.Ref(), In: &soon})
			case "released":
				here.end("fail", wire.Fail{AttemptRef: task.Ref(), Error: "x", Permanent: true})
			case "rerun":
				here.end("finish", wire.Finish{AttemptRef: task.Ref()})
				_, err := ledger.Enqueue(t.Context(), here.db, ledgertest.Key(t, key), []byte(`2`),
					&ledger.EnqueueOptions{IfExists: ledger.IfExistsRerun})
				if err != nil {
					t.Fatal(err)
				}
			case "line":
				here.end("finish", wire.Finish{AttemptRef: task.Ref()})
			case "given back":
				given := wire.Release{Session: ask.Session, Holds: []string{task.Fence}}
				here.post(api.Worker, "/v1/work:release", given)
			}
			switch how {
			case "retry-in", "snooze", "released": // no scheduler runs here
				change("release", `{}`)
			}
			if how != "delayed" && how != "priority" {
				task = get()
			}
			if isStarted {
				here.awaitStart(key)
			}
			result := json.RawMessage(`{"n": 1.0, "e": 1e2, "s": "\u00e9<>"}`)
			done := wire.Finish{AttemptRef: task.Ref(), Result: result}
			for i, s := range []*workServer{there, there, here} {
				a := s.post(api.Worker, "/v1/work:finish", done)
				if a.status != http.StatusOK {
					t.Errorf("%s, started %v, call %d: %d %s", how, isStarted, i, a.status, a.body)
				}
			}
		}
	}
}

// The same outcome again is a success, whatever it is and whichever process gets it.
func TestSameOutcomeAgain(t *testing.T) {
	t.Parallel()
	here, there := serveTwice(t, 30*time.Second)
	in := 60.0
	n := 0
	for _, test := range []struct {
		name, call string
		body, not  func(wire.AttemptRef) any
		want       ledger.State
	}{
		{name: "dead", call: "fail", body: func(a wire.AttemptRef) any {
			return wire.Fail{AttemptRef: a, Error: "no", Permanent: true}
		}, not: func(a wire.AttemptRef) any {
			return wire.Fail{AttemptRef: a, Error: "another", Permanent: true}
		}, want: ledger.StateDead},
		{name: "snoozed", call: "snooze", body: func(a wire.AttemptRef) any {
			return wire.Snooze{AttemptRef: a, In: &in}
		}, want: ledger.StateScheduled},
		{name: "snoozed-until", call: "snooze", body: func(a wire.AttemptRef) any {
			return wire.Snooze{AttemptRef: a, At: time.Now().Add(time.Hour).UTC().Truncate(time.Hour)}
		}, want: ledger.StateScheduled},
	} {
		for i, first := range []*workServer{here, there} {
			n++
			key := fmt.Sprintf("a.s%d/%s", n, test.name)
			here.enqueue(key, `1`)
			task, _ := here.one(askFor(n, ledger.Kind(fmt.Sprintf("a.s%d", n))))
			here.awaitStart(key)
			for j, s := range []*workServer{first, there, here} {
				a := s.post(api.Worker, "/v1/work:"+test.call, test.body(task.Ref()))
				if a.status != http.StatusOK || decode[wire.Outcome](s.server, a, 200).State != test.want {
					t.Errorf("%s, %d, call %d: %d %s", test.name, i, j, a.status, a.body)
				}
			}
			if test.not != nil {
				for _, s := range []*workServer{there, here} {
					s.wantEnded(api.Worker, test.call, test.not(task.Ref()))
				}
			}
			there.wantEnded(api.Worker, "finish", wire.Finish{AttemptRef: task.Ref()})
		}
	}
}
