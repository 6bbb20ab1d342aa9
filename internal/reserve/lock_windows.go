package reserve

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lock locks one byte far behind the process id, which stays readable.
func lock(file *os.File) error {
	region := windows.Overlapped{OffsetHigh: 1}
	err := windows.LockFileEx(windows.Handle(file.Fd()),
		windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &region)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrHeld
	}
	return err
}
