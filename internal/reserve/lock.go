// Package reserve reserves what only one server of a machine can use: a directory and a port.
package reserve

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// ErrHeld is returned by [File] if another open file has the lock.
var ErrHeld = errors.New("locked")

// Lock is a lock on a file. Release ends it, or the end of the last process that has the file open. It
// never becomes stale, because the kernel releases it.
type Lock struct {
	// File is the open file. A child process that inherits it has the lock too.
	File *os.File
}

// File locks the file with this name and writes the process id of the caller into it. It creates the
// file with mode 0600 if it does not exist, and returns an error if it is a symbolic link. File does not wait:
// if this process or another one has the lock, the error wraps [ErrHeld] and has the process id of the holder.
func File(name string) (*Lock, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|noFollow, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(file); err != nil {
		defer func() { _ = file.Close() }()
		if errors.Is(err, ErrHeld) {
			holder, _ := os.ReadFile(name) // for the message only
			return nil, fmt.Errorf("%s: %w by process %s", name, err, strings.TrimSpace(string(holder)))
		}
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	if err := errors.Join(file.Truncate(0), write(file)); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &Lock{file}, nil
}

func write(file *os.File) error {
	_, err := fmt.Fprintln(file, os.Getpid())
	return err
}

// Release closes the file. A child that has inherited the file keeps the lock.
func (l *Lock) Release() error { return l.File.Close() }
