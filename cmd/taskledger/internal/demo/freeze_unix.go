//go:build unix

package demo

import (
	"os"
	"syscall"
)

const canFreeze = true

func freeze() { _ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) }

func (c *child) thaw() { _ = c.cmd.Process.Signal(syscall.SIGCONT) }
