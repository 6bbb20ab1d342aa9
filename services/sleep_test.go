package services_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/natsclient"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/services"
)

// sleepAfter is long compared with the pauses of services that work.
const sleepAfter = 200 * time.Millisecond

// wire carries connections to a server, and counts them and their messages.
type wire struct {
	listener net.Listener
	to       string
	open     atomic.Int64
	bytes    atomic.Int64
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	w := &wire{listener: l, to: to}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go w.carry(conn)
		}
	}()
	return w
}

func (w *wire) carry(from net.Conn) {
	w.open.Add(1)
	defer w.open.Add(-1)
	defer from.Close()
	w.bytes.Add(1)
	to, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer to.Close()
	var both sync.WaitGroup
	for _, ends := range [][2]net.Conn{{from, to}, {to, from}} {
		both.Go(func() {
			_, _ = io.Copy(ends[1], io.TeeReader(ends[0], counter{&w.bytes}))
			_, _ = from.Close(), to.Close()
		})
	}
	both.Wait()
}

type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// sleeping is a process with all services, which sleep.
type sleeping struct {
	t    *testing.T
	log  lines
	wire *wire
	url  string
	stop func()
}

// startSleeping starts the services with an HTTP server. c.NATS nil: with the NATS server of the database.
func startSleeping(t *testing.T, postgres *pgserver.Server, c services.Config) *sleeping {
	t.Helper()
	u, err := url.Parse(postgres.URL(ledgertest.Database))
	if err != nil {
		t.Fatal(err)
	}
	s := &sleeping{t: t, wire: newWire(t, u.Host)}
	u.Host = s.wire.listener.Addr().String()
	pool := func() *pgxpool.Pool {
		db, err := pgxpool.New(t.Context(), u.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(db.Close)
		return db
	}
	connect := func(user string) *nats.Conn {
		toNATS := c.NATS
		if toNATS == nil {
			toNATS = func(options ...nats.Option) (*nats.Conn, error) {
				return natsclient.Connect(c.DB, user, append(options, nats.RetryOnFailedConnect(true))...)
			}
		}
		nc, err := toNATS()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	c.DB = pool()
	c.Logger = slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c.API, err = services.NewHandler(services.HandlerConfig{DB: pool(), WorkDB: pool(), Anonymous: true,
		NATS: connect(natsconfig.Relay), WorkNATS: connect(natsconfig.Worker), Logger: c.Logger})
	if err != nil {
		t.Fatal(err)
	}
	if c.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if c.NATS == nil {
		c.Server.Dir = t.TempDir()
	}
	s.url = "http://" + c.Listener.Addr().String()
	if c.SleepAfter == 0 {
		c.SleepAfter = sleepAfter
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- services.Run(ctx, c) }()
	s.stop = sync.OnceFunc(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(s.stop)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.log.String())
		}
	})
	return s
}

// await waits for a condition.
func (s *sleeping) await(what string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("waited %s until %s", patience, what)
		}
	}
}

// awaitSleep waits until the services have slept n times, and have no connection to the database.
func (s *sleeping) awaitSleep(n int) {
	s.t.Helper()
	s.await("the services sleep", func() bool {
		return strings.Count(s.log.String(), "the services sleep") >= n && s.wire.open.Load() == 0
	})
}

// wakes returns how often the services have woken.
func (s *sleeping) wakes() int { return strings.Count(s.log.String(), "the services wake") }

// runsNATS reports whether the process has run the NATS server of the database.
func (s *sleeping) runsNATS() bool {
	return strings.Contains(s.log.String(), "runs the NATS server of this")
}

// send returns the status and the body of an answer.
func (s *sleeping) send(method, path, body string, header ...string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(answer.Body); err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, text.String()
}

// work runs a worker over HTTP until the test ends. It returns the tasks that it has done.
func (s *sleeping) work() (done chan string) {
	c, err := client.New(client.Config{URL: s.url})
	if err != nil {
		s.t.Fatal(err)
	}
	done = make(chan string, 100)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- c.Work(ctx, client.WorkOptions{
			Kinds: []ledger.Kind{greet.Name()}, Logger: slog.New(slog.DiscardHandler),
			Handle: func(_ context.Context, t client.WorkTask) (any, error) {
				done <- string(t.BizID)
				return nil, nil
			},
		})
	}()
	s.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			s.t.Error(err)
		}
	})
	return done
}

// awaitTask waits until the next task is done, which must be id.
func (s *sleeping) awaitTask(done chan string, id string) {
	s.t.Helper()
	select {
	case got := <-done:
		if got != id {
			s.t.Errorf("task %s was done, want %s", got, id)
		}
	case <-time.After(patience):
		s.t.Fatalf("task %s was not done", id)
	}
}

