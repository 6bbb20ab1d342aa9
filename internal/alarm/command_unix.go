//go:build unix

package alarm

import (
	"os/exec"
	"syscall"
)

// killWithChildren makes a timeout kill the command and all processes that it has started.
func killWithChildren(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
