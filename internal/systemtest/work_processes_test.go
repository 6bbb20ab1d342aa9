package systemtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/wire"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// serveProcess is a process of taskledger serve.
type serveProcess struct {
	url     *url.URL
	command *exec.Cmd
}

// startServe starts a serve of a database and a NATS server, which the test may kill.
func startServe(t testing.TB, binary, database, nats string, env []string) serveProcess {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	p := serveProcess{url: &url.URL{Scheme: "http", Host: address}}
	p.command = exec.Command(binary, "serve", "--listen", address, "--database-url", database, "--nats-url", nats,
		"--data-dir", t.TempDir())
	p.command.Env, p.command.Stdout, p.command.Stderr = env, t.Output(), t.Output()
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		answer, err := http.Get(p.url.String() + "/readyz")
		if err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return p
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("serve is not ready: %v", err)
		}
	}
}

func (p serveProcess) kill() {
	if p.command.Process.Kill() == nil {
		_ = p.command.Wait()
	}
}

// roundRobin sends each request to the next of several processes, as a load balancer does: to another one if it cannot
// connect, and with 502 if the connection breaks.
func roundRobin(t *testing.T, processes ...serveProcess) string {
	t.Helper()
	var n atomic.Int64
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			body, err := io.ReadAll(r.In.Body)
			if err != nil {
				t.Error(err)
			}
			r.Out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		},
		Transport: roundTripper(func(r *http.Request) (answer *http.Response, err error) {
			for range processes {
				r.URL.Scheme, r.URL.Host = "http", processes[n.Add(1)%int64(len(processes))].url.Host
				r.Body, _ = r.GetBody()
				answer, err = http.DefaultTransport.RoundTrip(r)
				if failed := (*net.OpError)(nil); !errors.As(err, &failed) || failed.Op != "dial" {
					break
				}
			}
			return answer, err
		}),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	t.Cleanup(proxy.Close)
	return proxy.URL
}

// roundTripper sends a request.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Two processes of serve are behind a proxy that sends each call to the other one. One is killed while tasks are at
// work: their outcomes count, and no effect is repeated.
func TestWorkAtSeveralProcesses(t *testing.T) {
	t.Parallel()
	binary := buildCommand(t)
	pool := ledgertest.Pool(t)
	nats, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nats.Close() })
	owner := ledgertest.URLAs(t, pool.Config().ConnString(), ledgertest.Owner)
	env := append(os.Environ(), "DATABASE_URL="+owner, "NATS_URL="+nats.URL())
	first := startServe(t, binary, owner, nats.URL(), env)
	second := startServe(t, binary, owner, nats.URL(), env)
	token := exec.CommandContext(t.Context(), binary, "create", "token", "mailer", "--role", "worker")
	token.Env = env
	secret, err := token.Output()
	if err != nil {
		t.Fatal(err)
	}
	w := processWorker{t: t, token: strings.TrimSpace(string(secret)), url: roundRobin(t, first, second)}
	w.db, err = pgx.Connect(t.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}
	defer w.db.Close(context.Background())

	// A worker with many quick tasks, and one whose process has ended when it finishes.
	const quick = 200
	for i := range quick {
		w.enqueue("quick", fmt.Sprint(i))
	}
	w.enqueue("slow", "held")
	w.enqueue("slow", "lost")
	slow := w.take(first.url.String(), "slow", 2)
	w.awaitStarted("slow", 2)
	go func() {
		for w.done.Load() < quick/4 {
			time.Sleep(time.Millisecond)
		}
		first.kill()
	}()
	w.work("quick", quick)

	held, lost := slow["held"], slow["lost"]
	if ended := w.heartbeat(held.Fence); len(ended) > 0 {
		t.Errorf("the attempt is over: %+v", ended)
	}
	first7 := wire.Finish{AttemptRef: held.Ref(), Result: json.RawMessage(`7`)}
	if status, body := w.call("finish", first7); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
	for _, test := range []struct {
		result string
		status int
	}{{result: `7`, status: http.StatusOK}, {result: `8`, status: http.StatusConflict}} {
		status, body := w.call("finish", wire.Finish{AttemptRef: held.Ref(), Result: json.RawMessage(test.result)})
		if status != test.status || status == http.StatusConflict &&
			!strings.Contains(body, `"history":"/v1/tasks/slow/held/events"`) {
			t.Errorf("result %s: %d %s", test.result, status, body)
		}
	}
	// Without a heartbeat, the lease of the killed process ends, and another worker gets the task.
	if _, err := w.db.Exec(t.Context(), `update taskledger.lease set alive_until = clock_timestamp() - interval '1 s'
		where name = 'worker/' || (select actor from taskledger.event
		                            where kind = 'slow' and biz_id = 'lost' and type = 'started')`); err != nil {
		t.Fatal(err)
	}
	again := w.take(second.url.String(), "slow", 1)["lost"]
	if again.Attempt != lost.Attempt+1 {
		t.Errorf("%+v after %+v", again, lost)
	}
	status, body := w.call("finish", wire.Finish{AttemptRef: lost.Ref()})
	if status != http.StatusConflict || !strings.Contains(body, `"history":"/v1/tasks/slow/lost/events"`) {
		t.Errorf("the outcome of a lost attempt: %d %s", status, body)
	}
	if status, body := w.call("finish", wire.Finish{AttemptRef: again.Ref()}); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
}

