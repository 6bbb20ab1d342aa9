package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/settings"
	"github.com/taskledger/taskledger/internal/webhooks"
	"github.com/taskledger/taskledger/internal/wire"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/webhook"
)

const pushSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// pushTo runs a pusher of a kind until the test ends.
func (s *workServer) pushTo(kind ledger.Kind, url string, change func(*webhooks.Push)) {
	s.t.Helper()
	secret := filepath.Join(s.t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(pushSecret), 0o600); err != nil {
		s.t.Fatal(err)
	}
	p := webhooks.Push{Kind: kind, Endpoint: webhooks.Endpoint{URL: url, SecretFile: secret,
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}}
	if change != nil {
		change(&p)
	}
	pusher, err := webhooks.NewPusher(webhooks.PusherConfig{DB: s.db, Work: s.work,
		File: webhooks.PushFile{Push: []webhooks.Push{p}}})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- pusher.Run(ctx) }()
	s.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	})
}

// Tasks are sent as signed requests, at most as many at a time as there are slots, and the answers end the attempts.
func TestPush(t *testing.T) {
	t.Parallel()
	s := serveWork(t, 30*time.Second)
	_, secret, err := api.CreateToken(t.Context(), s.db, api.TokenOptions{Name: "push", Role: api.Worker})
	if err != nil {
		t.Fatal(err)
	}
	s.tokens["push"] = secret
	var open, most atomic.Int64
	accepted := make(chan wire.AttemptRef, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := open.Add(1)
		defer open.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		time.Sleep(5 * time.Millisecond)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if id, err := webhook.Verify(r.Header, body, pushSecret); err != nil || !strings.HasPrefix(id, "task_") {
			t.Errorf("%q: %v", id, err)
		}
		var m struct {
			Type string
			Data struct {
				wire.AttemptRef
				Args json.RawMessage `json:"args"`
			}
		}
		if err := json.Unmarshal(body, &m); err != nil || m.Type != "a.pushed" || string(m.Data.Args) != `{"n":1}` {
			t.Errorf("%s: %v", body, err)
		}
		switch m.Data.BizID {
		case "text":
			fmt.Fprint(w, "done")
		case "deep":
			fmt.Fprint(w, strings.Repeat("[", 513)+strings.Repeat("]", 513))
		case "part":
			w.Header().Set("Content-Length", "7")
			fmt.Fprint(w, 12)
		case "later":
			w.WriteHeader(http.StatusAccepted)
			accepted <- m.Data.AttemptRef
		case "bad":
			http.Error(w, "out of paper", http.StatusInternalServerError)
		case "busy":
			w.Header().Set("Retry-After", "7200")
			w.WriteHeader(http.StatusServiceUnavailable)
		case "wrong":
			http.Error(w, "no such printer", http.StatusUnprocessableEntity)
		default:
			fmt.Fprint(w, `{"page": 7}`)
		}
	}))
	t.Cleanup(server.Close)
	s.pushTo("a.pushed", server.URL, func(p *webhooks.Push) { p.Slots = 2 })
	for _, id := range []string{"json", "text", "deep", "part", "later", "bad", "busy", "wrong", "1", "2", "3", "4"} {
		s.enqueue("a.pushed/"+id, `{"n": 1}`)
	}
	if task := s.awaitState("a.pushed/json", ledger.StateSucceeded); string(task.Result) != `{"page":7}` {
		t.Errorf("result %s", task.Result)
	}
	for _, id := range []string{"text", "deep"} {
		if task := s.awaitState("a.pushed/"+id, ledger.StateSucceeded); task.Result != nil {
			t.Errorf("result %s", task.Result)
		}
	}
	if task := s.awaitState("a.pushed/part", ledger.StateRetrying); !strings.Contains(task.Error, "incomplete") {
		t.Errorf("error %q", task.Error)
	}
	if task := s.awaitState("a.pushed/bad", ledger.StateRetrying); task.Error != "HTTP status 500: out of paper" {
		t.Errorf("error %q", task.Error)
	}
	if task := s.awaitState("a.pushed/wrong", ledger.StateRetrying); task.Error != "HTTP status 422: no such printer" {
		t.Errorf("error %q", task.Error)
	}
	if task := s.awaitState("a.pushed/busy", ledger.StateRetrying); time.Until(task.DueAt) < time.Hour {
		t.Errorf("due at %s", task.DueAt)
	}
	later := <-accepted
	for i := range 4 {
		s.awaitState(fmt.Sprintf("a.pushed/%d", i+1), ledger.StateSucceeded)
	}
	a := s.post("push", "/v1/work:finish", wire.Finish{AttemptRef: later, Result: json.RawMessage(`"later"`)})
	if done := decode[wire.Outcome](s.server, a, http.StatusOK); done.State != ledger.StateSucceeded {
		t.Errorf("%+v", done)
	}
	if most.Load() > 2 {
		t.Errorf("%d requests at a time", most.Load())
	}
}

