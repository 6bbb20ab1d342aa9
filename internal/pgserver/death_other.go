//go:build !linux

package pgserver

import "syscall"

// dieWithParent leaves it to the watchdog.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}
