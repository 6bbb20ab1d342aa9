package pgserver

import "syscall"

func attributes(*account) *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
