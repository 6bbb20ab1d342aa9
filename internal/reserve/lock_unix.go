//go:build unix

package reserve

import (
	"errors"
	"os"
	"syscall"
)

const noFollow = syscall.O_NOFOLLOW

// lock takes a flock, which belongs to the open file: children inherit it, and a second open file of
// the same process conflicts with it.
func lock(file *os.File) error {
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EWOULDBLOCK):
			return ErrHeld
		}
		return err
	}
}

func exists(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) && !IsZombie(pid) }
