package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// ErrExists means that an object with this name exists. It is [fs.ErrExist].
var ErrExists = fmt.Errorf("the object exists: %w", fs.ErrExist)

// Store contains the objects of an archive. Names are paths with slashes, without "." and "..". An implementation is
// safe for concurrent use by several processes.
type Store interface {
	// Put stores an object. When it returns nil, the object is complete and survives a crash. After an error, the
	// object is complete or absent. It returns [ErrExists] if there is an object with this name, which stays as it
	// is. Of two concurrent calls with one name, one returns ErrExists.
	Put(ctx context.Context, name string, data []byte) error
	// Replace is Put, but it replaces an object with this name at once.
	Replace(ctx context.Context, name string, data []byte) error
	// Get returns at most length bytes of an object from an offset, and fewer only at its end. A negative length
	// means all bytes from the offset. It returns an error that is [fs.ErrNotExist] for a missing object.
	Get(ctx context.Context, name string, offset, length int64) ([]byte, error)
	// List returns the names of all objects that begin with prefix, in order.
	List(ctx context.Context, prefix string) ([]string, error)
	// Delete removes an object. A missing object is not an error.
	Delete(ctx context.Context, name string) error
}

// Directory is a [Store] in a directory of a file system with hard links. It is created when it is first written.
type Directory string

// The modes of the files and directories of an archive: it may contain personal data.
const (
	folderMode = 0o750
	fileMode   = 0o640
)

// newPrefix begins the names of files that are being written. A killed process leaves one.
const newPrefix = ".new-"

func (d Directory) path(name string) (string, error) {
	if !fs.ValidPath(name) || name == "." {
		return "", fmt.Errorf("invalid name of an object: %q", name)
	}
	return filepath.Join(string(d), filepath.FromSlash(name)), nil
}

// Put implements [Store].
func (d Directory) Put(_ context.Context, name string, data []byte) error {
	return d.write(name, data, func(from, to string) error {
		err := os.Link(from, to)
		if errors.Is(err, fs.ErrExist) {
			err = fmt.Errorf("%s: %w", to, ErrExists)
		}
		return errors.Join(err, os.Remove(from))
	})
}

// Replace implements [Store].
func (d Directory) Replace(_ context.Context, name string, data []byte) error {
	return d.write(name, data, os.Rename)
}

// write writes a file under another name, and publishes it.
func (d Directory) write(name string, data []byte, publish func(from, to string) error) (err error) {
	to, err := d.path(name)
	if err != nil {
		return err
	}
	folder := filepath.Dir(to)
	if err := d.makeFolder(folder); err != nil {
		return err
	}
	f, err := os.CreateTemp(folder, newPrefix+"*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(fileMode), f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if err := publish(f.Name(), to); err != nil {
		return errors.Join(err, os.RemoveAll(f.Name()))
	}
	return syncFolder(folder)
}

// makeFolder creates a directory and those above it, durably.
func (d Directory) makeFolder(folder string) error {
	if _, err := os.Stat(folder); err == nil {
		return nil
	}
	if err := os.MkdirAll(folder, folderMode); err != nil {
		return err
	}
	for above := folder; len(above) > len(filepath.Clean(string(d))); above = filepath.Dir(above) {
		if err := syncFolder(filepath.Dir(above)); err != nil {
			return err
		}
	}
	return nil
}

// syncFolder makes the names in a directory durable.
func syncFolder(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	_ = f.Sync() // some file systems refuse it
	return f.Close()
}

// Get implements [Store].
func (d Directory) Get(_ context.Context, name string, offset, length int64) ([]byte, error) {
	at, err := d.path(name)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(at)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	if length < 0 {
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		length = max(info.Size()-offset, 0)
	}
	return io.ReadAll(io.NewSectionReader(f, offset, length))
}

// List implements [Store].
func (d Directory) List(_ context.Context, prefix string) (names []string, err error) {
	folder := path.Dir(prefix + "x") // the directory that contains all names with this prefix
	err = fs.WalkDir(os.DirFS(string(d)), folder, func(name string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // removed meanwhile, or never written
		case err != nil:
			return err
		case !e.IsDir() && strings.HasPrefix(name, prefix) && !strings.HasPrefix(path.Base(name), newPrefix):
			names = append(names, name)
		}
		return nil
	})
	slices.Sort(names)
	return names, err
}

// Delete implements [Store].
func (d Directory) Delete(_ context.Context, name string) error {
	at, err := d.path(name)
	if err != nil {
		return err
	}
	if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// String returns the path.
func (d Directory) String() string { return string(d) }
