package pgserver

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"syscall"
)

// watchdog is a shell that outlives this process. Its standard input ends with this process. It then
// ends the server, which systems without a parent-death signal need, and removes a temporary directory.
type watchdog struct {
	cmd   *exec.Cmd
	input io.WriteCloser
}

// watchScript reads the pid of each new server, and an empty line after its end. It waits for the end of
// the process or of its pid file, because an orphan may stay a zombie. It waits for at most a minute.
const watchScript = `
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
	name, kind := "INT", "permanent"
	if signal == syscall.SIGQUIT {
		name = "QUIT"
	}
	if temporary {
		kind = "temporary"
	}
	cmd := exec.Command("/bin/sh", "-c", watchScript, "sh", name, dir, kind)
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

// start starts cmd and writes its pid to the shell, and an empty line after its end. The thread that
// starts cmd lives as long as cmd, because Linux sends the parent-death signal when that thread ends.
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
		// This fails only if the shell has ended, which then watches nothing.
		_, _ = fmt.Fprintln(w.input, p.Pid)
		started <- nil
		p.err = cmd.Wait()
		_, _ = fmt.Fprintln(w.input)
		close(p.done)
	}()
	return p, <-started
}

// stop ends the shell, which has nothing to do after the server's end.
func (w *watchdog) stop() error {
	return errors.Join(w.input.Close(), w.cmd.Wait())
}
