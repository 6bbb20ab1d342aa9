package pgserver

import "syscall"

// dieWithParent makes the kernel send signal to the child when the thread that started it ends.
func dieWithParent(attr *syscall.SysProcAttr, signal syscall.Signal) { attr.Pdeathsig = signal }
