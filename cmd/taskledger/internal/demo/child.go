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
	freezeVariable   = "TASKLEDGER_DEMO_FREEZE" // stop (SIGSTOP) at the n-th passage in mid-handler
	faultVariable    = "TASKLEDGER_FAULT"
)

// tally is what the children report, added up.
type tally struct {
	redelivered, adopted, fenced, ghosts, takenOver, lost, parked atomic.Int64
}

func (t *tally) add(event string) {
	switch event {
	case "redelivered":
		t.redelivered.Add(1)
	case "adopted":
		t.adopted.Add(1)
	case "fenced":
		t.fenced.Add(1)
	case "ghost":
		t.ghosts.Add(1)
	case "taken_over":
		t.takenOver.Add(1)
	case "lost":
		t.lost.Add(1)
	case "parked":
		t.parked.Add(1)
	}
}

// report is one line that a child writes: what happened, as it happens, so that nothing is
// forgotten when it is killed.
type report struct {
	Event string `json:"event"`
}

// children starts, watches and kills the child processes.
type children struct {
	command []string // of this binary, up to the role
	environ []string
	log     *slog.Logger
	tally   *tally

	kills atomic.Int64
	mu    sync.Mutex
	all   []*child
}

// child is one process.
type child struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.Closer     // closing it asks the child to stop; it also closes when the parent dies
	frozen chan struct{} // closed when the child is about to stop itself
	done   chan struct{} // closed when it has ended
	killed bool          // by SIGKILL; valid once done
}

// start runs a child in a role; extra is its additional environment.
func (c *children) start(ctx context.Context, role, name string, extra ...string) (*child, error) {
	arguments := append(append([]string{}, c.command[1:]...), role, name)
	cmd := exec.Command(c.command[0], arguments...)
	cmd.Env = append(append(os.Environ(), c.environ...), extra...)
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
	started := &child{name: name, cmd: cmd, stdin: stdin, frozen: make(chan struct{}), done: make(chan struct{})}
	c.mu.Lock()
	c.all = append(c.all, started)
	c.mu.Unlock()
	go c.watch(ctx, started, stdout)
	return started, nil
}

// watch reads a child's reports until it ends.
func (c *children) watch(ctx context.Context, of *child, stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var r report
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue
		}
		if r.Event == "freezing" {
			close(of.frozen)
		}
		c.tally.add(r.Event)
	}
	err := of.cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
			of.killed = true
			c.kills.Add(1)
		}
	}
	if err != nil && !of.killed {
		c.log.ErrorContext(ctx, "a child process failed", "child", of.name, "error", err)
	}
	close(of.done)
}

// stop asks every child to end and waits for them.
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
