package reserve

import (
	"errors"
	"os"
	"syscall"
	"unsafe"
)

var lockFileEx = syscall.NewLazyDLL("kernel32.dll").NewProc("LockFileEx")

const noFollow = 0 // not supported by Windows

// Constants of the Windows API that are missing in package syscall.
const (
	lockfileFailImmediately = 0x1
	lockfileExclusiveLock   = 0x2
	errorLockViolation      = syscall.Errno(33)
)

// lock locks one byte far behind the process id, which stays readable.
func lock(file *os.File) error {
	const flags, reserved, low, high = lockfileExclusiveLock | lockfileFailImmediately, 0, 1, 0
	region := syscall.Overlapped{OffsetHigh: 1}
	ok, _, err := lockFileEx.Call(file.Fd(), flags, reserved, low, high, uintptr(unsafe.Pointer(&region)))
	switch {
	case ok != 0:
		return nil
	case errors.Is(err, errorLockViolation):
		return ErrHeld
	}
	return err
}

// exists is always true: the children of a process that is gone do not inherit locks on Windows.
func exists(int) bool { return true }
