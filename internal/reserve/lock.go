// Package reserve takes what only one server on a machine may have: a
// directory and a port.
package reserve

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// ErrHeld is returned by [File] when another open file holds the lock.
var ErrHeld = errors.New("locked")

// Lock is a held lock on a file. It ends with Release, or with the last
// process that has the file open, however that process ends; so it never goes
// stale.
type Lock struct {
	// File may be handed to a child process, which then holds the lock too.
	File *os.File
}

// File locks the file name, which it creates if there is none (mode 0600), and
// writes the caller's process id into it. It does not wait: if the lock is
// held elsewhere, in this process or in another, the error wraps [ErrHeld] and
// names the process.
func File(name string) (*Lock, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(file); err != nil {
		defer file.Close()
		if errors.Is(err, ErrHeld) {
			holder, _ := os.ReadFile(name) // no more than a hint
			return nil, fmt.Errorf("%s: %w by process %s", name, err, strings.TrimSpace(string(holder)))
		}
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	if err := errors.Join(file.Truncate(0), write(file)); err != nil {
		file.Close()
		return nil, err
	}
	return &Lock{file}, nil
}

func write(file *os.File) error {
	_, err := fmt.Fprintln(file, os.Getpid())
	return err
}

// Release closes the file. A child that has it keeps the lock.
func (l *Lock) Release() error { return l.File.Close() }
