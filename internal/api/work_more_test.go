package api_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/internal/wire"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

var workTasks = flag.Int("api-work-tasks", 400, "number of tasks of TestWorkNextToGo, for each worker")

// goClient returns the client in Go of a caller.
func (s *workServer) goClient(token api.Role) *client.Client {
	s.t.Helper()
	c, err := client.New(client.Config{URL: s.url, Token: s.tokens[token], HTTP: manyConnections(s.t, 128)})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// A worker asks over HTTP, and claims and finishes in SQL: each task has one effect, next to its success.
func TestExactlyOnceOverHTTP(t *testing.T) {
	t.Parallel()
	s := serveWork(t, 2*term)
	db := ledgertest.As(t, s.db, "worker")
	if _, err := s.owner().Exec(t.Context(), `create table public.effect (biz_id text, attempt integer);
		grant select, insert on public.effect to public`); err != nil {
		t.Fatal(err)
	}
	heartbeat := func() {
		if _, err := db.Exec(t.Context(), "select taskledger.heartbeat('sql-1', '{a.b}')"); err != nil {
			t.Error(err)
		}
	}
	heartbeat()
	const n = 20
	for i := range n {
		s.enqueue(fmt.Sprintf("a.b/%d", i), `1`)
	}
	ask := askFor(1, "a.b")
	ask.Guarantee = "exactly once"
	var finished, given int
	for begun := time.Now(); finished < n; {
		if time.Since(begun) > time.Minute {
			t.Fatalf("%d of %d tasks are finished, %d were given", finished, n, given)
		}
		got := s.ask(ask)
		ask.Received = got.Batch
		for _, task := range got.Tasks {
			given++
			if task.Fence != "" {
				t.Errorf("a fence: %+v", task)
			}
			heartbeat()
			if given == 3 {
				continue // a worker that never begins
			}
			err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
				var version, attempt int
				err := tx.QueryRow(t.Context(), "select version, attempt from taskledger.claim('a.b', $1, 'sql-1')",
					string(task.BizID)).Scan(&version, &attempt)
				if errors.Is(err, pgx.ErrNoRows) {
					return nil
				}
				if err == nil && attempt != int(task.Attempt) {
					t.Errorf("attempt %d, given as %d", attempt, task.Attempt)
				}
				id := string(task.BizID)
				if err == nil {
					_, err = tx.Exec(t.Context(), "insert into public.effect values ($1, $2)", id, attempt)
				}
				if err == nil {
					_, err = tx.Exec(t.Context(), "select taskledger.finish('a.b', $1, $2)", id, version)
				}
				if err == nil {
					finished++
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
	var effects, tasks int
	if err := s.owner().QueryRow(t.Context(), `select count(*)::integer, count(distinct biz_id)::integer
		from public.effect`).Scan(&effects, &tasks); err != nil || effects != n || tasks != n {
		t.Errorf("%d effects of %d tasks: %v", effects, tasks, err)
	}
}

// A gateway that stops lets workers end their tasks, and gives out no more. After it, another process does.
func TestDrainOfWork(t *testing.T) {
	t.Parallel()
	s := serveWork(t, 30*time.Second)
	s.enqueue("a.b/1", `1`)
	task, got := s.one(askFor(1, "a.b"))
	refused := make(chan answer)
	ask := askFor(2, "a.b")
	go func() { refused <- s.post(api.Worker, "/v1/work", ask) }()
	s.awaitWaitingAtLeast(1)
	drained := make(chan struct{})
	go func() { s.work.Drain(); close(drained) }()
	s.wantProblem(<-refused, http.StatusServiceUnavailable, "shutdown")
	s.wantProblem(s.post(api.Worker, "/v1/work", ask), http.StatusServiceUnavailable, "shutdown")
	s.enqueue("a.b/2", `1`)
	if state := s.end("finish", wire.Finish{AttemptRef: task.Ref()}); state != ledger.StateSucceeded {
		t.Error(state)
	}
	<-drained
	if state := s.end("finish", wire.Finish{AttemptRef: task.Ref()}); state != ledger.StateSucceeded {
		t.Errorf("the same call after the end of the process: %s", state)
	}
	other := serveMoreWork(t, s.db, s.nats, 30*time.Second)
	ask = askFor(1, "a.b")
	ask.Received = got.Batch
	next, _ := other.one(ask)
	if next.BizID != "2" {
		t.Errorf("%+v", next)
	}
	if beat := decode[wire.Beaten](other.server, other.post(api.Worker, "/v1/work:heartbeat",
		wire.Heartbeat{Session: session(1), Holds: []string{task.Fence}}), http.StatusOK); len(beat.Ended) != 0 {
		t.Errorf("%+v", beat)
	}
	other.end("finish", wire.Finish{AttemptRef: next.Ref()})
}

// The deadline of a task ends its attempt: the heartbeat names it, and the task has expired.
func TestDeadlineOverHTTP(t *testing.T) {
	t.Parallel()
	s := serveWork(t, 30*time.Second)
	by := time.Now().Add(3 * time.Second)
	a := s.call(api.Operator, "POST", "/v1/tasks",
		fmt.Sprintf(`{"kind": "a.b", "biz_id": "1", "finish_by": %q}`, by.UTC().Format(time.RFC3339Nano)))
	if a.status != http.StatusCreated {
		t.Fatalf("%d %s", a.status, a.body)
	}
	task, _ := s.one(askFor(1, "a.b"))
	if !task.FinishBy.Equal(by.Truncate(time.Microsecond)) {
		t.Errorf("finish_by %s, want %s", task.FinishBy, by)
	}
	var ended []wire.Ended
	for begun := time.Now(); len(ended) == 0 && time.Since(begun) < time.Minute; time.Sleep(10 * time.Millisecond) {
		ended = decode[wire.Beaten](s.server, s.post(api.Worker, "/v1/work:heartbeat",
			wire.Heartbeat{Session: session(1), Holds: []string{task.Fence}}), http.StatusOK).Ended
	}
	if len(ended) != 1 || ended[0].Reason != "deadline" || time.Until(by) > 100*time.Millisecond {
		t.Errorf("%s before the deadline: %+v", time.Until(by), ended)
	}
	s.awaitState("a.b/1", ledger.StateExpired)
	s.wantEnded(api.Worker, "finish", wire.Finish{AttemptRef: task.Ref()})
}

// The NATS server alone is restarted: outcomes do not need it, and later tasks are given.
func TestNATSRestartsUnderWork(t *testing.T) {
	t.Parallel()
	s := serveWork(t, 30*time.Second)
	s.enqueue("a.b/1", `1`)
	task, got := s.one(askFor(1, "a.b"))
	s.natsServer.Stop()
	if state := s.end("finish", wire.Finish{AttemptRef: task.Ref()}); state != ledger.StateSucceeded {
		t.Error(state)
	}
	next := make(chan wire.Asked)
	ask := askFor(1, "a.b")
	ask.Received = got.Batch
	go func() { next <- s.ask(ask) }()
	s.awaitWaitingAtLeast(1)
	s.enqueue("a.b/2", `1`)
	if err := s.natsServer.Restart(); err != nil {
		t.Fatal(err)
	}
	later := <-next
	for begun := time.Now(); len(later.Tasks) == 0; later = s.ask(ask) {
		if ask.Received = later.Batch; time.Since(begun) > time.Minute {
			t.Fatal("no task after the restart")
		}
	}
	if state := s.end("finish", wire.Finish{AttemptRef: later.Tasks[0].Ref()}); state != ledger.StateSucceeded {
		t.Error(state)
	}
}

// A concurrency limit holds for workers over HTTP.
func TestConcurrencyLimitOverHTTP(t *testing.T) {
	t.Parallel()
	s := serveWork(t, 30*time.Second)
	limit := ledger.StartLimit{Name: "a.b", Kinds: map[ledger.Kind]int{"a.b": 1}, MaxRunning: new(2)}
	if err := ledger.SetStartLimit(t.Context(), s.owner(), limit, "op"); err != nil {
		t.Fatal(err)
	}
	const n = 12
	for i := range n {
		s.enqueue(fmt.Sprintf("a.b/%d", i), `1`)
	}
	var mu sync.Mutex
	running, most, finished := 0, 0, 0
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	err := s.goClient(api.Worker).Work(ctx, client.WorkOptions{
		Kinds: []ledger.Kind{"a.b"}, Slots: 8,
		Handle: func(context.Context, client.WorkTask) (any, error) {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(5 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			running--
			if finished++; finished == n {
				stop()
			}
			return nil, nil
		},
	})
	if err != nil || finished != n || most > 2 {
		t.Errorf("%v, %d tasks, %d at a time", err, finished, most)
	}
}

// A worker in Go over HTTP: each outcome of a handler is recorded.
func TestGoClientWorks(t *testing.T) {
	t.Parallel()
	s := serveWork(t, 30*time.Second)
	for i := range 30 {
		s.enqueue(fmt.Sprintf("a.b/%d", i), fmt.Sprint(i))
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	in := time.Duration(0)
	var mu sync.Mutex
	calls := map[string]int{}
	err := s.goClient(api.Worker).Work(ctx, client.WorkOptions{
		Kinds: []ledger.Kind{"a.b"}, Slots: 4,
		Handle: func(_ context.Context, task client.WorkTask) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			calls[string(task.BizID)]++
			switch n := calls[string(task.BizID)]; {
			case task.BizID == "3" && n == 1:
				return nil, &client.FailError{Err: errors.New("once"), RetryIn: &in}
			case task.BizID == "5":
				panic("no")
			}
			if len(calls) == 30 && calls["3"] == 2 {
				stop()
			}
			return task.Args, nil
		},
	})
	if err != nil {
		t.Error(err)
	}
	for i := range 30 {
		want := ledger.StateSucceeded
		if i == 5 {
			want = ledger.StateRetrying
		}
		if task := s.awaitState(fmt.Sprintf("a.b/%d", i), want); i != 5 && string(task.Result) != fmt.Sprint(i) {
			t.Errorf("result %s", task.Result)
		}
	}
}

// awaitSucceeded waits until so many tasks of a kind have succeeded.
func (s *workServer) awaitSucceeded(kind ledger.Kind, n int) {
	s.t.Helper()
	owner := s.owner()
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		var have int
		err := owner.QueryRow(s.t.Context(), `select count(*)::integer from taskledger.event
			where kind = $1 and type = 'succeeded'`, string(kind)).Scan(&have)
		if err != nil {
			s.t.Fatal(err)
		}
		if have == n {
			return
		}
		if time.Since(begun) > time.Minute {
			s.t.Fatalf("%d tasks have succeeded, want %d", have, n)
		}
	}
}

// The same work in Go and over HTTP, on one ledger: the rate of a backlog, and the time from commit to success of
// single tasks. It logs the ratios; -api-work-tasks 20000 measures them.
func TestWorkNextToGo(t *testing.T) {
	if *workTasks <= 400 {
		t.Parallel()
	}
	s := serveWork(t, 30*time.Second)
	nc, err := stream.Connect(s.nats)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	run := map[string]func(ctx context.Context, kind ledger.Kind, done func()) error{
		"go": func(ctx context.Context, kind ledger.Kind, done func()) error {
			pool, err := workers.New(workers.Config{DB: widerPool(t, s.db, 8), NATS: nc})
			if err != nil {
				return err
			}
			typed := ledger.MustKind[int](kind)
			if err := pool.Register(workers.Handle(typed, func(context.Context, *workers.Job, int) error {
				done()
				return nil
			}, nil)); err != nil {
				return err
			}
			return pool.Run(ctx)
		},
		"http": func(ctx context.Context, kind ledger.Kind, done func()) error {
			return s.goClient(api.Worker).Work(ctx, client.WorkOptions{
				Kinds: []ledger.Kind{kind}, Slots: 64,
				Handle: func(context.Context, client.WorkTask) (any, error) {
					done()
					return nil, nil
				},
			})
		},
	}
	rates, latencies := map[string]float64{}, map[string]time.Duration{}
	for _, name := range []string{"go", "http"} {
		kind := ledger.Kind("bench." + name)
		entries := make([]ledger.Entry, *workTasks)
		for i := range entries {
			key := ledger.Key{Kind: kind, BizID: ledger.BizID(fmt.Sprint(i))}
			entries[i] = ledger.Entry{Key: key, Args: []byte(`1`)}
		}
		for part := range slices.Chunk(entries, 1000) {
			if _, err := ledger.EnqueueMany(t.Context(), s.db, part); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
		calls := make(chan struct{}, 2*len(entries))
		ended := make(chan error, 1)
		go func() { ended <- run[name](ctx, kind, func() { calls <- struct{}{} }) }()
		<-calls
		begun := time.Now()
		for range len(entries) - 1 {
			<-calls
		}
		s.awaitSucceeded(kind, len(entries))
		rates[name] = float64(len(entries)) / time.Since(begun).Seconds()
		var durations []time.Duration
		for i := range min(200, *workTasks) {
			key := fmt.Sprintf("%s/single-%d", kind, i)
			begun := time.Now()
			s.enqueue(key, `1`)
			<-calls
			durations = append(durations, time.Since(begun))
			s.awaitState(key, ledger.StateSucceeded)
		}
		slices.Sort(durations)
		latencies[name] = percentile(durations, 0.5)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		t.Logf("%s: %.0f tasks a second, commit to handler p50 %s p99 %s", name, rates[name], latencies[name],
			percentile(durations, 0.99))
	}
	rate, p50 := rates["http"]/rates["go"], float64(latencies["http"])/float64(latencies["go"])
	t.Logf("over HTTP: %.2f of the rate, %.1f times the p50", rate, p50)
	if *workTasks > 400 && (rate < 0.3 || p50 > 3) {
		t.Error("want at least 0.3 of the rate, and at most 3 times the p50")
	}
}

// The first call of docs/work-over-http.md works as printed.
func TestWorkInTheDocument(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	text, err := os.ReadFile("../../docs/work-over-http.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```sh\n")
	script, _, _ := strings.Cut(rest, "```")
	s := serveWork(t, 30*time.Second)
	command := exec.CommandContext(t.Context(), "sh", "-euc", script)
	command.Env = append(os.Environ(), "API="+s.url, "TOKEN="+s.tokens[api.Worker])
	out, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"tasks":[]`) {
		t.Errorf("%v: %s\n%s", err, script, out)
	}
}
