package api_test

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/wire"
)

var idleWorkers = flag.Int("api-idle-workers", 50, "number of workers of TestManyIdleWorkers")

// idleVariable selects, in a process of the test's program, the workers that wait: client and server need a file
// descriptor for each connection, and a process may have only so many.
const idleVariable = "TASKLEDGER_TEST_IDLE_WORKERS"

// idleGroup is how many workers a process has.
const idleGroup = 5000

// idleClients are the workers of a process.
type idleClients struct {
	Address, Token string
	First, Count   int
}

// waitIdle asks for tasks as many workers, each in a session and on a connection of its own, until the input ends. It
// prints the number of a worker that has a task, which does not ask again.
func waitIdle(input io.Reader) {
	lines := bufio.NewReader(input)
	text, err := lines.ReadBytes('\n')
	var c idleClients
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	for i := range c.Count {
		if err != nil {
			break
		}
		var conn net.Conn
		if conn, err = net.Dial("tcp", c.Address); err == nil {
			go c.wait(conn, c.First+i)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "idle workers:", err)
		os.Exit(1)
	}
	_, _ = io.Copy(io.Discard, lines)
}

// wait asks as one worker until it has a task.
func (c idleClients) wait(conn net.Conn, n int) {
	ask := askFor(0, "a.b")
	wait := 50.0
	ask.Session, ask.Wait = idleSession(n), &wait
	text, _ := json.Marshal(ask) // cannot fail
	for answers := bufio.NewReader(conn); ; {
		_, err := fmt.Fprintf(conn, "POST /v1/work HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", c.Token, len(text), text)
		var answer *http.Response
		if err == nil {
			answer, err = http.ReadResponse(answers, nil)
		}
		var got wire.Asked
		if err == nil {
			err = json.NewDecoder(answer.Body).Decode(&got)
			_, _ = io.Copy(io.Discard, answer.Body)
		}
		switch {
		case err != nil || answer.StatusCode != http.StatusOK:
			fmt.Fprintln(os.Stderr, "idle worker", n, "has ended:", err)
			return
		case len(got.Tasks) > 0:
			fmt.Println(n)
			return
		}
	}
}

func idleSession(n int) string { return fmt.Sprintf("idle-worker-%08d", n) }

// startIdle starts a process with workers. It sends to given the number of each that has a task. stop ends the process.
func (s *workServer) startIdle(c idleClients, given chan<- int) (stop func()) {
	s.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), idleVariable+"=1"), os.Stderr
	input, err1 := cmd.StdinPipe()
	output, err2 := cmd.StdoutPipe()
	text, err3 := json.Marshal(c)
	if err1 != nil || err2 != nil || err3 != nil {
		s.t.Fatal(err1, err2, err3)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		for lines := bufio.NewScanner(output); lines.Scan(); {
			if n, err := strconv.Atoi(lines.Text()); err == nil {
				given <- n
			}
		}
	}()
	if _, err := fmt.Fprintf(input, "%s\n", text); err != nil {
		s.t.Error(err)
	}
	return func() {
		_ = input.Close()
		_ = cmd.Wait()
	}
}

// awaitWaiting waits until so many requests wait.
func (s *workServer) awaitWaiting(n int) {
	s.t.Helper()
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		requests, _ := s.handler.Waiting()
		if requests == n {
			return
		}
		if time.Since(begun) > 10*time.Minute {
			s.t.Fatalf("%d requests wait, want %d", requests, n)
		}
	}
}

// Many workers wait at once. A task goes to one of them; nothing is left of the others.
func TestManyIdleWorkers(t *testing.T) {
	n, tasks, idle := *idleWorkers, 1, time.Duration(0)
	if n <= 50 {
		t.Parallel()
	} else {
		tasks, idle = 50, time.Minute
	}
	s := serveWork(t, 30*time.Second)
	before, goroutines := resident(), runtime.NumGoroutine()
	given := make(chan int, n)
	stop := func() {}
	defer func() { stop() }()
	for first := 0; first < n; first += idleGroup {
		others := stop
		one := s.startIdle(idleClients{Address: strings.TrimPrefix(s.url, "http://"), Token: s.tokens[api.Worker],
			First: first, Count: min(idleGroup, n-first)}, given)
		stop = func() { one(); others() }
	}
	s.awaitWaiting(n)
	runtime.GC()
	t.Logf("%d idle workers: %.1f kB and %.1f goroutines each", n,
		float64(resident()-before)/float64(n)/1000, float64(runtime.NumGoroutine()-goroutines)/float64(n))
	begun, used := time.Now(), cpuTime()
	time.Sleep(idle)
	t.Logf("%.3f cores of this process, while they wait", (cpuTime()-used).Seconds()/time.Since(begun).Seconds())
	var took []time.Duration
	var working []int
	for i := range tasks {
		begun := time.Now()
		s.enqueue(fmt.Sprint("a.b/", i), `1`)
		working = append(working, <-given)
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	t.Logf("%d tasks were given after %s (median), at most %s", tasks, took[len(took)/2], took[len(took)-1])
	s.awaitWaiting(n - tasks)
	for _, w := range working {
		if released, err := s.work.Release(t.Context(), "a-worker", idleSession(w), nil); err != nil || released != 1 {
			t.Errorf("%d tasks of worker %d, %v", released, w, err)
		}
	}
	stop()
	s.awaitWaiting(0)
	for i := range n { // the tasks go to workers that are gone, whose answers are lost
		_, _ = s.work.Release(t.Context(), "a-worker", idleSession(i), nil)
	}
}

// cpuTime returns the time on processors of this process, 0 if it is unknown.
func cpuTime() time.Duration {
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond // ticks
}
