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

// FindBinariesOf returns the directory of the binaries for the data in a directory.
func FindBinariesOf(data string) (string, error) { return findBinaries("", data) }

// RemovePrepared removes the prepared data in dir whose last use is before since.
var RemovePrepared = removePrepared

// Dir returns the directory of the server's files.
func (s *Server) Dir() string { return s.dir }

// Beside returns a command that runs as the same user as the server.
func (s *Server) Beside(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = attributes(s.account)
	return cmd
}

// KillWatchdog kills the watchdog, so that only the parent-death signal ends the server.
func (s *Server) KillWatchdog() error { return s.watchdog.cmd.Process.Kill() }

// Orphan runs a command under a watchdog without a parent-death signal. It closes the watchdog's
// input, like the end of the parent, and returns after the command has ended.
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
