package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

var idleClients = flag.Int("idle-clients", 200, "number of streams and of long polls of TestIdleClients")

// A process of serve holds streams and long polls in little memory and with few goroutines each. An event reaches all
// of them. When they have gone, nothing of them is left, and the next ones take the same memory again.
func TestIdleClients(t *testing.T) {
	if *idleClients <= 200 {
		t.Parallel()
	}
	n := *idleClients
	k := ledger.Key{Kind: "a.b", BizID: "1"}
	address := ledgertest.URL(t, "relay", "reader", "api", "producer", "operator")
	s := startServed(t, address)
	s.enqueue(k)
	if status := s.send(http.MethodGet, "/v1/status", ""); !strings.Contains(status, `"stream":{`) {
		t.Errorf("the status is not that of the services: %s", status)
	}
	before := s.resources()
	for wave := range 2 {
		clients := s.open(k, n, wave+1)
		during := s.awaitGoroutines(func(goroutines int) bool { return goroutines >= before.goroutines+2*n })
		each := float64(during.memory-before.memory) / float64(2*n) / 1000
		t.Logf("%d streams and %d long polls: %.1f kB and %.1f goroutines each; resident %d MB, before %d MB", n, n,
			each, float64(during.goroutines-before.goroutines)/float64(2*n), during.memory/1e6, before.memory/1e6)
		if each > 150 {
			t.Errorf("%.0f kB for each client, want at most 150", each)
		}
		if limit := before.goroutines + 3*2*n; during.goroutines > limit {
			t.Errorf("%d goroutines, want at most %d", during.goroutines, limit)
		}
		s.change(k, wave)
		for _, c := range clients {
			c.find(c.wanted)
			c.conn.Close()
		}
		s.awaitGoroutines(func(goroutines int) bool { return goroutines <= before.goroutines+10 })
	}
}

// idleServe is a process of serve.
type idleServe struct {
	t   *testing.T
	url string
	env []string // of other processes that use its servers
}

// startServed starts a process of serve, which ends with the test, without an error.
func startServed(t *testing.T, address string) *idleServe {
	t.Helper()
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listen := l.Addr().String()
	l.Close()
	cmd := exec.Command("taskledger", "serve", "--listen", listen, "--http-anonymous")
	env := append(os.Environ(), envDatabaseURL+"="+address, envNATSURL+"="+server.URL(), envLogins+"=")
	cmd.Env = env
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = io.Discard, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		if err := cmd.Wait(); err != nil {
			t.Errorf("serve: %v: %s", err, log.String())
		}
		_ = server.Close()
	})
	s := &idleServe{t, "http://" + listen, env}
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		response, err := http.Get(s.url + "/readyz")
		if err == nil {
			response.Body.Close()
		}
		if err == nil && response.StatusCode == http.StatusOK {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("serve is not ready: %v: %s", err, log.String())
		}
	}
}

// resources are the resident memory of a process in bytes, and its goroutines.
type resources struct{ memory, goroutines int }

var (
	residentMetric   = regexp.MustCompile(`(?m)^process_resident_memory_bytes (\S+)$`)
	goroutinesMetric = regexp.MustCompile(`(?m)^go_goroutines (\S+)$`)
)

func (s *idleServe) resources() resources {
	s.t.Helper()
	text := s.send(http.MethodGet, "/metrics", "")
	read := func(metric *regexp.Regexp) int {
		found := metric.FindStringSubmatch(text)
		if found == nil {
			s.t.Fatalf("/metrics has no %s", metric)
		}
		n, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			s.t.Fatal(err)
		}
		return int(n)
	}
	return resources{read(residentMetric), read(goroutinesMetric)}
}

// awaitGoroutines waits until the number of goroutines is as wanted.
func (s *idleServe) awaitGoroutines(isWanted func(int) bool) resources {
	s.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		now := s.resources()
		if isWanted(now.goroutines) {
			return now
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%d goroutines", now.goroutines)
		}
	}
}

// send sends a request that must succeed, and returns the answer.
func (s *idleServe) send(method, path, body string) string {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= http.StatusMultipleChoices {
		s.t.Fatalf("%s %s: %d %s %v", method, path, response.StatusCode, text, err)
	}
	return string(text)
}

func (s *idleServe) enqueue(k ledger.Key) {
	s.send(http.MethodPost, "/v1/tasks", fmt.Sprintf(`{"kind":%q,"biz_id":%q}`, k.Kind, k.BizID))
}

// change makes the next event of the task: it is cancelled and released in turn.
func (s *idleServe) change(k ledger.Key, wave int) {
	change := []string{":cancel", ":release"}[wave%2]
	s.send(http.MethodPost, "/v1/tasks/"+string(k.Kind)+"/"+string(k.BizID)+change, "{}")
}

// idleClient is a connection with a stream or a long poll.
type idleClient struct {
	t      *testing.T
	conn   net.Conn
	lines  *bufio.Scanner
	wanted string // what begins the line of the event that it waits for
}

// open opens n streams and n long polls for a version other than the one that the task has.
func (s *idleServe) open(k ledger.Key, n, version int) []*idleClient {
	s.t.Helper()
	clients := make([]*idleClient, 2*n)
	for i := range clients {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { conn.Close() })
		c := &idleClient{s.t, conn, bufio.NewScanner(conn), "data: {"}
		clients[i] = c
		target := "/v1/events HTTP/1.1\r\nAccept: text/event-stream"
		if i >= n {
			target = fmt.Sprintf("/v1/tasks/%s/%s?wait=60 HTTP/1.1\r\nIf-None-Match: %q", k.Kind, k.BizID,
				strconv.Itoa(version))
			c.wanted = "HTTP/1.1 200"
		}
		if _, err := fmt.Fprintf(conn, "GET %s\r\nHost: 127.0.0.1\r\n\r\n", target); err != nil {
			s.t.Fatal(err)
		}
	}
	for _, c := range clients[:n] {
		c.find("retry: ")
	}
	return clients
}

// find reads up to a line with a prefix.
func (c *idleClient) find(prefix string) {
	c.t.Helper()
	_ = c.conn.SetReadDeadline(time.Now().Add(patience))
	for c.lines.Scan() {
		if strings.HasPrefix(c.lines.Text(), prefix) {
			return
		}
	}
	c.t.Fatalf("the connection has no line %q: %v", prefix, c.lines.Err())
}
