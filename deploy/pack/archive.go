package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// entry is a file of an archive.
type entry struct {
	name string
	mode int64
	data []byte
}

// archive writes the archive of a binary: a .zip for Windows, otherwise a .tar.gz. It contains the program as
// taskledger, with license and README.
func (r release) archive(b binary) error {
	program, name, write := "taskledger", b.path+".tar.gz", tarGz
	if b.system == "windows" {
		program, name, write = "taskledger.exe", strings.TrimSuffix(b.path, ".exe")+".zip", zipped
	}
	var entries []entry
	for _, f := range []struct {
		name, path string
		mode       int64
	}{
		{name: "LICENSE", path: filepath.Join(r.files, "LICENSE"), mode: 0o644},
		{name: "README.md", path: filepath.Join(r.files, "README.md"), mode: 0o644},
		{name: program, path: b.path, mode: 0o755},
	} {
		data, err := os.ReadFile(f.path)
		if err != nil {
			return err
		}
		entries = append(entries, entry{name: f.name, mode: f.mode, data: data})
	}
	out, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(out, entries, r.time), out.Close())
}

func tarGz(out io.Writer, entries []entry, at time.Time) error {
	compressed := gzip.NewWriter(out)
	if err := tarred(compressed, entries, at); err != nil {
		return err
	}
	return compressed.Close()
}

func tarred(out io.Writer, entries []entry, at time.Time) error {
	w := tar.NewWriter(out)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.data)), ModTime: at, Typeflag: tar.TypeReg}
		if strings.HasSuffix(e.name, "/") {
			h.Typeflag, h.Uid, h.Gid = tar.TypeDir, imageUser, imageUser
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(e.data); err != nil {
			return err
		}
	}
	return w.Close()
}

func zipped(out io.Writer, entries []entry, at time.Time) error {
	w := zip.NewWriter(out)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: at}
		h.SetMode(os.FileMode(e.mode))
		f, err := w.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := f.Write(e.data); err != nil {
			return err
		}
	}
	return w.Close()
}
