package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// roleVariable makes this program a child process with one role: a broker, whose CPU time is not counted
// as the client's, or one of several workers. Its value is the role.
//
// The child reads its settings as a line of JSON from standard input and writes a line when it is ready.
// It ends when its input ends, even if its parent is killed.
const roleVariable = "TASKLEDGER_BENCH_ROLE"

var roles = map[string]func(ctx context.Context, settings json.RawMessage, ready func(answer any)) error{
	"broker":    runBroker,
	"relay":     runRelay,
	"projector": runProjector,
	"worker":    runWorker,
	"serve":     runServe,
	"river":     runRiver,

	"everyday-worker": runEverydayWorker,
	"everyday-all":    runEverydayAll,
	"floor-serve":     runFloorServe,
	"floor-worker":    runFloorWorker,
}

// runRole is the main function of a child process.
func runRole(role string) int {
	signal.Ignore(os.Interrupt, syscall.SIGTERM) // the parent handles them and closes the input
	f, ok := roles[role]
	if !ok {
		_, _ = fmt.Fprintf(os.Stderr, "bench: unknown role %q\n", role)
		return exitUsage
	}
	in := bufio.NewReader(os.Stdin)
	settings, err := in.ReadBytes('\n')
	if err != nil {
		return exitFailed
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	err = f(ctx, settings, func(answer any) { _ = json.NewEncoder(os.Stdout).Encode(answer) })
	if err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "bench: %s: %v\n", role, err)
		return exitFailed
	}
	return exitOK
}

// child is a child process with a role.
type child struct {
	role       string
	command    *exec.Cmd
	input      io.Closer
	output     *json.Decoder
	stderr     strings.Builder
	count      atomic.Int64  // the last count that it reported
	mu         sync.Mutex    // guards reports
	reports    []count       // without starts; complete once outputDone is closed
	watch      *stopwatch    // of the starts that it reports, or nil
	outputDone chan struct{} // closed at the end of its output
	stopOnce   sync.Once
	stopErr    error
}

// startChild starts a child process and reads its first line, which it writes when it is ready.
// watch gets the starts that it reports; nil if it reports none.
func startChild(ctx context.Context, role string, settings, answer any, watch *stopwatch) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	a := &child{role: role, command: exec.Command(program), outputDone: make(chan struct{}), watch: watch}
	a.command.Env = append(os.Environ(), roleVariable+"="+role)
	a.command.Stderr = &a.stderr
	stdin, err := a.command.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := a.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	a.input, a.output = stdin, json.NewDecoder(stdout)
	if err := a.command.Start(); err != nil {
		return nil, err
	}
	abort := context.AfterFunc(ctx, func() { _ = stdin.Close() })
	defer abort()
	err = json.NewEncoder(stdin).Encode(settings)
	if err == nil {
		err = a.output.Decode(answer)
	}
	go a.readCounts()
	if err != nil {
		err = errors.Join(err, a.stop())
		return nil, fmt.Errorf("child process (%s): %w", role, err)
	}
	return a, nil
}

// readCounts stores the counts that the process reports, until its output ends.
func (a *child) readCounts() {
	defer close(a.outputDone)
	for {
		var c count
		if err := a.output.Decode(&c); err != nil {
			return
		}
		a.mu.Lock()
		a.reports = append(a.reports, count{Count: c.Count, At: c.At})
		a.mu.Unlock()
		a.count.Store(c.Count)
		for _, s := range c.Starts {
			a.watch.arrive(s.ID, s.At)
		}
	}
}

// rate returns the rate at which the child counted up to n, which it has reported. The first tenth is left out: it has
// the start of the process, its connections and consumers.
func (a *child) rate(n int) float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	first := slices.IndexFunc(a.reports, func(c count) bool { return c.Count > 0 && c.Count >= int64(n/10) })
	last := slices.IndexFunc(a.reports, func(c count) bool { return c.Count >= int64(n) })
	from, to := a.reports[first], a.reports[last]
	if first == last { // a run on a very small scale
		from = count{At: a.reports[max(first-1, 0)].At}
	}
	return float64(to.Count-from.Count) / max(time.Duration(to.At-from.At), time.Millisecond).Seconds()
}

// hasEnded reports whether the output of the process has ended.
func (a *child) hasEnded() bool {
	select {
	case <-a.outputDone:
		return true
	default:
		return false
	}
}

// kill kills a process whose files nothing reads any more. A broker stops its consumers one after another, with up to
// 100 ms for each.
func (a *child) kill() error {
	if a.hasEnded() { // by itself, so it has failed
		return a.stop()
	}
	a.stopOnce.Do(func() {
		_ = a.command.Process.Kill()
		<-a.outputDone
		_ = a.command.Wait() // it was killed
	})
	return a.stopErr
}

// stop stops the process and waits for it. It kills the process after a minute, which is an error. Later calls return
// the same error.
func (a *child) stop() error {
	a.stopOnce.Do(func() {
		_ = a.input.Close()
		kill := time.AfterFunc(time.Minute, func() { _ = a.command.Process.Kill() })
		defer kill.Stop()
		<-a.outputDone
		if err := a.command.Wait(); err != nil {
			a.stopErr = fmt.Errorf("%s: %w: %s", a.role, err, strings.TrimSpace(a.stderr.String()))
		}
	})
	return a.stopErr
}
