package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/dispatcher"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/remote"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/internal/wire"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// workServer is an API that gives out work.
type workServer struct {
	*server
	nats       string // address of the NATS server
	natsServer *natsserver.Server
	work       remote.Gateway
}

// term is the time after which a worker that does not report is lost. Tests wait for it.
const term = time.Second

// stopTimeout is how long a process that ends waits for attempts. Tests wait for it.
const stopTimeout = 3 * time.Second

// serveWork starts an API, a dispatcher and a NATS server on a database of its own.
func serveWork(t testing.TB, term time.Duration) *workServer {
	t.Helper()
	return serveWorkOn(t, widerPool(t, ledgertest.Pool(t, append([]string{"worker"}, databaseRoles...)...), 8), term)
}

// serveWorkOn is serveWork on a database.
func serveWorkOn(t testing.TB, db *pgxpool.Pool, term time.Duration) *workServer {
	t.Helper()
	nats, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nats.Close() })
	startDispatcher(t, db, nats.URL())
	s := serveMoreWork(t, db, nats.URL(), term)
	s.natsServer = nats
	return s
}

// serveMoreWork starts another API that gives out work.
func serveMoreWork(t testing.TB, db *pgxpool.Pool, nats string, term time.Duration) *workServer {
	t.Helper()
	nc, err := stream.Connect(nats)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	log := slog.New(slog.NewTextHandler(logWriter{t}, nil))
	work, err := remote.New(remote.Config{DB: widerPool(t, db, 8), NATS: nc, Term: term, StopTimeout: stopTimeout,
		Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	s := &workServer{nats: nats, work: work}
	s.server = serveOn(t, db, func(c *api.Config) { c.Work = work })
	t.Cleanup(func() {
		for n := range usedSessions { // else Drain waits for their tasks
			for _, caller := range []string{"a-worker", "other", "limited"} {
				if _, err := work.Release(context.Background(), caller, session(n), nil); err != nil {
					t.Error(err)
				}
			}
		}
		work.Drain()
	})
	return s
}

// startDispatcher runs a dispatcher until the test ends.
func startDispatcher(t testing.TB, db *pgxpool.Pool, url string) {
	t.Helper()
	nc, err := stream.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	d, err := dispatcher.New(dispatcher.Config{
		DB: ledgertest.As(t, db, "relay"), NATS: nc, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		nc.Close()
	})
}

// session returns the name of a session of the test.
func session(n int) string { return fmt.Sprintf("session-%08d", n) }

// usedSessions is greater than each number of a session in these tests.
const usedSessions = 8

// post sends a value to a call of a worker.
func (s *workServer) post(token api.Role, path string, body any) answer {
	s.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.call(token, "POST", path, string(text))
}

// askFor returns a request of a session for tasks of a kind.
func askFor(n int, kind ledger.Kind) wire.Ask {
	wait := 30.0
	return wire.Ask{Worker: "w", Session: session(n), Kinds: []ledger.Kind{kind}, Limit: 10, Wait: &wait}
}

// ask returns the answer to a request for tasks.
func (s *workServer) ask(a wire.Ask) wire.Asked {
	s.t.Helper()
	return decode[wire.Asked](s.server, s.post(api.Worker, "/v1/work", a), http.StatusOK)
}

// one returns the one task that a request gets.
func (s *workServer) one(a wire.Ask) (wire.Task, wire.Asked) {
	s.t.Helper()
	got := s.ask(a)
	if len(got.Tasks) != 1 {
		s.t.Fatalf("got %d tasks, want one: %+v", len(got.Tasks), got)
	}
	return got.Tasks[0], got
}

// end sends an outcome and returns the state of the task.
func (s *workServer) end(call string, body any) ledger.State {
	s.t.Helper()
	return decode[wire.Outcome](s.server, s.post(api.Worker, "/v1/work:"+call, body), http.StatusOK).State
}

// awaitState waits until a task has a state.
func (s *workServer) awaitState(key string, want ledger.State) ledger.Task {
	s.t.Helper()
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		task := s.task(key)
		if task.State == want {
			return task
		}
		if time.Since(begun) > time.Minute {
			s.t.Fatalf("%s is %s, want %s", key, task.State, want)
		}
	}
}
