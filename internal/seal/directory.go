package seal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/taskledger/taskledger/ledger"
)

// Directory is a directory with the tiles of the tree and its newest checkpoint, in the layout of C2SP tlog-tiles. A
// web server can serve it as it is. Tiles take 32 bytes an event, and contain no event.
type Directory string

// Fetch implements [Fetch].
func (d Directory) Fetch(_ context.Context, path string) ([]byte, error) {
	return os.ReadFile(filepath.Join(string(d), filepath.FromSlash(path)))
}

// Checkpoint returns the checkpoint in the directory, and false if the directory is empty. It verifies no signature.
func (d Directory) Checkpoint() (Checkpoint, bool, error) {
	text, err := os.ReadFile(filepath.Join(string(d), checkpointFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Checkpoint{}, false, nil
	}
	if err != nil {
		return Checkpoint{}, false, err
	}
	all, err := ParseCheckpoints(string(text))
	if err != nil {
		return Checkpoint{}, false, fmt.Errorf("%s: %w", filepath.Join(string(d), checkpointFile), err)
	}
	return all[0], true, nil
}

// WriteTiles writes the tiles that the directory lacks for the tree of a checkpoint, which the ledger's tree contains.
// A reader of the directory sees each tile complete or not at all. If it ends early, call it again.
//
// Errors: [ErrInconsistent] if the directory contains the tiles of another tree; [*TilesError].
func (d Directory) WriteTiles(ctx context.Context, db ledger.DB, a Archive, c Checkpoint) error {
	before, _, err := d.Checkpoint()
	if err != nil {
		return err
	}
	if before.Size > c.Size {
		return fmt.Errorf("%w: %s contains the tree of %d leaves, this one has %d", ErrInconsistent, d, before.Size,
			c.Size)
	}
	folders := make(map[string]bool)
	err = NewTiles(ctx, db, a, before.Size, c.Size, func(name string, data []byte) error {
		path := filepath.Join(string(d), filepath.FromSlash(name))
		if err := writeTile(path, data); err != nil {
			return err
		}
		for folder := filepath.Dir(path); !folders[folder] && len(folder) > len(filepath.Clean(string(d))); {
			folders[folder] = true
			folder = filepath.Dir(folder)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for folder := range folders {
		if err := syncFolder(folder); err != nil {
			return err
		}
	}
	return syncFolder(string(d))
}

// NewTiles calls write with each tile, and its path by C2SP tlog-tiles, that the tree with size leaves has and the tree
// with before leaves lacks. It stops at the first error, and returns it.
func NewTiles(
	ctx context.Context, db ledger.DB, a Archive, before, size int64, write func(path string, data []byte) error,
) error {
	hashes := &leafReader{tree: &tree{ctx, db, a}}
	for _, t := range tlog.NewTiles(tileHeight, before, size) {
		data, err := tlog.ReadTileData(t, hashes)
		if err != nil {
			return fmt.Errorf("write %s: %w", tilePath(t), err)
		}
		if err := write(tilePath(t), data); err != nil {
			return err
		}
	}
	return nil
}

// WriteCheckpoint replaces the checkpoint in the directory, whose tiles are there, and removes partial tiles that
// neither the new nor the last checkpoint needs.
func (d Directory) WriteCheckpoint(c Checkpoint, signed []byte) error {
	before, _, err := d.Checkpoint()
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(string(d), checkpointFile), signed); err != nil {
		return err
	}
	if err := syncFolder(string(d)); err != nil {
		return err
	}
	return d.removePartial(before.Size, c.Size)
}

// removePartial removes the partial tiles of the directory's edge that are neither of the tree with before leaves nor
// of the tree with now leaves. Of a full tile it removes all: readers take the full one.
func (d Directory) removePartial(before, now int64) error {
	for level := 0; before>>(tileHeight*level) > 0; level++ {
		hashesBefore, hashesNow := before>>(tileHeight*level), now>>(tileHeight*level)
		t := tlog.Tile{H: tileHeight, L: level, N: hashesBefore >> tileHeight, W: 1 << tileHeight}
		folder := filepath.Join(string(d), filepath.FromSlash(tilePath(t))) + ".p"
		if hashesNow>>tileHeight > t.N {
			if err := os.RemoveAll(folder); err != nil {
				return err
			}
			continue
		}
		const mask = 1<<tileHeight - 1
		keep := []string{strconv.FormatInt(hashesBefore&mask, 10), strconv.FormatInt(hashesNow&mask, 10)}
		entries, err := os.ReadDir(folder)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			if slices.Contains(keep, e.Name()) {
				continue
			}
			if err := os.Remove(filepath.Join(folder, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// writeTile writes a tile, unless it exists with this content.
func writeTile(path string, data []byte) error {
	found, err := os.ReadFile(path)
	switch {
	case err == nil && bytes.Equal(found, data):
		return nil
	case err == nil && len(found) >= len(data):
		return fmt.Errorf("%w: %s is a tile of another tree", ErrInconsistent, path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return writeFile(path, data)
}

// The modes of published files and directories: all users may read them.
const (
	folderMode = 0o755
	fileMode   = 0o644
)

// writeFile replaces a file at once, and makes its content durable.
func writeFile(path string, data []byte) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), folderMode); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(fileMode), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// syncFolder makes the names in a directory durable.
func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	_ = f.Sync() // some file systems refuse it
	return f.Close()
}