// A ledger without work has no session and no statement. A message, a request, the time of a task and the longest sleep
// wake its services; probes, scrapes and waiting workers do not. A server that is stopped meanwhile, as a suspended
// compute is, changes nothing, and each task is done once.
func TestServicesSleep(t *testing.T) {
	t.Parallel()
	postgres := ledgertest.Cluster(t, nil)
	natsURL := startNATS(t).URL()
	s := startSleeping(t, postgres, services.Config{NATS: services.ToNATS(natsURL)})
	done := s.work()
	address := postgres.URL(ledgertest.Database)
	program, err := taskledger.Open(t.Context(), taskledger.Options{DatabaseURL: address, NATSURL: natsURL})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	enqueue := func(id ledger.BizID, o *ledger.EnqueueOptions) {
		t.Helper()
		if _, err := greet.Enqueue(t.Context(), program.DB, id, "x", o); err != nil {
			t.Fatal(err)
		}
	}

	s.awaitSleep(1)
	before := s.wire.bytes.Load()
	const poll = `{"worker": "w", "session": "0123456789abcdef", "kinds": ["greet"], "limit": 1, "wait": 0.3}`
	for path, want := range map[string]string{
		"/healthz": `"alive": true`, "/readyz": `"asleep":true`, "/metrics": "go_goroutines",
	} {
		if status, text := s.send(http.MethodGet, path, ""); status != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", path, status, text)
		}
		if status, text := s.send(http.MethodHead, path, ""); status != http.StatusOK {
			t.Errorf("HEAD %s: %d %s", path, status, text)
		}
	}
	for _, request := range []string{
		"GET /", "HEAD /", "GET /favicon.ico", "GET /.env", "GET /tasks", "GET /stream", "GET /version",
		"GET /v1/status", "POST /v1/work", "POST /v1/tasks",
	} {
		method, path, _ := strings.Cut(request, " ")
		for _, stranger := range [][]string{
			{"Accept", "*/*"}, {"Cookie", "session=1; __Host-taskledger_theme=dark"}, {"Authorization", "Basic YTpi"},
		} {
			status, text := s.send(method, path, poll,
				append(stranger, "X-Forwarded-For", "192.0.2.1")...) // so it is not anonymous
			if strings.HasPrefix(path, "/v1/") && status != http.StatusUnauthorized {
				t.Errorf("%s of a stranger with %q: %d %s", request, stranger, status, text)
			}
		}
	}
	var asked struct {
		Protocol string
		Tasks    []json.RawMessage
	}
	if status, text := s.send(http.MethodPost, "/v1/work", poll); status != http.StatusOK ||
		json.Unmarshal([]byte(text), &asked) != nil || asked.Protocol == "" || len(asked.Tasks) > 0 {
		t.Errorf("a poll: %d %s", status, text)
	}
	if s.wire.open.Load() > 0 || s.wire.bytes.Load() != before || s.wakes() > 0 {
		t.Errorf("asleep: %d sessions, %d bytes, %d wakes", s.wire.open.Load(), s.wire.bytes.Load()-before, s.wakes())
	}

	if err := postgres.Stop(t.Context()); err != nil { // no session is left to end, and nothing notices
		t.Fatal(err)
	}
	if status, text := s.send(http.MethodGet, "/readyz", ""); status != http.StatusOK || s.wakes() > 0 {
		t.Errorf("/readyz: %d %s, %d wakes", status, text, s.wakes())
	}
	if err := program.Wake(t.Context()); err != nil { // the services wake, and wait for the database
		t.Fatal(err)
	}
	s.await("the services are awake", func() bool { return s.wakes() == 1 })
	if err := postgres.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	program.DB.Reset()
	enqueue("message", nil)
	s.awaitTask(done, "message")

	s.awaitSleep(2)
	const task = `{"kind": "greet", "biz_id": "request", "args": "x"}`
	if status, text := s.send(http.MethodPost, "/v1/tasks", task); status/100 != 2 {
		t.Errorf("%d %s", status, text)
	}
	s.awaitTask(done, "request")

	enqueue("later", &ledger.EnqueueOptions{RunIn: 4 * sleepAfter})
	s.awaitSleep(3)
	s.awaitTask(done, "later")

	s.awaitSleep(4)
	if status, text := s.send(http.MethodPost, "/v1/work", poll, "Authorization", "Bearer unknown"); status/100 != 4 {
		t.Errorf("a worker with an unknown token: %d %s", status, text)
	}
	s.await("the services are awake", func() bool { return s.wakes() == 4 })
	s.awaitSleep(5)
	s.stop()
	if len(done) > 0 {
		t.Errorf("task %s was done twice", <-done)
	}
}