// A task that its server has accepted with 202 fails unless it is ended in time, even if that is shorter than the
// time-out of a request.
func TestPushAcceptedForTooLong(t *testing.T) {
	t.Parallel()
	s := serveWork(t, 30*time.Second)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(server.Close)
	s.pushTo("a.pushed", server.URL, func(p *webhooks.Push) {
		p.Slots, p.AcceptedFor = 1, settings.Duration(time.Second)
	})
	for _, id := range []string{"1", "2"} { // the second needs the slot of the first
		s.enqueue("a.pushed/"+id, `1`)
	}
	for _, id := range []string{"1", "2"} {
		task := s.awaitState("a.pushed/"+id, ledger.StateRetrying)
		if !strings.Contains(task.Error, "1s after the answer 202") {
			t.Errorf("error %q", task.Error)
		}
	}
}

// A task that its server has accepted with 202, and reports by heartbeats, outlives the process that has sent it.
func TestPushAcceptedOutlivesItsProcess(t *testing.T) {
	t.Parallel()
	first, there := serveTwice(t, 30*time.Second)
	_, secret, err := api.CreateToken(t.Context(), first.db, api.TokenOptions{Name: "push", Role: api.Worker})
	if err != nil {
		t.Fatal(err)
	}
	first.tokens["push"], there.tokens["push"] = secret, secret
	type accepted struct {
		wire.AttemptRef
		Session string `json:"session"`
	}
	tasks := make(chan accepted, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct{ Data accepted }
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusAccepted)
		tasks <- m.Data
	}))
	t.Cleanup(server.Close)
	first.pushTo("a.pushed", server.URL, nil)
	first.enqueue("a.pushed/reported", `1`)
	reported := <-tasks
	first.enqueue("a.pushed/silent", `1`)
	silent := <-tasks
	for _, key := range []string{"a.pushed/reported", "a.pushed/silent"} {
		first.awaitStart(key)
	}
	for _, s := range []*workServer{first, there} {
		body := wire.Heartbeat{Session: reported.Session, Holds: []string{reported.Fence}}
		a := s.post("push", "/v1/work:heartbeat", body)
		if beaten := decode[wire.Beaten](s.server, a, http.StatusOK); len(beaten.Ended) > 0 {
			t.Errorf("%+v", beaten)
		}
		first.work.Drain()
	}
	for _, test := range []struct {
		accepted
		status int
	}{{reported, http.StatusOK}, {silent, http.StatusConflict}} {
		a := there.post("push", "/v1/work:finish", wire.Finish{AttemptRef: test.AttemptRef})
		if a.status != test.status {
			t.Errorf("%s: %d %s, want %d", test.BizID, a.status, a.body, test.status)
		}
	}
}

// A server that does not answer in time has failed.
func TestPushWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	s := serveWork(t, 30*time.Second)
	isOver := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-isOver }))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(isOver) })
	s.pushTo("a.pushed", server.URL, func(p *webhooks.Push) { p.Timeout = settings.Duration(300 * time.Millisecond) })
	s.enqueue("a.pushed/1", `1`)
	if task := s.awaitState("a.pushed/1", ledger.StateRetrying); !strings.Contains(task.Error, "within 300ms") {
		t.Errorf("error %q", task.Error)
	}
}

