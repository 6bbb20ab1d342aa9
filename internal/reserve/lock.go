// Package reserve reserves resources that only one server of a machine can use: a directory and a port.
package reserve

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ErrHeld is returned by [File] if another open file holds the lock.
var ErrHeld = errors.New("locked")

// Lock is a lock on a file. It ends with Release, or when the last process closes the file. It never becomes
// stale, because the kernel releases it.
type Lock struct {
	// File is the open file. A child process that inherits it also holds the lock.
	File *os.File
}

// File locks the file with this name and writes the caller's process id into it. It creates the file with mode 0600 if
// it does not exist, and returns an error if it is a symbolic link.
//
// If the holder has ended, File waits for at most 10 s, because its children end later and still hold the lock. After a
// release File waits for at most 2 s, because a child that was just started may still keep the file open. If a process
// still holds the lock then, the error wraps [ErrHeld] and contains the holder's process id.
func File(name string) (*Lock, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|noFollow, 0o600)
	if err != nil {
		return nil, err
	}
	err = lock(file)
	began, id := time.Now(), holder(name)
	for errors.Is(err, ErrHeld) && time.Since(began) < patience(id) {
		time.Sleep(20 * time.Millisecond)
		if now := holder(name); now != id {
			began, id = time.Now(), now
		}
		err = lock(file)
	}
	if err != nil {
		defer func() { _ = file.Close() }()
		if errors.Is(err, ErrHeld) {
			return nil, fmt.Errorf("%s: %w by process %s", name, err, cmp.Or(holder(name), "unknown"))
		}
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	if err := errors.Join(file.Truncate(0), write(file)); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &Lock{file}, nil
}

// patience is how long to wait for the children of a process.
func patience(id string) time.Duration {
	switch {
	case isGone(id):
		return 10 * time.Second
	case id == "": // released; on a busy disk the file is closed late
		return 2 * time.Second
	default:
		return 0
	}
}

// holder returns the process id that is in the file, "" if it cannot be read.
func holder(name string) string {
	text, _ := os.ReadFile(name)
	return strings.TrimSpace(string(text))
}

// isGone reports whether no process with this id exists. It is false for text that is not an id.
func isGone(id string) bool {
	pid, err := strconv.Atoi(id)
	return err == nil && pid > 0 && !exists(pid)
}

// IsZombie reports whether a process has ended, but its parent has not waited for it. Where the first process of a
// container waits for no child, such a process stays until the container ends. Without /proc it returns false.
func IsZombie(pid int) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " ") // a name may have brackets
	return strings.HasPrefix(state, "Z")
}

func write(file *os.File) error {
	_, err := fmt.Fprintln(file, os.Getpid())
	return err
}

// Release removes the process id and closes the file. A child that has inherited the file keeps the lock.
func (l *Lock) Release() error { return errors.Join(l.File.Truncate(0), l.File.Close()) }
