package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a part of the stage, as its parent sees it: this program again, with another configuration.
type process struct {
	logFile string

	mu     sync.Mutex
	config partConfig
	cmd    *exec.Cmd
	input  io.Closer     // its end ends the process
	ended  chan struct{} // closed when the process has ended
	isLive bool          // it has been started and not been ended here
	faults []string      // unexpected ends
}

func (p *process) String() string { return p.config.Name }

// start starts the process again, with the next number of its runs.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.config.Run++
	text, err := json.Marshal(p.config)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(p.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the process uses its own copy
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), partVariable+"="+string(text))
	cmd.Stdout, cmd.Stderr = log, log
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd, p.input, p.ended, p.isLive = cmd, input, make(chan struct{}), true
	go p.wait(cmd, p.ended)
	return nil
}

// wait records an unexpected end.
func (p *process) wait(cmd *exec.Cmd, ended chan struct{}) {
	err := cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isLive {
		p.faults = append(p.faults, fmt.Sprintf("%s ended by itself: %v: %s", p, err, p.lastLine()))
	}
	close(ended)
}

func (p *process) lastLine() string {
	text, err := os.ReadFile(p.logFile)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// signal sends a signal.
func (p *process) signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// kill ends the process by SIGKILL.
func (p *process) kill() error {
	p.expectEnd()
	if err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.ended
	return nil
}

// stop ends the process by SIGTERM, or after some time by SIGKILL. It reports whether SIGTERM was enough.
func (p *process) stop() (bool, error) {
	p.expectEnd()
	if err := p.signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return false, err
	}
	select {
	case <-p.ended:
		return true, nil
	case <-time.After(30 * time.Second):
		return false, p.kill()
	}
}

func (p *process) expectEnd() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isLive = false
}
