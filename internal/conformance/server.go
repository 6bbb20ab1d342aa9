package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/strictjson"
	"github.com/taskledger/taskledger/internal/wire"
	"github.com/taskledger/taskledger/ledger"
)

const (
	kind  = "conformance.task"
	slots = 4
	token = "tlk_conformance_secret"
	// beatEvery is the interval of heartbeats that the server requests.
	beatEvery = 200 * time.Millisecond
)

// server plays the server's part. It records the calls and checks their form.
type server struct {
	http *httptest.Server

	mu      sync.Mutex // guards the fields below
	queue   []wire.Task
	given   map[string]wire.Task // by fence, until the outcome
	held    map[string]int       // tasks that a session holds
	batches map[string]int       // by session
	asking  map[string]int       // calls at a time, by session
	wake    chan struct{}        // closed when queue grows
	faults  []string             // violations of the protocol
	calls   []call
	answers map[string][]reply // the next answers to calls, by call and biz_id
	ended   map[string]string  // reasons of attempts that are over, by fence
	dropped int                // next answers with tasks to be lost
	again   bool               // the next answer repeats the tasks at work
	hints   bool               // the next answer has no tasks, and a hint
	busy    map[string]bool    // calls that get 503, by call and biz_id
	refuses bool               // with 401
	killed  string             // session of a killed process, whose requests may still arrive
}

// call is a call of the client.
type call struct {
	name    string // ask, heartbeat, finish, fail, snooze, progress, release
	session string
	biz     ledger.BizID
	fence   string
	body    json.RawMessage // of the attempt
	at      time.Time
	holds   []string
}

// reply is an answer to an outcome. Status 0 ends the connection without an answer.
type reply struct {
	status     int
	code       string
	retryAfter int
}

func newServer() *server {
	s := &server{
		given: map[string]wire.Task{}, held: map[string]int{}, batches: map[string]int{},
		asking: map[string]int{}, wake: make(chan struct{}), answers: map[string][]reply{}, ended: map[string]string{},
		busy: map[string]bool{},
	}
	s.http = httptest.NewServer(s)
	return s
}

func (s *server) fault(format string, a ...any) {
	if text := fmt.Sprintf(format, a...); len(s.faults) < 20 {
		s.faults = append(s.faults, text)
	}
}

// add makes a task available.
func (s *server) add(id, args string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := wire.Task{
		Kind: kind, BizID: ledger.BizID(id), Version: 1, Attempt: 1, Args: json.RawMessage(args), Priority: 3,
		AvailableAt: time.Now(), Timeout: 900,
	}
	s.addTask(t)
}

// addTask makes a task available. The server is locked.
func (s *server) addTask(t wire.Task) {
	t.Fence = fmt.Sprintf("fence-%d-%s", len(s.calls), t.BizID)
	if len(t.Fence) > 100 {
		t.Fence = t.Fence[:100]
	}
	t.Fence = regexp.MustCompile(`[^A-Za-z0-9-]`).ReplaceAllString(t.Fence, "x")
	s.queue = append(s.queue, t)
	s.wakeUp()
}

// wakeUp ends the wait of calls for tasks. The server is locked.
func (s *server) wakeUp() {
	close(s.wake)
	s.wake = make(chan struct{})
}

// found returns the calls of a name about a task.
func (s *server) found(name, id string) (found []call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if c.name == name && (id == "" || string(c.biz) == id) {
			found = append(found, c)
		}
	}
	return found
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/v1/work"), ":")
	s.mu.Lock()
	if r.Method != http.MethodPost || !strings.HasPrefix(r.URL.Path, "/v1/work") || r.URL.RawQuery != "" {
		s.fault("%s %s is not a call of a worker", r.Method, r.URL)
	}
	if got := r.Header.Get("Authorization"); got != "Bearer "+token {
		s.fault("Authorization is %q", got)
	}
	if got := r.Header.Get("Content-Type"); !strings.HasPrefix(got, "application/json") {
		s.fault("Content-Type is %q", got)
	}
	refuses := s.refuses
	s.mu.Unlock()
	// The clock of the server differs from the client's.
	w.Header().Set("Date", time.Now().Add(-26*time.Hour).UTC().Format(http.TimeFormat))
	var text json.RawMessage
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 16<<20)).Decode(&text); err != nil {
		s.problem(w, reply{status: http.StatusBadRequest, code: "invalid"}, err.Error())
		return
	}
	switch {
	case refuses:
		s.problem(w, reply{status: http.StatusUnauthorized, code: "unauthenticated"}, "the token is unknown")
	case name == "":
		s.ask(w, r, text)
	case name == "heartbeat":
		s.heartbeat(w, text)
	case name == "release":
		s.release(w, text)
	case name == "finish":
		s.finish(w, text)
	default:
		s.outcome(w, name, text)
	}
}

