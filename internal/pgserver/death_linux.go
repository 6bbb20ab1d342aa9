package pgserver

import "syscall"

// dieWithParent lets the kernel send signal to the child when the thread that
// started it ends, by whatever cause.
func dieWithParent(attr *syscall.SysProcAttr, signal syscall.Signal) { attr.Pdeathsig = signal }
