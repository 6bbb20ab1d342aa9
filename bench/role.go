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
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// roleVariable makes this program play one part in a process of its own: the broker, so that its
// work is not counted as a client's, or a worker, so that there can be several. It holds the
// role's name; the role's settings come as a line of JSON on its standard input. When it is ready
// it answers with a line of its own, and it ends when its input does: also if its parent is killed.
const roleVariable = "TASKLEDGER_BENCH_ROLE"

var roles = map[string]func(ctx context.Context, settings json.RawMessage, ready func(answer any)) error{
	"broker":    playBroker,
	"relay":     playRelay,
	"projector": playProjector,
	"worker":    playWorker,
}

// play is main in such a process.
func play(role string) int {
	signal.Ignore(os.Interrupt, syscall.SIGTERM) // they are for the parent, which ends us
	f, ok := roles[role]
	if !ok {
		_, _ = fmt.Fprintf(os.Stderr, "bench: no role %q\n", role)
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

// actor is a process that plays a role.
type actor struct {
	role    string
	command *exec.Cmd
	input   io.Closer
	output  *json.Decoder
	stderr  strings.Builder
	count   atomic.Int64  // what it has told last
	heard   chan struct{} // closed when it says no more
	ending  sync.Once
	outcome error
}

// cast starts a process in a role and reads its answer when it is ready.
func cast(ctx context.Context, role string, settings, answer any) (*actor, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	a := &actor{role: role, command: exec.Command(program), heard: make(chan struct{})}
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
	go a.listen()
	if err != nil {
		err = errors.Join(err, a.end())
		return nil, fmt.Errorf("process of the %s: %w", role, err)
	}
	return a, nil
}

// listen keeps what the process counts, until it has no more to say.
func (a *actor) listen() {
	defer close(a.heard)
	for {
		var c count
		if err := a.output.Decode(&c); err != nil {
			return
		}
		a.count.Store(c.Count)
	}
}

// ended tells whether the process is gone, or about to be.
func (a *actor) ended() bool {
	select {
	case <-a.heard:
		return true
	default:
		return false
	}
}

// end ends the process and waits for it: 20 s, then it is killed. More than one call is fine.
func (a *actor) end() error {
	a.ending.Do(func() {
		_ = a.input.Close()
		kill := time.AfterFunc(20*time.Second, func() { _ = a.command.Process.Kill() })
		defer kill.Stop()
		<-a.heard
		if err := a.command.Wait(); err != nil {
			a.outcome = fmt.Errorf("%s: %w: %s", a.role, err, strings.TrimSpace(a.stderr.String()))
		}
	})
	return a.outcome
}