// processWorker is a worker over HTTP whose calls go through a proxy.
type processWorker struct {
	t          *testing.T
	url, token string
	db         *pgx.Conn
	done       atomic.Int64
}

const processSession = "session-of-the-worker"

func (w *processWorker) enqueue(kind, id string) {
	w.t.Helper()
	if _, err := w.db.Exec(w.t.Context(), "select from taskledger.enqueue($1, $2)", kind, id); err != nil {
		w.t.Fatal(err)
	}
}

// call sends a call until it is answered, and returns status and body.
func (w *processWorker) call(name string, body any) (int, string) {
	w.t.Helper()
	return w.callAt(w.url, ":"+name, body)
}

func (w *processWorker) callAt(address, name string, body any) (int, string) {
	w.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		w.t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, address+"/v1/work"+name,
			strings.NewReader(string(text)))
		if err != nil {
			w.t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+w.token)
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			w.t.Fatal(err)
		}
		out, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err == nil && answer.StatusCode < 500 {
			return answer.StatusCode, string(out)
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: %d %s", name, answer.StatusCode, out)
		}
	}
}

// take asks one process for tasks until it has some.
func (w *processWorker) take(address string, kind ledger.Kind, n int) map[string]wire.Task {
	w.t.Helper()
	tasks := map[string]wire.Task{}
	ask := wire.Ask{Worker: "w", Session: processSession, Kinds: []ledger.Kind{kind}, Limit: n, Wait: new(5.0)}
	for deadline := time.Now().Add(patience); len(tasks) < n; ask.Limit = n - len(tasks) {
		var got wire.Asked
		status, body := w.callAt(address, "", ask)
		err := json.Unmarshal([]byte(body), &got)
		if err != nil || status != http.StatusOK || time.Now().After(deadline) {
			w.t.Fatalf("%d tasks: %d %s %v", len(tasks), status, body, err)
		}
		ask.Received = got.Batch
		for _, task := range got.Tasks {
			tasks[string(task.BizID)] = task
		}
		if len(tasks) == n {
			break
		}
	}
	return tasks
}

func (w *processWorker) heartbeat(fences ...string) []wire.Ended {
	w.t.Helper()
	var beaten wire.Beaten
	status, body := w.call("heartbeat", wire.Heartbeat{Session: processSession, Holds: fences})
	if err := json.Unmarshal([]byte(body), &beaten); err != nil || status != http.StatusOK {
		w.t.Fatalf("%d %s %v", status, body, err)
	}
	return beaten.Ended
}

