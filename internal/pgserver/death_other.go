//go:build !linux

package pgserver

import "syscall"

// dieWithParent does nothing: the kernel does not have such a signal, and the watchdog ends the server.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}
