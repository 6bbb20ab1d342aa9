package main

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/taskledger/taskledger/internal/smalldisk"
)

// disk is a small file system that a fault can fill.
type disk struct {
	dir     string
	unmount func() error // nil: it is a directory of a large disk, because mounting was refused
}

// newDisk mounts a disk, or makes a directory where mounting is refused.
func newDisk(dir string, bytes int64) (disk, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return disk{}, err
	}
	unmount, err := smalldisk.At(dir, bytes)
	if err != nil {
		return disk{dir: dir}, nil
	}
	return disk{dir, unmount}, nil
}

func (d disk) isSmall() bool { return d.unmount != nil }

// fill writes a file until no byte is left. The returned function removes it.
func (d disk) fill() (clear func() error, err error) {
	name := filepath.Join(d.dir, "ballast")
	file, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	for size := 1 << 20; size > 0; { // smaller blocks at the end
		if _, err := file.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	return func() error { return errors.Join(file.Close(), os.Remove(name)) }, nil
}

func (d disk) close() error {
	if d.unmount == nil {
		return nil
	}
	return d.unmount()
}