// awaitStarted waits until the starts of so many attempts are recorded.
func (w *processWorker) awaitStarted(kind string, n int) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		var have int
		err := w.db.QueryRow(w.t.Context(), `select count(*)::integer from taskledger.event
			where kind = $1 and type = 'started'`, kind).Scan(&have)
		if err != nil || time.Now().After(deadline) {
			w.t.Fatalf("%d attempts: %v", have, err)
		}
		if have == n {
			return
		}
	}
}

// outcomes is the transport of a worker. It records how its successes were answered.
type outcomes struct {
	mu       sync.Mutex
	answered map[ledger.BizID]client.Problem // by task; the zero value: it is recorded
	given    map[ledger.BizID]wire.Task      // the first time
	again    int                             // tasks that came again under a newer fence, with the same version
}

func (o *outcomes) RoundTrip(r *http.Request) (*http.Response, error) {
	sent, err := r.GetBody()
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	isAsk := strings.HasSuffix(r.URL.Path, "/work")
	if err != nil || answer.StatusCode != http.StatusOK || !isAsk && !strings.HasSuffix(r.URL.Path, ":finish") {
		return answer, err
	}
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	answer.Body = io.NopCloser(bytes.NewReader(text))
	if isAsk {
		return answer, o.noteGiven(text)
	}
	var finish wire.FinishMany
	var finished wire.Tasks[wire.Finished[client.Problem]]
	if err := errors.Join(json.NewDecoder(sent).Decode(&finish), json.Unmarshal(text, &finished)); err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, f := range finish.Tasks {
		o.answered[f.BizID] = client.Problem{}
		if p := finished.Tasks[i].Problem; p != nil {
			o.answered[f.BizID] = *p
		}
	}
	return answer, nil
}

func (o *outcomes) noteGiven(text []byte) error {
	var asked wire.Asked
	if err := json.Unmarshal(text, &asked); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, t := range asked.Tasks {
		before, isAgain := o.given[t.BizID]
		if isAgain && before.Version == t.Version && before.Fence != t.Fence {
			o.again++
		}
		o.given[t.BizID] = t
	}
	return nil
}

// work runs the client in Go until all tasks are done, each with one effect. One that begins again is a fault, unless
// its first outcome was refused before: then a lost answer has given it to a worker.
func (w *processWorker) work(kind ledger.Kind, n int) {
	w.t.Helper()
	sender := &outcomes{answered: map[ledger.BizID]client.Problem{}, given: map[ledger.BizID]wire.Task{}}
	c, err := client.New(client.Config{URL: w.url, Token: w.token, HTTP: &http.Client{Transport: sender}})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer stop()
	var mu sync.Mutex
	effects := map[ledger.BizID]int{}
	err = c.Work(ctx, client.WorkOptions{
		Kinds: []ledger.Kind{kind}, Slots: 8,
		Handle: func(_ context.Context, task client.WorkTask) (any, error) {
			time.Sleep(10 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			if effects[task.BizID]++; effects[task.BizID] > 1 {
				sender.mu.Lock()
				problem, isAnswered := sender.answered[task.BizID]
				sender.mu.Unlock()
				if problem.Code != "attempt_ended" {
					w.t.Errorf("the effect of %s, attempt %d, has happened %d times; its outcome was answered: %v %v",
						task.BizID, task.Attempt, effects[task.BizID], isAnswered, problem)
				}
			}
			if w.done.Add(1); len(effects) == n {
				stop()
			}
			return nil, nil
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	var succeeded int
	if err := w.db.QueryRow(w.t.Context(), `select count(*)::integer from taskledger.event
		where kind = $1 and type = 'succeeded'`, string(kind)).Scan(&succeeded); err != nil || succeeded != n {
		w.t.Errorf("%d of %d tasks have succeeded: %v", succeeded, n, err)
	}
	w.t.Logf("%d tasks came again under a newer fence while they were at work", sender.again)
	if len(effects) != n {
		w.t.Errorf("%d of %d effects", len(effects), n)
	}
}
