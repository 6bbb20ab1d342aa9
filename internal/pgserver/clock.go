package pgserver

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Clock is a clock for server processes that a test can change. It needs libfaketime (Debian: apt-get install
// libfaketime). It is safe for concurrent use.
type Clock struct{ library, file string }

// NewClock returns a clock that shows the machine's time. It keeps a file in dir, which the server's user must be able
// to enter. The error wraps [ErrNotInstalled] if libfaketime is.
func NewClock(dir string) (*Clock, error) {
	found, err := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("libfaketime is %w", ErrNotInstalled)
	}
	c := &Clock{library: found[0], file: filepath.Join(dir, "clock")}
	return c, c.Set(0)
}

// Set sets how far the clock is ahead of the machine's clock. Each process notices it within a second.
func (c *Clock) Set(ahead time.Duration) error {
	next := c.file + ".next" // a process must not read half of it
	if err := os.WriteFile(next, fmt.Appendf(nil, "%+d\n", int64(ahead.Seconds())), 0o644); err != nil {
		return err
	}
	if err := os.Chmod(next, 0o644); err != nil {
		return err
	}
	return os.Rename(next, c.file)
}

// environment returns the variables that give a process the clock. Without the cache, each reading of the clock would
// read the file.
func (c *Clock) environment() []string {
	if c == nil {
		return nil
	}
	return []string{
		"LD_PRELOAD=" + c.library, "FAKETIME_TIMESTAMP_FILE=" + c.file, "FAKETIME_CACHE_DURATION=1",
		"FAKETIME_DONT_FAKE_MONOTONIC=1",
	}
}
