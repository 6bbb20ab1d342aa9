package seal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/taskledger/taskledger/ledger"
)

// Objects contains the files of a published log. The interface Store of package internal/archive has the contract of
// each method. Put returns an error that is [fs.ErrExist] if there is an object with this name.
type Objects interface {
	Put(ctx context.Context, name string, data []byte) error
	Replace(ctx context.Context, name string, data []byte) error
	Get(ctx context.Context, name string, offset, length int64) ([]byte, error)
	List(ctx context.Context, prefix string) ([]string, error)
	Delete(ctx context.Context, name string) error
}

// Published is a [Directory] in an object store.
type Published struct{ Objects Objects }

// Checkpoint is [Directory.Checkpoint].
func (p Published) Checkpoint(ctx context.Context) (Checkpoint, bool, error) {
	text, err := p.Objects.Get(ctx, checkpointFile, 0, -1)
	if errors.Is(err, fs.ErrNotExist) {
		return Checkpoint{}, false, nil
	}
	if err != nil {
		return Checkpoint{}, false, err
	}
	all, err := ParseCheckpoints(string(text))
	if err != nil {
		return Checkpoint{}, false, fmt.Errorf("%s: %w", checkpointFile, err)
	}
	return all[0], true, nil
}

// WriteTiles is [Directory.WriteTiles].
func (p Published) WriteTiles(ctx context.Context, db ledger.DB, a Archive, c Checkpoint) error {
	before, _, err := p.Checkpoint(ctx)
	if err != nil {
		return err
	}
	if before.Size > c.Size {
		return fmt.Errorf("%w: the published tree has %d leaves, this one has %d", ErrInconsistent, before.Size, c.Size)
	}
	return NewTiles(ctx, db, a, before.Size, c.Size, func(name string, data []byte) error {
		return PutTile(ctx, p.Objects, name, data)
	})
}

// PutTile stores a tile, unless it exists with this content. It returns [ErrInconsistent] if it exists with another.
func PutTile(ctx context.Context, o Objects, name string, data []byte) error {
	err := o.Put(ctx, name, data)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	found, err := o.Get(ctx, name, 0, -1)
	if err == nil && !bytes.Equal(found, data) {
		err = fmt.Errorf("%w: %s is a tile of another tree", ErrInconsistent, name)
	}
	return err
}

// WriteCheckpoint is [Directory.WriteCheckpoint].
func (p Published) WriteCheckpoint(ctx context.Context, c Checkpoint, signed []byte) error {
	before, _, err := p.Checkpoint(ctx)
	if err != nil {
		return err
	}
	if err := p.Objects.Replace(ctx, checkpointFile, signed); err != nil {
		return err
	}
	return p.removePartial(ctx, before.Size, c.Size)
}

// removePartial removes the partial tiles of the edge of the tree with before leaves that neither this tree nor the
// tree with now leaves needs. Of a full tile it removes all: readers take the full one.
func (p Published) removePartial(ctx context.Context, before, now int64) error {
	for level := 0; before>>(tileHeight*level) > 0; level++ {
		t := tlog.Tile{H: tileHeight, L: level, N: before >> (tileHeight * level) >> tileHeight, W: 1 << tileHeight}
		folder := tilePath(t) + ".p/"
		keep := make(map[string]bool)
		if isFull := now>>(tileHeight*level)>>tileHeight > t.N; !isFull {
			for _, size := range []int64{before, now} {
				keep[strconv.FormatInt(size>>(tileHeight*level)&(1<<tileHeight-1), 10)] = true
			}
		}
		names, err := p.Objects.List(ctx, folder)
		if err != nil {
			return err
		}
		for _, name := range names {
			if keep[strings.TrimPrefix(name, folder)] {
				continue
			}
			if err := p.Objects.Delete(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}
