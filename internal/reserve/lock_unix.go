//go:build unix

package reserve

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lock takes a flock, which belongs to the open file and not to the process:
// children inherit it, and a second open in the same process meets it.
func lock(file *os.File) error {
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrHeld
		}
		return err
	}
}
