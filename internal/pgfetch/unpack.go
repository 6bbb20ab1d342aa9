package pgfetch

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// content is the directory of PostgreSQL in an archive.
const content = "package/native/"

// linksFile lists symbolic links, which npm's packages cannot hold.
const linksFile = "pg-symlinks.json"

// unpack makes dir with the content of an archive, readable by all users.
func unpack(archive, dir string) (err error) {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it is only read
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		return err
	}
	if err := makeDir(dir); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir) // refuses names that leave dir
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	for entries := tar.NewReader(unzipped); ; {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return link(root)
		}
		if err != nil {
			return err
		}
		name, found := strings.CutPrefix(entry.Name, content)
		if !found || entry.Typeflag != tar.TypeReg {
			continue
		}
		if err := write(root, name, entry.FileInfo().Mode(), entries); err != nil {
			return err
		}
	}
}

// write writes a file and its missing directories.
func write(root *os.Root, name string, mode os.FileMode, from io.Reader) error {
	for i, c := range name {
		if c != '/' {
			continue
		}
		if err := root.Mkdir(name[:i], 0o755); err == nil {
			if err := root.Chmod(name[:i], 0o755); err != nil { // the umask may be narrower
				return err
			}
		} else if !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	return errors.Join(err, file.Chmod(0o644|mode&0o111), file.Close())
}

// link makes the links of [linksFile].
func link(root *os.Root) error {
	text, err := root.ReadFile(linksFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string } // the link is the target, of the file that is the source
	if err := json.Unmarshal(text, &links); err != nil {
		return fmt.Errorf("%s: %w", linksFile, err)
	}
	for _, l := range links {
		source, target := strings.TrimPrefix(l.Source, "native/"), strings.TrimPrefix(l.Target, "native/")
		relative, err := filepath.Rel(path.Dir(target), source)
		if err != nil {
			return err
		}
		if err := root.Symlink(relative, target); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// makeDir makes a directory that all users can read, even under a narrower umask.
func makeDir(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return os.Chmod(dir, 0o755)
}
