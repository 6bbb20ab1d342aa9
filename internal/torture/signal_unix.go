//go:build unix

package main

import "syscall"

// Signals that pause and resume a process.
const (
	pause  = syscall.SIGSTOP
	resume = syscall.SIGCONT
)

// signalPID sends a signal to a process that this one did not start.
func signalPID(pid int, s syscall.Signal) error { return syscall.Kill(pid, s) }
