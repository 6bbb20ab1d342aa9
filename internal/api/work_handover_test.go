package api_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/wire"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A process that ends in order, as in a deploy, ends no attempt that its worker holds: another process has it, records
// its progress and its outcome. A second process that ends keeps the tasks of the first.
func TestDrainLeavesTasksToTheirWorkers(t *testing.T) {
	t.Parallel()
	first, there := serveTwice(t, 30*time.Second)
	second := serveMoreWork(t, there.db, there.nats, 30*time.Second)
	second.tokens = there.tokens
	refs := map[string]wire.AttemptRef{}
	give := func(s *workServer, n int, key, guarantee string) {
		t.Helper()
		s.enqueue(key, `1`)
		kind, _, _ := strings.Cut(key, "/")
		ask := askFor(n, ledger.Kind(kind))
		ask.Guarantee = guarantee
		task, got := s.one(ask)
		s.awaitStart(key)
		refs[key] = task.Ref()
		ask.Received, ask.Wait = got.Batch, new(0.0) // it is read
		s.ask(ask)
	}
	give(first, 1, "a.b/1", "at least once")
	give(first, 1, "c.d/1", "at most once")
	give(first, 2, "a.b/2", "at least once")
	give(second, 1, "e.f/1", "at least once")
	first.enqueue("a.b/lost", `1`)
	lost, _ := first.one(askFor(3, "a.b")) // its answer is not read
	for _, s := range []*workServer{first, second} {
		s.work.Drain()
	}
	if got, _ := there.one(askFor(4, "a.b")); got.BizID != lost.BizID || got.Attempt != 2 {
		t.Errorf("the task of a lost answer: %+v", got)
	}
	if ended := there.beat(1, refs["a.b/1"].Fence, refs["c.d/1"].Fence, refs["e.f/1"].Fence); len(ended) > 0 {
		t.Errorf("ended %+v", ended)
	}
	if ended := there.beat(2, refs["a.b/2"].Fence); len(ended) > 0 {
		t.Errorf("ended %+v", ended)
	}
	ask := askFor(5, "a.b")
	ask.Kinds, ask.Wait = append(ask.Kinds, "e.f"), new(6.0)
	if got := there.ask(ask); len(got.Tasks) > 0 {
		t.Errorf("another worker got %+v", got.Tasks)
	}
	for i := range 3 { // the second comes too early
		there.end("progress", wire.ReportProgress{AttemptRef: refs["a.b/1"], Progress: json.RawMessage(`4`)})
		if i == 1 {
			time.Sleep(1100 * time.Millisecond)
		}
	}
	o := ledger.NewestOptions{Types: []ledger.EventType{ledger.EventProgressed}, Contains: `"progress":4`, Limit: 5}
	reports, err := ledger.NewestOf(t.Context(), there.db, ledgertest.Key(t, "a.b/1"), o)
	if err != nil || len(reports) != 2 {
		t.Errorf("%d reports are recorded, %v", len(reports), err)
	}
	for key, ref := range refs {
		if state := there.end("finish", wire.Finish{AttemptRef: ref}); state != ledger.StateSucceeded {
			t.Errorf("%s: %s", key, state)
		}
	}
}

// A task that a process has left to its worker goes to another worker once that vanishes, with its permit.
func TestWorkerThatVanishesAfterADrain(t *testing.T) {
	t.Parallel()
	const term = 4 * time.Second
	here, there := serveTwice(t, term)
	limit := ledger.StartLimit{Name: "a.b", Kinds: map[ledger.Kind]int{"a.b": 1}, MaxRunning: new(1)}
	if err := ledger.SetStartLimit(t.Context(), here.owner(), limit, "op"); err != nil {
		t.Fatal(err)
	}
	here.enqueue("a.b/1", `1`)
	here.enqueue("a.b/2", `1`)
	ask := askFor(1, "a.b")
	task, _ := here.one(ask)
	here.awaitStart("a.b/" + string(task.BizID))
	drained := make(chan struct{})
	go func() { here.work.Drain(); close(drained) }()
	for isDrained := false; !isDrained; {
		here.beat(1, task.Fence)
		select {
		case <-drained:
			isDrained = true
		case <-time.After(term / 10):
		}
	}
	begun := time.Now()
	there.beat(1, task.Fence)
	var got wire.Task
	for len(got.BizID) == 0 {
		if a := there.ask(askFor(2, "a.b")); len(a.Tasks) > 0 {
			got = a.Tasks[0]
		}
		if time.Since(begun) > time.Minute {
			t.Fatal("no task")
		}
	}
	if time.Since(begun) < term/2 {
		t.Error("the limit is exceeded")
	}
	there.wantEnded(api.Worker, "fail", wire.Fail{AttemptRef: task.Ref(), Error: "x"})
	if state := there.end("finish", wire.Finish{AttemptRef: got.Ref()}); state != ledger.StateSucceeded {
		t.Error(state)
	}
	next, _ := there.one(askFor(2, "a.b"))
	there.end("finish", wire.Finish{AttemptRef: next.Ref()})
}
