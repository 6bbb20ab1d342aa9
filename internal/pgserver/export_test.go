package pgserver

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// SetInstalled replaces the directories searched after PATH and pg_config.
func SetInstalled(t *testing.T, patterns ...string) {
	old := installed
	installed = patterns
	t.Cleanup(func() { installed = old })
}

var FindBinaries = findBinaries

// Dir is the directory that holds the server's files.
func (s *Server) Dir() string { return s.dir }

// Beside prepares a command to run as the same user as the server.
func (s *Server) Beside(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = attributes(s.account)
	return cmd
}

// KillWatchdog leaves the server to the parent-death signal.
func (s *Server) KillWatchdog() error { return s.watchdog.cmd.Process.Kill() }

// Orphan runs a command under a watchdog alone, takes away the watchdog's
// input, as the end of the parent does, and returns when the command has ended.
func Orphan(dir string, cmd *exec.Cmd) error {
	pidFile := filepath.Join(dir, "data", "postmaster.pid")
	if err := errors.Join(os.Mkdir(filepath.Dir(pidFile), 0o700), os.WriteFile(pidFile, nil, 0o600)); err != nil {
		return err
	}
	w, err := startWatchdog(dir, syscall.SIGINT, true)
	if err != nil {
		return err
	}
	p, err := w.start(cmd)
	if err != nil {
		return err
	}
	w.input.Close()
	<-p.done
	return errors.Join(p.err, w.cmd.Wait())
}