// A server that has answered 410 gets no further task until an operator resumes the kind.
func TestPushToAServerThatIsGone(t *testing.T) {
	t.Parallel()
	s := serveWork(t, 30*time.Second)
	var requests atomic.Int64
	var isBack atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		if !isBack.Load() {
			w.WriteHeader(http.StatusGone)
		}
	}))
	t.Cleanup(server.Close)
	s.pushTo("a.pushed", server.URL, func(p *webhooks.Push) {
		p.Slots, p.Retry = 1, &ledger.RetryPolicy{Ladder: []time.Duration{0, 0, 0}}
	})
	for i := range 5 {
		s.enqueue(fmt.Sprintf("a.pushed/%d", i), `1`)
	}
	var paused []operator.PausedKind
	for begun := time.Now(); len(paused) == 0; time.Sleep(10 * time.Millisecond) {
		var err error
		paused, err = operator.ReadPaused(t.Context(), s.owner(), "", 10)
		if err != nil || time.Since(begun) > time.Minute {
			t.Fatal(paused, err)
		}
	}
	if p := paused[0]; p.Kind != "a.pushed" || !strings.Contains(p.Reason, "410 Gone") {
		t.Errorf("%+v", p)
	}
	failed := s.awaitFailure("a.pushed/0")
	if !strings.Contains(failed.ErrorText(), "410") {
		t.Errorf("error %q", failed.ErrorText())
	}
	before := requests.Load()
	isBack.Store(true)
	if before > 2 {
		t.Errorf("%d requests to a server that is gone", before)
	}
	if _, err := s.owner().Exec(t.Context(), "delete from taskledger.pause"); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		s.awaitState(fmt.Sprintf("a.pushed/%d", i), ledger.StateSucceeded)
	}
}

// awaitFailure waits until an attempt at a task has failed, and returns the event.
func (s *workServer) awaitFailure(key string) ledger.Event {
	s.t.Helper()
	o := ledger.NewestOptions{Types: []ledger.EventType{ledger.EventFailed}, Limit: 1}
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		newest, err := ledger.NewestOf(s.t.Context(), s.db, ledgertest.Key(s.t, key), o)
		if err != nil || time.Since(begun) > time.Minute {
			s.t.Fatalf("%s has not failed: %v", key, err)
		}
		if len(newest) > 0 {
			return newest[0]
		}
	}
}

// Tasks that are sent begin in the order of their line, not more often than a rate allows, and no more at a time than a
// limit allows.
func TestPushHoldsOrderAndRate(t *testing.T) {
	t.Parallel()
	s := serveWork(t, 30*time.Second)
	var open, rated atomic.Int64
	ids := make(chan ledger.BizID, 20)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var m struct{ Data wire.AttemptRef }
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Error(err)
		}
		if strings.HasPrefix(string(m.Data.BizID), "line") {
			if n := open.Add(1); n > 1 {
				t.Errorf("%d tasks of a line at a time", n)
			}
			defer open.Add(-1)
		} else {
			if n := rated.Add(1); n > 1 {
				t.Errorf("%d tasks of the limit at a time", n)
			}
			defer rated.Add(-1)
		}
		time.Sleep(20 * time.Millisecond)
		ids <- m.Data.BizID
	}))
	t.Cleanup(server.Close)
	rate := ledger.StartRate{Starts: 3, Period: time.Hour}
	limit := ledger.StartLimit{
		Name: "a.rated", Kinds: map[ledger.Kind]int{"a.rated": 1}, Rate: &rate, MaxRunning: new(1),
	}
	if err := ledger.SetStartLimit(t.Context(), s.owner(), limit, "op"); err != nil {
		t.Fatal(err)
	}
	s.pushTo("a.pushed", server.URL, nil)
	s.pushTo("a.rated", server.URL, nil)
	var entries []ledger.Entry
	for i := range 5 {
		entries = append(entries,
			ledger.Entry{Key: ledger.Key{Kind: "a.pushed", BizID: ledger.BizID(fmt.Sprint("line-", i))},
				Options: &ledger.EnqueueOptions{OrderKey: "customer/17"}},
			ledger.Entry{Key: ledger.Key{Kind: "a.rated", BizID: ledger.BizID(fmt.Sprint("rated-", i))}})
	}
	for _, e := range entries { // one by one: their order is the line's
		if _, err := ledger.EnqueueMany(t.Context(), s.db, []ledger.Entry{e}); err != nil {
			t.Fatal(err)
		}
	}
	for next, rated := 0, 0; next < 5 || rated < 3; {
		select {
		case id := <-ids:
			if strings.HasPrefix(string(id), "rated") {
				rated++
			} else if string(id) != fmt.Sprint("line-", next) {
				t.Errorf("%s instead of number %d", id, next)
			} else {
				next++
			}
		case <-time.After(time.Minute):
			t.Fatalf("%d tasks of the line, %d of the rate", next, rated)
		}
	}
	s.awaitState("a.pushed/line-4", ledger.StateSucceeded)
	if len(ids) > 0 { // the rate's fourth task begins in an hour
		t.Errorf("%d more requests", len(ids))
	}
}

