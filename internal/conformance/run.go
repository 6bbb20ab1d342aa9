package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Result is the result of a scenario.
type Result struct {
	Scenario string
	Faults   []string // none: it has passed
	Log      string   // output of the client
}

// Config configures [Run].
type Config struct {
	Command []string // of the client under test. Required.
	Dir     string   // Default: the working directory.
	Env     []string // in addition to this process's
	Only    string   // a part of the names of the scenarios to run. Default: all.
	// Patience bounds each wait. Default: 20 s.
	Patience time.Duration
}

// Run runs the scenarios, one after the other, each with a new process of the client.
func Run(ctx context.Context, c Config) (results []Result) {
	if c.Patience == 0 {
		c.Patience = 20 * time.Second
	}
	for _, s := range scenarios {
		if strings.Contains(s.name, c.Only) && ctx.Err() == nil {
			results = append(results, c.run(ctx, s))
		}
	}
	return results
}

// Scenarios returns the names of all scenarios.
func Scenarios() (names []string) {
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	return names
}

// bench is a scenario that runs: the server, and the process of the client.
type bench struct {
	*server
	config  Config
	ctx     context.Context
	process *process
	log     output
}

// errStop ends a scenario that cannot continue.
var errStop = errors.New("stop")

func (c Config) run(ctx context.Context, s scenario) (r Result) {
	b := &bench{server: newServer(), config: c, ctx: ctx}
	r.Scenario = s.name
	defer func() {
		if v := recover(); v != nil && v != errStop { //nolint:errorlint // the value of b.stop
			panic(v)
		}
		if b.process != nil {
			b.process.kill()
		}
		b.http.CloseClientConnections()
		b.http.Close()
		b.mu.Lock()
		defer b.mu.Unlock()
		r.Faults, r.Log = b.faults, b.log.String()
	}()
	b.start()
	s.run(b)
	return r
}

// failf records a fault.
func (b *bench) failf(format string, a ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault(format, a...)
}

// stop records a fault and ends the scenario.
func (b *bench) stop(format string, a ...any) {
	b.failf(format, a...)
	panic(errStop)
}

// await waits until a condition holds, and ends the scenario if it does not.
func (b *bench) await(what string, holds func() bool) {
	for begun := time.Now(); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > b.config.Patience || b.ctx.Err() != nil {
			b.stop("not after %s: %s", b.config.Patience, what)
		}
		if b.process.hasEnded() {
			b.stop("the client has ended while the scenario waited: %s", what)
		}
	}
}

// awaitCalls waits for n calls of a name about a task, and returns them.
func (b *bench) awaitCalls(name, id string, n int) []call {
	b.await(fmt.Sprintf("%d calls :%s about %q", n, name, id), func() bool { return len(b.found(name, id)) >= n })
	return b.found(name, id)
}

// result waits until a task is finished, and returns its result.
func (b *bench) result(id string) (v any) {
	var body struct {
		Result any `json:"result"`
	}
	c := b.awaitCalls("finish", id, 1)
	if err := json.Unmarshal(c[len(c)-1].body, &body); err != nil {
		b.stop("%s: %v", c[0].body, err)
	}
	return body.Result
}

// output collects what a process prints. It is safe for concurrent use.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.text.Len() < 1<<20 {
		o.text.Write(p)
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// process is a client that runs.
type process struct {
	command *exec.Cmd
	ended   chan struct{}
}

// start starts the client.
func (b *bench) start() {
	command := exec.Command(b.config.Command[0], b.config.Command[1:]...)
	command.Dir = b.config.Dir
	command.Env = append(append(os.Environ(), b.config.Env...), "TASKLEDGER_URL="+b.http.URL, "TASKLEDGER_TOKEN="+token)
	command.Stdout, command.Stderr = &b.log, &b.log
	if err := command.Start(); err != nil {
		b.process = nil
		b.stop("cannot start the client: %v", err)
	}
	p := &process{command: command, ended: make(chan struct{})}
	go func() {
		_ = command.Wait()
		close(p.ended)
	}()
	b.process = p
}

func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// kill ends the client at once.
func (p *process) kill() {
	_ = p.command.Process.Kill()
	<-p.ended
}

// terminate sends SIGTERM and waits for the end. It returns the exit code.
func (b *bench) terminate() int {
	_ = b.process.command.Process.Signal(syscall.SIGTERM)
	return b.exitCode()
}

// exitCode waits for the end of the client and returns its exit code.
func (b *bench) exitCode() int {
	select {
	case <-b.process.ended:
	case <-time.After(b.config.Patience):
		b.stop("the client has not ended after %s", b.config.Patience)
	}
	return b.process.command.ProcessState.ExitCode()
}
