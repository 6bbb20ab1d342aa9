package pgserver

import (
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"syscall"
)

// watchdog is a shell that outlives us for a moment. Its standard input ends
// when we do, by whatever cause; then it ends the server, on systems that have
// no parent-death signal, and removes what was temporary, on all.
type watchdog struct {
	cmd   *exec.Cmd
	input io.WriteCloser
}

// The shell reads the pid of each new server and an empty line when that has
// ended. It waits for the pid file as well as for the process, since nobody
// may be there to reap an orphan; and a minute at most.
const watch = `
while read -r line; do server=$line; done
if [ -n "$server" ]; then
	kill -s "$1" "$server"
	turns=600
	while kill -0 "$server" && [ -e "$2/data/postmaster.pid" ] && [ $turns -gt 0 ]; do
		sleep 0.1
		turns=$((turns - 1))
	done
fi
if [ "$3" = temporary ]; then rm -rf "$2"; fi
`

// startWatchdog starts a watchdog for the servers that will run in dir.
func startWatchdog(dir string, signal syscall.Signal, temporary bool) (*watchdog, error) {
	name, keep := "INT", "permanent"
	if signal == syscall.SIGQUIT {
		name = "QUIT"
	}
	if temporary {
		keep = "temporary"
	}
	cmd := exec.Command("/bin/sh", "-c", watch, "sh", name, dir, keep)
	cmd.Dir = "/"
	cmd.SysProcAttr = attributes(nil)
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the watchdog: %w", err)
	}
	return &watchdog{cmd, input}, nil
}

// start starts cmd and tells the shell of it, and later of its end. It does so
// from a thread that lives as long as the process, since Linux takes the end of
// the thread that forked for the death of the parent.
func (w *watchdog) start(cmd *exec.Cmd) (*process, error) {
	p := &process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if p.Process = cmd.Process; err != nil {
			started <- err
			return
		}
		// Nothing is lost when the shell cannot be told: it is gone.
		fmt.Fprintln(w.input, p.Pid)
		started <- nil
		p.err = cmd.Wait()
		fmt.Fprintln(w.input)
		close(p.done)
	}()
	return p, <-started
}

// stop ends the shell. It finds nothing to do once the server has ended.
func (w *watchdog) stop() error {
	w.input.Close()
	return w.cmd.Wait()
}
