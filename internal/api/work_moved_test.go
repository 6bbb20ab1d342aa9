package api_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/remote"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/internal/wire"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// beat sends a heartbeat of a session, and returns the ended attempts.
func (s *workServer) beat(n int, fences ...string) []wire.Ended {
	s.t.Helper()
	return decode[wire.Beaten](s.server, s.post(api.Worker, "/v1/work:heartbeat",
		wire.Heartbeat{Session: session(n), Holds: fences}), http.StatusOK).Ended
}

// wantHeld fails the test if attempts have ended that were held since last. If that is longer than the term ago, the
// machine is too busy for the test.
func wantHeld[T any](t *testing.T, ended []T, last time.Time, term time.Duration) {
	t.Helper()
	if len(ended) > 0 && time.Since(last) > term*9/10 {
		t.Skipf("the machine was busy for %s, longer than the term", time.Since(last))
	}
	if len(ended) > 0 {
		t.Fatalf("%+v after %s", ended, time.Since(last))
	}
}

// actors returns the actors of a task's events.
func (s *workServer) actors(key string) (all []string) {
	s.t.Helper()
	events, err := ledger.NewestOf(s.t.Context(), s.db, ledgertest.Key(s.t, key), ledger.NewestOptions{Limit: 50})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range events {
		all = append(all, e.Actor)
	}
	return all
}

// A process ends, and with it a worker. Another worker of the process reports to two other processes in turn: it keeps
// its own task, and the task of the vanished worker goes to another one.
func TestWorkerThatVanishesWithItsProcess(t *testing.T) {
	t.Parallel()
	const term = 3 * time.Second
	here, there := serveTwice(t, term)
	nc, err := stream.Connect(there.nats)
	if err != nil {
		t.Fatal(err)
	}
	db := widerPool(t, there.db, 8)
	dead, err := remote.New(remote.Config{DB: db, NATS: nc, Term: term, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	var refs []wire.AttemptRef
	for i, key := range []string{"a.b/1", "a.b/2"} {
		there.enqueue(key, `1`)
		got, err := dead.Ask(t.Context(), "a-worker", remote.Ask{Worker: "w", Session: session(i + 1),
			Kinds: []ledger.Kind{"a.b"}, Guarantee: "at least once", Limit: 1, Wait: time.Minute, Timeout: time.Hour})
		if err != nil || len(got.Tasks) != 1 {
			t.Fatal(got, err)
		}
		task := got.Tasks[0]
		refs = append(refs, wire.AttemptRef{
			Kind: task.Kind, BizID: task.BizID, Attempt: task.Attempt, Fence: task.Fence})
		there.awaitStart(key)
	}
	there.end("progress", wire.ReportProgress{AttemptRef: refs[0], Progress: json.RawMessage(`{"percent": 4}`)})
	go db.Close() // the process ends
	nc.Close()
	answers := make(chan wire.Asked, 1)
	go func() { answers <- there.ask(askFor(3, "a.b")) }()
	var got wire.Asked
	for n, last := 0, time.Now(); len(got.Tasks) == 0; n++ {
		now := time.Now()
		wantHeld(t, []*workServer{here, there}[n%2].beat(1, refs[0].Fence), last, term)
		last = now
		select {
		case got = <-answers:
			if len(got.Tasks) == 0 {
				t.Fatal("the vanished worker's task is held")
			}
		case <-time.After(term / 20):
		}
	}
	if task := got.Tasks[0]; task.BizID != "2" || task.Attempt != 2 {
		t.Errorf("got %+v", got.Tasks)
	}
	if actors := here.actors("a.b/1"); !strings.HasPrefix(actors[len(actors)-1], "a-worker-session-") {
		t.Errorf("the attempt has not moved: %v", actors)
	}
	for begun := time.Now(); !strings.Contains(string(here.task("a.b/1").Progress), "90"); { // once a second
		here.end("progress", wire.ReportProgress{AttemptRef: refs[0], Progress: json.RawMessage(`{"percent": 90}`)})
		here.beat(1, refs[0].Fence)
		if time.Since(begun) > time.Minute {
			t.Fatal("no progress is recorded")
		}
	}
	var hidden int
	if err := here.owner().QueryRow(t.Context(), `select count(*) from taskledger.workers w
		where w.worker like '%-session-%'`).Scan(&hidden); err != nil || hidden > 0 {
		t.Errorf("%d leases of sessions among the workers, %v", hidden, err)
	}
	// The vanished worker is back too late.
	if ended := here.beat(2, refs[1].Fence); len(ended) != 1 || ended[0].Reason != "fenced" {
		t.Errorf("ended %+v", ended)
	}
	for _, s := range []*workServer{here, there} {
		s.wantEnded(api.Worker, "finish", wire.Finish{AttemptRef: refs[1]})
		if state := s.end("finish", wire.Finish{AttemptRef: refs[0]}); state != ledger.StateSucceeded {
			t.Error(state)
		}
		s.wantEnded(api.Worker, "fail", wire.Fail{AttemptRef: refs[0], Error: "x"})
	}
	if state := there.end("finish", wire.Finish{AttemptRef: got.Tasks[0].Ref()}); state != ledger.StateSucceeded {
		t.Error(state)
	}
}

// A process that cannot renew its lease for a while loses no attempt whose worker reports to another process.
func TestAttemptMovesFromALiveProcess(t *testing.T) {
	t.Parallel()
	const term = 3 * time.Second
	here, there := serveTwice(t, term)
	here.enqueue("a.b/1", `1`)
	task, _ := here.one(askFor(1, "a.b"))
	here.awaitStart("a.b/1")
	tx, err := here.owner().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Exec(t.Context(), "select from taskledger.lease where name like 'worker/%' for update")
	if err != nil {
		t.Fatal(err)
	}
	last := time.Now()
	held := func(s *workServer) {
		t.Helper()
		now := time.Now()
		wantHeld(t, s.beat(1, task.Fence), last, term)
		last = now
		time.Sleep(term / 20)
	}
	for begun := time.Now(); len(here.actors("a.b/1")) < 3; held(there) {
		if time.Since(begun) > time.Minute {
			t.Fatal("the attempt does not move")
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	isHere := func() bool { return len(here.work.Live("a-worker", session(1), []string{task.Fence})) > 0 }
	for begun := time.Now(); isHere(); held(there) { // until the process has renewed its lease and reads the event
		if time.Since(begun) > time.Minute {
			t.Fatal("the process has not noticed that the attempt has moved")
		}
	}
	held(here)
	if state := here.end("finish", wire.Finish{AttemptRef: task.Ref()}); state != ledger.StateSucceeded {
		t.Error(state)
	}
}
