package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Environment of a child process.
const (
	databaseVariable = "TASKLEDGER_DEMO_DATABASE_URL"
	natsVariable     = "TASKLEDGER_DEMO_NATS_URL"
	freezeVariable   = "TASKLEDGER_DEMO_FREEZE" // n: stop (SIGSTOP) in the n-th call of the handler
	faultVariable    = "TASKLEDGER_FAULT"
)

// counters count the children's reports.
type counters struct {
	fenced, takenOver, lost atomic.Int64
}

// add counts one report. It ignores reports that the demo's [Report] does not show.
func (c *counters) add(event string) {
	switch event {
	case "fenced":
		c.fenced.Add(1)
	case "taken_over":
		c.takenOver.Add(1)
	case "lost":
		c.lost.Add(1)
	}
}

// childReport is one line that a child writes. It writes each event at once, so that a kill loses
// no report.
type childReport struct {
	Event string `json:"event"`
}

// children starts the child processes, reads their reports and stops them.
type children struct {
	command  []string // of this binary, up to the role
	environ  []string
	natsURLs map[string]string // by role, the name of its user
	log      *slog.Logger
	counters *counters

	kills atomic.Int64
	mu    sync.Mutex
	all   []*child // guarded by mu
}

// child is one process.
type child struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.Closer     // closed: the child stops; the end of the parent closes it too
	frozen chan struct{} // closed when the child is about to freeze
	done   chan struct{} // closed when the process has ended
	killed bool          // by SIGKILL; valid after done is closed
}

// start starts a child in a role, with extra in its environment.
func (c *children) start(ctx context.Context, role, name string, extra ...string) (*child, error) {
	arguments := append(append([]string{}, c.command[1:]...), role, name)
	cmd := exec.Command(c.command[0], arguments...)
	cmd.Env = append(append(os.Environ(), c.environ...), natsVariable+"="+c.natsURLs[role])
	cmd.Env = append(cmd.Env, extra...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	one := &child{name: name, cmd: cmd, stdin: stdin, frozen: make(chan struct{}), done: make(chan struct{})}
	c.mu.Lock()
	c.all = append(c.all, one)
	c.mu.Unlock()
	go c.watch(ctx, one, stdout)
	return one, nil
}

// watch reads a child's reports until it ends.
func (c *children) watch(ctx context.Context, of *child, stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var r childReport
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue
		}
		if r.Event == "freezing" {
			close(of.frozen)
		}
		c.counters.add(r.Event)
	}
	err := of.cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() &&
			status.Signal() == syscall.SIGKILL {
			of.killed = true
			c.kills.Add(1)
		}
	}
	if err != nil && !of.killed {
		c.log.ErrorContext(ctx, "child process failed", "child", of.name, "error", err)
	}
	close(of.done)
}

// stop stops every child and waits for it. It kills a child that is still running after 20 s.
func (c *children) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.all {
		_ = one.stdin.Close()
	}
	for _, one := range c.all {
		select {
		case <-one.done:
		case <-time.After(20 * time.Second):
			_ = one.cmd.Process.Kill()
			<-one.done
		}
	}
}
