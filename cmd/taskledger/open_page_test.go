package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/reserve"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// openPage is a browser with a page of serve, which is ended and started again under it.
type openPage struct {
	t       *testing.T
	address string // of the database
	dir     string
	listen  string
	serve   *exec.Cmd
	client  *http.Client
}

func newOpenPage(t *testing.T) *openPage {
	t.Helper()
	port, err := reserve.Port()
	if err != nil {
		t.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &openPage{t: t, address: ledgertest.URL(t, "relay", "reader", "api", "operator", "producer"), dir: t.TempDir(),
		listen: fmt.Sprintf("127.0.0.1:%d", port), client: &http.Client{Jar: jar}}
	t.Cleanup(func() { p.end(syscall.SIGKILL) })
	return p
}

// run runs a command of taskledger and returns its output.
func (p *openPage) run(args ...string) string {
	p.t.Helper()
	out, err := p.command(args...).Output()
	if err != nil {
		p.t.Fatalf("%s: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

func (p *openPage) command(args ...string) *exec.Cmd {
	cmd := exec.Command("taskledger", args...)
	cmd.Env = append(os.Environ(), envDatabaseURL+"="+p.address, envNATSURL+"=", envLogins+"=", envDataDir+"="+p.dir)
	cmd.Stderr = p.t.Output()
	return cmd
}

// start starts serve and waits until it answers.
func (p *openPage) start() {
	p.t.Helper()
	p.serve = p.command("serve", "--listen", p.listen)
	if err := p.serve.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.await("serve answers", func() bool {
		answer, err := p.client.Get("http://" + p.listen + "/healthz")
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
}

// end ends serve by a signal.
func (p *openPage) end(signal syscall.Signal) {
	if p.serve == nil {
		return
	}
	_ = p.serve.Process.Signal(signal)
	_ = p.serve.Wait()
	p.serve = nil
}

func (p *openPage) await(what string, isSo func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); !isSo(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("still waiting until %s", what)
		}
	}
}

// load requests a page, by POST if form is not nil.
func (p *openPage) load(path string, form url.Values) (status int, page string) {
	p.t.Helper()
	method := http.MethodGet
	if form != nil {
		method = http.MethodPost
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+p.listen+path, strings.NewReader(form.Encode()))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := p.client.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// csrf returns the token of the last form of a page.
func (p *openPage) csrf(path string) string {
	p.t.Helper()
	status, page := p.load(path, nil)
	all := formTokenField.FindAllStringSubmatch(page, -1)
	if all == nil {
		p.t.Fatalf("%s: status %d, no form: %s", path, status, page)
	}
	return all[len(all)-1][1]
}

// stream opens the stream of the page. Each change is sent on the channel, which is closed at the end of the stream.
func (p *openPage) stream() <-chan struct{} {
	p.t.Helper()
	answer, err := p.client.Get("http://" + p.listen + "/stream")
	if err != nil {
		p.t.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK {
		p.t.Fatalf("the stream answers with %s", answer.Status)
	}
	lines, changes := bufio.NewScanner(answer.Body), make(chan struct{}, 100)
	lines.Scan() // the stream is open
	go func() {
		defer close(changes)
		defer func() { _ = answer.Body.Close() }()
		for lines.Scan() {
			if lines.Text() == "event: change" {
				changes <- struct{}{}
			}
		}
	}()
	return changes
}

// next waits for a change, or with isEnd for the end of the stream.
func (p *openPage) next(changes <-chan struct{}, isEnd bool) {
	p.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case _, isOpen := <-changes:
			if isOpen != isEnd {
				return
			}
			if !isOpen {
				p.t.Fatal("the stream has ended")
			}
		case <-timeout:
			p.t.Fatal("the stream has no change, or no end")
		}
	}
}

// Under a page that is open, serve is shut down and killed, and starts again: the page follows the ledger again with
// the cookies that it has, and its form, which is older than the process, works. When the token is revoked, the stream
// ends and the form changes nothing.
func TestRestartUnderAnOpenPage(t *testing.T) {
	t.Parallel()
	p := newOpenPage(t)
	secret := p.run("create", "token", "ada", "--role", "operator")
	p.start()
	if status, page := p.load("/sign-in", url.Values{"csrf": {p.csrf("/sign-in")}, "token": {secret}}); status != 200 {
		t.Fatalf("status %d: %s", status, page)
	}
	form := url.Values{"csrf": {p.csrf("/tasks")}, "act": {"cancel"}, "confirm": {"yes"}, "reason": {"ordered twice"}}
	cancel := func(bizID string) (status int, page string) {
		t.Helper()
		p.run("enqueue", "coupon.send", bizID)
		form.Set("key", url.Values{"kind": {"coupon.send"}, "biz_id": {bizID}}.Encode())
		return p.load("/act", form)
	}
	for i, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		changes := p.stream()
		p.run("enqueue", "coupon.send", fmt.Sprint("before-", i))
		p.next(changes, false)
		p.end(signal)
		p.next(changes, true)
		p.start()
		changes = p.stream()
		status, page := cancel(fmt.Sprint("order-", i))
		if status != 200 || !strings.Contains(page, "1 of 1 tasks were changed") {
			t.Fatalf("status %d: %s", status, page)
		}
		p.next(changes, false)
		p.wantState(fmt.Sprint("order-", i), ledger.StateCancelled)
	}

	changes := p.stream()
	id, _, _ := strings.Cut(strings.TrimPrefix(secret, "tlk_"), "_")
	p.run("delete", "token", id)
	p.next(changes, true)
	if status, page := cancel("order-9"); status != 401 || !strings.Contains(page, "Nothing was changed.") {
		t.Errorf("status %d: %s", status, page)
	}
	p.wantState("order-9", ledger.StateAvailable)
}

func (p *openPage) wantState(bizID string, want ledger.State) {
	p.t.Helper()
	out := p.run("show", "task", "coupon.send", bizID, "-o", "json")
	if !strings.Contains(out, fmt.Sprintf("%q", want)) {
		p.t.Errorf("%s is not %s: %s", bizID, want, out)
	}
}
