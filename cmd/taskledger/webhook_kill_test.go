package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/webhooks"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/webhook"
)

// hookReceiver is an HTTP server that stores the events that it gets.
type hookReceiver struct {
	t *testing.T

	mu       sync.Mutex
	requests map[string]int    // by webhook-id
	events   map[string]string // by webhook-id: key and version of the event
	open     int               // requests without an answer
	held     chan struct{}     // closed: requests are answered
}

func (r *hookReceiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	var body struct {
		Data struct {
			Kind    string
			BizID   string `json:"biz_id"`
			Version int
		}
	}
	if err := json.NewDecoder(request.Body).Decode(&body); err != nil {
		return // the sender was killed
	}
	_, _ = io.Copy(io.Discard, request.Body) // then the end of the sender ends the request's context
	id := request.Header.Get(webhook.HeaderID)
	event := fmt.Sprintf("%s/%s/%d", body.Data.Kind, body.Data.BizID, body.Data.Version)
	r.mu.Lock()
	if before := r.events[id]; before != "" && before != event {
		r.t.Errorf("%s is %s, and was %s", id, event, before)
	}
	r.requests[id]++
	r.events[id] = event
	r.open++
	held := r.held
	r.mu.Unlock()
	select {
	case <-held:
	case <-request.Context().Done():
	}
	r.mu.Lock()
	r.open--
	r.mu.Unlock()
}

// hold has later requests wait, or answers them.
func (r *hookReceiver) hold(isHeld bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if isHeld {
		r.held = make(chan struct{})
		return
	}
	close(r.held)
}

func (r *hookReceiver) count() (events, open int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.events), r.open
}

// A process of serve webhooks that is killed while requests are without an answer loses no event: another process sends
// each of those again, with the same webhook-id and the same event, and each event has one delivery.
func TestKilledWebhooksLoseNothing(t *testing.T) {
	t.Parallel()
	address := ledgertest.URL(t, "relay", "reader", "api", "producer", "operator")
	s := startServed(t, address)
	r := &hookReceiver{t: t, requests: map[string]int{}, events: map[string]string{}}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	secret, file := filepath.Join(dir, "secret"), filepath.Join(dir, "webhooks.yaml")
	config := fmt.Sprintf("receivers: [{name: shop, url: %q, secret_file: %q, kinds: [a.b],\n"+
		"types: [enqueued, cancelled], allow: [127.0.0.0/8], slots: 4, from_beginning: true,\n"+
		"retry: {ladder: [0.1], attempts: 100}}]", server.URL, secret)
	for name, text := range map[string]string{secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n", file: config} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.env = append(s.env, envDatabaseURL+"="+ledgertest.URLAs(t, address, ledgertest.App, "subscriber"))
	start := func() *exec.Cmd {
		cmd := exec.Command("taskledger", "serve", "webhooks", "--webhooks", file)
		cmd.Env, cmd.Stderr = s.env, t.Output()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		return cmd
	}
	await := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.Now().Add(4 * patience); !ok(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				events, open := r.count()
				t.Fatalf("still waiting until %s: %d events, %d open requests", what, events, open)
			}
		}
	}
	const kills, each = 3, 12
	want := map[string]bool{}
	for kill := range kills {
		var tasks []string
		for i := range each {
			id := fmt.Sprint(kill, "-", i)
			tasks = append(tasks, fmt.Sprintf(`{"kind":"a.b","biz_id":%q}`, id))
			want["a.b/"+id+"/1"], want["a.b/"+id+"/2"] = true, true
		}
		r.hold(true)
		s.send(http.MethodPost, "/v1/tasks:batch", `{"tasks":[`+strings.Join(tasks, ",")+`]}`)
		for i := range each {
			s.send(http.MethodDelete, fmt.Sprintf("/v1/tasks/a.b/%d-%d", kill, i), "")
		}
		process := start()
		await("requests are open", func() bool { _, open := r.count(); return open > 0 })
		if err := process.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = process.Wait()
		await("the killed process has gone", func() bool { _, open := r.count(); return open == 0 })
		r.hold(false)
	}
	start()
	await("all events are delivered", func() bool { events, _ := r.count(); return events == len(want) })
	deliveries := "/v1/tasks?limit=1000&kind=" + string(webhooks.Kind("shop"))
	await("all deliveries have succeeded", func() bool {
		return strings.Count(s.send(http.MethodGet, deliveries+"&state=succeeded", ""), `"biz_id"`) >= len(want)
	})
	if n := strings.Count(s.send(http.MethodGet, deliveries, ""), `"biz_id"`); n != len(want) {
		t.Errorf("%d deliveries of %d events", n, len(want))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	repeated := 0
	for id, event := range r.events {
		if !want[event] {
			t.Errorf("received %s", event)
		}
		if r.requests[id] > 1 {
			repeated++
		}
	}
	t.Logf("%d events, %d of them more than once", len(r.events), repeated)
	if repeated == 0 {
		t.Error("no event was sent again: no process was killed while requests were open")
	}
}