// decode decodes a body, and refuses members that the protocol does not define.
func decode[T any](s *server, w http.ResponseWriter, text json.RawMessage) (body T, ok bool) {
	if err := strictjson.Unmarshal(text, &body); err != nil {
		s.mu.Lock()
		s.fault("%.200s: %v", text, err)
		s.mu.Unlock()
		s.problem(w, reply{status: http.StatusBadRequest, code: "invalid"}, err.Error())
		return body, false
	}
	return body, true
}

// answer sends a value, with a member that no client knows.
func (s *server) answer(w http.ResponseWriter, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	text = append([]byte(`{"later_member":{"x":[1]},`), text[1:]...)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n'))
}

func (s *server) problem(w http.ResponseWriter, r reply, detail string) {
	if r.status == 0 {
		panic(http.ErrAbortHandler) // ends the connection
	}
	if r.retryAfter > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(r.retryAfter))
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(r.status)
	_ = json.NewEncoder(w).Encode(client.Problem{Code: r.code, Status: r.status, Title: "refused", Detail: detail,
		Cure: "none", Type: "about:blank", RetryAfter: r.retryAfter})
}

var (
	workerRule  = regexp.MustCompile(`^[A-Za-z0-9._@+-]{1,128}$`)
	sessionRule = regexp.MustCompile(`^[A-Za-z0-9_-]{16,64}$`)
)

// ask gives tasks.
func (s *server) ask(w http.ResponseWriter, r *http.Request, text json.RawMessage) {
	body, ok := decode[wire.Ask](s, w, text)
	if !ok {
		return
	}
	s.mu.Lock()
	if !workerRule.MatchString(body.Worker) || !sessionRule.MatchString(body.Session) ||
		len(body.Kinds) != 1 || body.Kinds[0] != kind || body.Limit < 1 || body.Limit > slots {
		s.fault("invalid request for tasks: %s", text)
	}
	if s.asking[body.Session]++; s.asking[body.Session] > 1 && s.dropped == 0 {
		s.fault("a session asks twice at a time")
	}
	defer func() {
		s.mu.Lock()
		s.asking[body.Session]--
		s.mu.Unlock()
	}()
	last, isBatch := s.batches[body.Session], false
	for n := 0; n <= last && !isBatch; n++ {
		isBatch = body.Received == batchOf(n)
	}
	if !isBatch {
		s.fault("received is %q, and the last batch %q", body.Received, batchOf(last))
	}
	s.calls = append(s.calls, call{name: "ask", session: body.Session, body: text, at: time.Now()})
	tasks := s.unread(body)
	wait := 20 * time.Second
	if body.Wait != nil {
		wait = time.Duration(*body.Wait * float64(time.Second))
	}
	timeUp := time.After(wait)
	for isUp := false; len(tasks) == 0 && !isUp; {
		if body.Session == s.killed {
			s.mu.Unlock()
			return
		}
		if s.hints {
			break
		}
		if len(s.queue) > 0 {
			n := min(len(s.queue), body.Limit)
			tasks = append(tasks, s.queue[:n]...)
			s.queue = s.queue[n:]
			break
		}
		wake := s.wake
		s.mu.Unlock()
		select {
		case <-wake:
		case <-timeUp:
			isUp = true
		case <-r.Context().Done():
			return
		}
		s.mu.Lock()
	}
	answer := wire.Asked{Protocol: "1.1", Batch: batchOf(s.batches[body.Session]), HeartbeatEvery: beatEvery.Seconds(),
		Tasks: tasks}
	if tasks == nil {
		answer.Tasks = []wire.Task{}
		if s.hints {
			answer.UnknownKinds = []wire.UnknownKind{{Kind: kind, Similar: []ledger.Kind{"conformance.tasks"},
				Detail: "no task of kind conformance.task has been enqueued yet; did you mean conformance.tasks?"}}
		}
		s.hints = false
	} else {
		s.batches[body.Session]++
		answer.Batch = batchOf(s.batches[body.Session])
		for _, t := range tasks {
			s.given[t.Fence] = t
		}
	}
	isLost := len(tasks) > 0 && s.dropped > 0
	if isLost {
		s.dropped--
	}
	s.mu.Unlock()
	if isLost {
		panic(http.ErrAbortHandler)
	}
	s.answer(w, answer)
}

// batchOf returns the text of the n-th answer with tasks of a session. It has no order that a client could use.
func batchOf(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("b.%d~a.1", n)
}

// unread returns the tasks of lost answers, or all at work if the scenario repeats them. The server is locked.
func (s *server) unread(body wire.Ask) (tasks []wire.Task) {
	if body.Received == batchOf(s.batches[body.Session]) && !s.again {
		return nil
	}
	s.again = false
	for _, t := range s.given {
		t.Again = true
		tasks = append(tasks, t)
	}
	return tasks
}

