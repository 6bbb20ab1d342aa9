package main

import (
	"errors"
	"syscall"
)

// Windows cannot pause a process: these signals are refused.
const (
	pause  = syscall.SIGINT
	resume = syscall.SIGINT
)

func signalPID(int, syscall.Signal) error { return errors.ErrUnsupported }