// A server with an address that is not public gets nothing unless the configuration allows it.
func TestPushToPrivateAddresses(t *testing.T) {
	t.Parallel()
	s := serveWork(t, 30*time.Second)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request") }))
	t.Cleanup(server.Close)
	url := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	s.pushTo("a.pushed", url, func(p *webhooks.Push) { p.Allow = nil })
	s.enqueue("a.pushed/1", `1`)
	if task := s.awaitState("a.pushed/1", ledger.StateRetrying); !strings.Contains(task.Error, "is not public") {
		t.Errorf("error %q", task.Error)
	}
	_, err := webhooks.ParsePush([]byte(`{"push": [{"kind": "a b", "url": "ftp://x", "slots": -1, "accepted_for": "-1s",
		"caller": "/"}, {"kind": "taskledger.alarm", "url": "https://example.com"}]}`))
	for _, field := range []string{"push[0].kind", "push[0].url", "push[0].slots", "push[0].caller",
		"push[0].secret_file", "push[0].accepted_for", "push[1].kind"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("no fault of %s: %v", field, err)
		}
	}
}

// The database is away when a server answers. The outcome is recorded once it is back, and no task is sent again.
func TestPushWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	pg := ledgertest.Cluster(t, nil)
	address := ledgertest.URLAs(t, pg.URL(ledgertest.Database), append([]string{"worker"}, databaseRoles...)...)
	db, err := pgxpool.New(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	s := serveWorkOn(t, db, 30*time.Second)
	var requests atomic.Int64
	isAway := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		var m struct{ Data wire.AttemptRef }
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Error(err)
		}
		<-isAway
		if m.Data.BizID == "bad" {
			http.Error(w, "out of paper", http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, `{"page": 7}`)
	}))
	t.Cleanup(server.Close)
	s.pushTo("a.pushed", server.URL, func(p *webhooks.Push) {
		p.Retry = &ledger.RetryPolicy{Ladder: []time.Duration{time.Hour}}
	})
	ids := []string{"good", "better", "bad"}
	for _, id := range ids {
		s.enqueue("a.pushed/"+id, `1`)
	}
	for _, id := range ids {
		s.awaitState("a.pushed/"+id, ledger.StateRunning)
	}
	if err := pg.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(isAway)
	time.Sleep(3 * time.Second) // so long the outcomes cannot be recorded
	if err := pg.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		want := ledger.StateSucceeded
		if id == "bad" {
			want = ledger.StateRetrying
		}
		if task := s.awaitState("a.pushed/"+id, want); task.Attempt != 1 {
			t.Errorf("%s: attempt %d", id, task.Attempt)
		}
	}
	if n := requests.Load(); n != int64(len(ids)) {
		t.Errorf("%d requests for %d tasks", n, len(ids))
	}
}

// A pusher stops although the database is away and it holds a task that it has not sent.
func TestPusherStopsWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	s := serveWork(t, 30*time.Second)
	away, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/nothing")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(away.Close)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(pushSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	p := webhooks.Push{Kind: "a.pushed", Endpoint: webhooks.Endpoint{URL: "http://127.0.0.1:1", SecretFile: secret,
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}}
	pusher, err := webhooks.NewPusher(webhooks.PusherConfig{DB: away, Work: s.work,
		File: webhooks.PushFile{Push: []webhooks.Push{p}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- pusher.Run(ctx) }()
	s.enqueue("a.pushed/1", `1`)
	s.awaitState("a.pushed/1", ledger.StateRunning)
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the pusher does not stop")
	}
	s.work.Drain()
	if task := s.task("a.pushed/1"); task.State != ledger.StateAvailable || task.Failures > 0 {
		t.Errorf("%+v", task)
	}
}
