//go:build unix

package alarm

import (
	"os/exec"
	"syscall"
)

// endWithChildren has a command that takes too long end with all that it has started.
func endWithChildren(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
