package api_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/wire"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A fence is of one run: attempts are counted from 1 in each run, and a worker's name stays the same.
func TestFenceOfAnEarlierRun(t *testing.T) {
	t.Parallel()
	here, there := serveTwice(t, 30*time.Second)
	for i, test := range []struct {
		name       string
		isReported bool // the attempt of the later run has reported progress
	}{{name: "started"}, {name: "progressed", isReported: true}} {
		key := "a.b/" + test.name
		here.enqueue(key, `1`)
		old, _ := here.one(askFor(2*i+1, "a.b"))
		here.awaitStart(key)
		here.call(api.Operator, "DELETE", client.Path(ledgertest.Key(t, key)), "")
		here.awaitState(key, ledger.StateCancelled)
		_, err := ledger.Enqueue(t.Context(), here.db, ledgertest.Key(t, key), []byte(`2`),
			&ledger.EnqueueOptions{IfExists: ledger.IfExistsRerun})
		if err != nil {
			t.Fatal(err)
		}
		task, _ := here.one(askFor(2*i+2, "a.b"))
		if task.Attempt != old.Attempt || string(task.Args) != `2` {
			t.Fatalf("attempt %d with %s, want attempt %d with 2", task.Attempt, task.Args, old.Attempt)
		}
		here.awaitStart(key)
		if test.isReported {
			here.end("progress", wire.ReportProgress{AttemptRef: task.Ref(), Progress: json.RawMessage(`1`)})
			for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
				newest, err := ledger.NewestOf(t.Context(), here.db, ledgertest.Key(t, key),
					ledger.NewestOptions{Limit: 1})
				if err != nil || time.Since(begun) > time.Minute {
					t.Fatalf("no report: %v %v", newest, err)
				}
				if newest[0].Type == ledger.EventProgressed {
					break
				}
			}
		}
		late := wire.Finish{AttemptRef: old.Ref(), Result: json.RawMessage(`"old"`)}
		for _, s := range []*workServer{here, there} {
			beat := decode[wire.Beaten](s.server, s.post(api.Worker, "/v1/work:heartbeat",
				wire.Heartbeat{Session: session(2*i + 1), Holds: []string{old.Fence}}), 200)
			if len(beat.Ended) != 1 {
				t.Errorf("%s: the attempt of the earlier run is held: %+v", test.name, beat)
			}
			s.wantEnded(api.Worker, "finish", late)
			s.wantEnded(api.Worker, "progress",
				wire.ReportProgress{AttemptRef: old.Ref(), Progress: json.RawMessage(`1`)})
			s.wantEnded(api.Worker, "fail", wire.Fail{AttemptRef: old.Ref(), Error: "old"})
		}
		if state := there.end("finish", wire.Finish{AttemptRef: task.Ref(), Result: json.RawMessage(`"old"`)}); state !=
			ledger.StateSucceeded {
			t.Error(state)
		}
		for _, s := range []*workServer{here, there} {
			s.wantEnded(api.Worker, "finish", late) // although the later run has the same result
		}
	}
}

// A failure whose text was shortened is the same failure when it is sent again.
func TestLongFailureAgain(t *testing.T) {
	t.Parallel()
	here, there := serveTwice(t, 30*time.Second)
	sessions := 0
	for _, test := range []struct{ name, text string }{
		{"long", strings.Repeat("é", 5000)}, {"control", "a\x00b\nc"},
	} {
		for i, s := range []*workServer{here, there} {
			id := test.name + string(rune('0'+i))
			here.enqueue("a.b/"+id, `1`)
			sessions++
			ask := askFor(sessions, "a.b")
			task, got := here.one(ask)
			for string(task.BizID) != id { // one that has ended elsewhere a moment ago, or is retried
				ask.Received = got.Batch
				task, got = here.one(ask)
			}
			fail := wire.Fail{AttemptRef: task.Ref(), Error: test.text}
			for _, at := range []*workServer{s, there, here} {
				if state := at.end("fail", fail); state != ledger.StateRetrying {
					t.Errorf("%s: %s", test.name, state)
				}
			}
		}
	}
}