func (s *server) heartbeat(w http.ResponseWriter, text json.RawMessage) {
	body, ok := decode[wire.Heartbeat](s, w, text)
	if !ok {
		return
	}
	s.mu.Lock()
	s.calls = append(s.calls, call{name: "heartbeat", session: body.Session, holds: body.Holds, at: time.Now()})
	answer := wire.Beaten{HeartbeatEvery: beatEvery.Seconds(), Ended: []wire.Ended{}}
	for _, f := range body.Holds {
		if reason := s.ended[f]; reason != "" {
			answer.Ended = append(answer.Ended,
				wire.Ended{Fence: f, Reason: reason, Kind: kind, BizID: s.given[f].BizID})
		}
	}
	s.mu.Unlock()
	s.answer(w, answer)
}

func (s *server) release(w http.ResponseWriter, text json.RawMessage) {
	body, ok := decode[wire.Release](s, w, text)
	if !ok {
		return
	}
	s.mu.Lock()
	s.calls = append(s.calls, call{name: "release", session: body.Session, holds: body.Holds, at: time.Now()})
	n := len(s.given)
	s.mu.Unlock()
	s.answer(w, wire.Released{Released: n})
}

// note records an outcome, and returns the answer that the scenario has for it.
func (s *server) note(name string, ref wire.AttemptRef, text json.RawMessage) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call{name: name, biz: ref.BizID, fence: ref.Fence, body: text, at: time.Now()})
	t, isGiven := s.given[ref.Fence]
	if !isGiven || t.Kind != ref.Kind || t.BizID != ref.BizID || t.Attempt != ref.Attempt {
		if !s.wasAnswered(name, ref) {
			s.fault("%s of an attempt that the client does not have: %.200s", name, text)
		}
		return reply{status: http.StatusOK}
	}
	key := name + " " + string(ref.BizID)
	if s.busy[key] {
		return reply{status: http.StatusServiceUnavailable, code: "unavailable"}
	}
	if next := s.answers[key]; len(next) > 0 {
		s.answers[key] = next[1:]
		return next[0]
	}
	if name != "progress" {
		delete(s.given, ref.Fence)
	}
	return reply{status: http.StatusOK}
}

// wasAnswered reports whether the same outcome was recorded before. The server is locked.
func (s *server) wasAnswered(name string, ref wire.AttemptRef) bool {
	n := 0
	for _, c := range s.calls {
		if c.name == name && c.fence == ref.Fence {
			n++
		}
	}
	return n > 1
}

func (s *server) finish(w http.ResponseWriter, text json.RawMessage) {
	body, ok := decode[wire.FinishMany](s, w, text)
	if !ok {
		return
	}
	if body.Tasks == nil {
		s.conclude(w, s.note("finish", body.AttemptRef, text))
		return
	}
	answer := wire.Tasks[wire.Finished[client.Problem]]{Tasks: make([]wire.Finished[client.Problem], len(body.Tasks))}
	for i, t := range body.Tasks {
		one, err := json.Marshal(t)
		if err != nil {
			panic(err)
		}
		r := s.note("finish", t.AttemptRef, one)
		switch {
		case r.status == http.StatusOK:
			answer.Tasks[i].State = ledger.StateSucceeded
		case r.status == http.StatusConflict || r.status == http.StatusBadRequest && len(body.Tasks) > 1:
			answer.Tasks[i].Problem = &client.Problem{Code: r.code, Status: r.status, Detail: "refused"}
		default: // of the whole call
			s.conclude(w, r)
			return
		}
	}
	s.answer(w, answer)
}

// outcome is fail, snooze or progress.
func (s *server) outcome(w http.ResponseWriter, name string, text json.RawMessage) {
	var ref wire.AttemptRef
	ok := false
	switch name {
	case "fail":
		var body wire.Fail
		body, ok = decode[wire.Fail](s, w, text)
		ref = body.AttemptRef
	case "snooze":
		var body wire.Snooze
		body, ok = decode[wire.Snooze](s, w, text)
		ref = body.AttemptRef
	case "progress":
		var body wire.ReportProgress
		body, ok = decode[wire.ReportProgress](s, w, text)
		ref = body.AttemptRef
	default:
		s.problem(w, reply{status: http.StatusNotFound, code: "not_found"}, "no such call")
		return
	}
	if ok {
		s.conclude(w, s.note(name, ref, text))
	}
}

func (s *server) conclude(w http.ResponseWriter, r reply) {
	if r.status == http.StatusOK {
		s.answer(w, wire.Outcome{State: ledger.StateSucceeded})
		return
	}
	s.problem(w, r, "refused by the scenario")
}