// A task whose producer sends no message waits for the longest sleep. A worker in Go waits for the services meanwhile.
func TestLongestSleep(t *testing.T) {
	t.Parallel()
	postgres := ledgertest.Cluster(t, nil)
	natsURL, address := startNATS(t).URL(), postgres.URL(ledgertest.Database)
	s := startSleeping(t, postgres, services.Config{NATS: services.ToNATS(natsURL), SleepAtMost: 2 * sleepAfter})
	program, err := taskledger.Open(t.Context(), taskledger.Options{DatabaseURL: address, NATSURL: natsURL})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	done := make(chan string, 10)
	worker, err := program.Worker(greeting(done))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	for n := range 2 {
		s.awaitSleep(n + 1)
		name := fmt.Sprint("silent-", n)
		if _, err := greet.Enqueue(t.Context(), program.DB, ledger.BizID(name), name, nil); err != nil {
			t.Fatal(err)
		}
		s.awaitTask(done, name)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Two processes with the NATS server of the database sleep and wake together, and the server goes on. If its process
// ends, the other wakes and takes over. The services that wake find their server as it was.
func TestTwoProcessesSleep(t *testing.T) {
	t.Parallel()
	postgres := ledgertest.Cluster(t, nil)
	first := startSleeping(t, postgres, services.Config{})
	first.await("it runs NATS", first.runsNATS)
	second := startSleeping(t, postgres, services.Config{})
	done := second.work()
	first.awaitSleep(1)
	second.awaitSleep(1)
	program, err := taskledger.Open(t.Context(), taskledger.Options{DatabaseURL: postgres.URL(ledgertest.Database)})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	enqueue := func(id ledger.BizID) {
		t.Helper()
		if _, err := greet.Enqueue(t.Context(), program.DB, id, "x", nil); err != nil {
			t.Fatal(err)
		}
	}
	enqueue("request")
	if status, text := second.send(http.MethodGet, "/version", ""); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	second.awaitTask(done, "request")
	first.await("the first wakes", func() bool { return first.wakes() > 0 })
	first.awaitSleep(2)
	second.awaitSleep(2)
	enqueue("message")
	if err := program.Wake(t.Context()); err != nil {
		t.Fatal(err)
	}
	second.awaitTask(done, "message")
	first.awaitSleep(3)
	second.awaitSleep(3)
	if second.runsNATS() {
		t.Error("the second process has taken the NATS server over")
	}
	first.stop()
	second.await("it takes over", second.runsNATS)
	enqueue("alone")
	second.awaitTask(done, "alone")
	second.awaitSleep(4)
	enqueue("last")
	if err := program.Wake(t.Context()); err != nil {
		t.Fatal(err)
	}
	second.awaitTask(done, "last")
	if len(done) > 0 {
		t.Errorf("task %s was done twice", <-done)
	}
}

// A process that sleeps has the workers that a task needs. The task is enqueued at another process, which is awake.
func TestRequestAtAProcessThatIsAwake(t *testing.T) {
	t.Parallel()
	postgres := ledgertest.Cluster(t, nil)
	connect := services.ToNATS(startNATS(t).URL())
	awake := startSleeping(t, postgres, services.Config{NATS: connect, SleepAfter: time.Hour})
	asleep := startSleeping(t, postgres, services.Config{NATS: connect})
	done := asleep.work()
	for n := range 2 {
		asleep.awaitSleep(n + 1)
		task := fmt.Sprintf(`{"kind": "greet", "biz_id": "task-%d", "args": "x"}`, n)
		if status, text := awake.send(http.MethodPost, "/v1/tasks", task); status/100 != 2 {
			t.Errorf("%d %s", status, text)
		}
		asleep.awaitTask(done, fmt.Sprint("task-", n))
	}
}

// A process that is awake wakes the others for a task that was enqueued in SQL.
func TestSilentTaskAtAProcessThatIsAwake(t *testing.T) {
	t.Parallel()
	postgres := ledgertest.Cluster(t, nil)
	connect := services.ToNATS(startNATS(t).URL())
	startSleeping(t, postgres, services.Config{NATS: connect, SleepAfter: time.Hour})
	asleep := startSleeping(t, postgres, services.Config{NATS: connect})
	done := asleep.work()
	asleep.awaitSleep(1)
	db, err := pgxpool.New(t.Context(), postgres.URL(ledgertest.Database))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := greet.Enqueue(t.Context(), db, "silent", "x", nil); err != nil {
		t.Fatal(err)
	}
	asleep.awaitTask(done, "silent")
}

// Services do not sleep before an alarm has reported a dead task, however long news gathers.
func TestAlarmBeforeTheSleep(t *testing.T) {
	t.Parallel()
	postgres := ledgertest.Cluster(t, nil)
	file := filepath.Join(t.TempDir(), "alarm")
	s := startSleeping(t, postgres, services.Config{NATS: services.ToNATS(startNATS(t).URL()),
		Alarms: fmt.Appendf(nil, `{"gather": "3s", "receivers": [{"name": "page", "command": ["tee", %q]}]}`, file)})
	s.awaitSleep(1)
	db, err := pgxpool.New(t.Context(), postgres.URL(ledgertest.Database))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	key := ledgertest.Key(t, "greet/dead")
	ledgertest.Enqueue(t, db, key, `"x"`)
	ledgertest.Append(t, db, key, ledger.EventStarted, ledger.EventBuried)
	if status, text := s.send(http.MethodGet, "/version", ""); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	s.await("the alarm is sent", func() bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "greet")
	})
	s.awaitSleep(2)
}
