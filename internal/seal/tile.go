package seal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/taskledger/taskledger/ledger"
)

// tileHeight is the height of tiles by C2SP tlog-tiles: a full tile has 256 hashes.
const tileHeight = 8

// tilePath returns the path of a tile by C2SP tlog-tiles. Package tlog adds the height.
func tilePath(t tlog.Tile) string {
	return "tile/" + strings.TrimPrefix(t.Path(), fmt.Sprintf("tile/%d/", tileHeight))
}

// Fetch reads a file of a published log: "checkpoint", or a tile. It returns an error that is [fs.ErrNotExist] for a
// missing file.
type Fetch func(ctx context.Context, path string) ([]byte, error)

// Log is a published log: a signed checkpoint and the tiles of its tree, in the layout of C2SP tlog-tiles. It needs no
// database.
type Log struct{ Fetch Fetch }

// checkpointFile is the path of the newest checkpoint.
const checkpointFile = "checkpoint"

// Newest returns the newest checkpoint, and its text with all signatures.
func (l Log) Newest(ctx context.Context, p Policy) (Verified, []byte, error) {
	text, err := l.Fetch(ctx, checkpointFile)
	if err != nil {
		return Verified{}, nil, fmt.Errorf("read the checkpoint: %w", err)
	}
	v, err := p.Open(text)
	if invalid := (*ledger.InvalidError)(nil); errors.As(err, &invalid) && invalid.Field == "checkpoint" {
		err = fmt.Errorf("%w: %w", ErrSignature, err) // it is empty, or has lost its form
	}
	return v, text, err
}

// Compare returns nil if the tree of newer contains the tree of older. It computes the proof from tiles, which it
// verifies with the checkpoints. It returns [ErrInconsistent] if it does not, or if the tiles do not belong to newer.
func (l Log) Compare(ctx context.Context, older, newer Checkpoint) error {
	switch {
	case older.Origin != newer.Origin:
		return fmt.Errorf("%w: it is of %s, and the earlier one of %s", ErrInconsistent, newer.Origin, older.Origin)
	case older.Size > newer.Size:
		return fmt.Errorf("%w: it has %d leaves, and the earlier one %d", ErrInconsistent, newer.Size, older.Size)
	case older.Size == newer.Size && older.Root != newer.Root:
		return fmt.Errorf("%w: both have %d leaves, and different hashes", ErrInconsistent, newer.Size)
	case older.Size == newer.Size || older.Size == 0:
		return nil
	}
	hashes := l.Hashes(ctx, newer)
	proof, err := tlog.ProveTree(newer.Size, older.Size, hashes)
	if err != nil {
		return tileError(err)
	}
	if err := tlog.CheckTree(proof, newer.Size, newer.Root, older.Size, older.Root); err != nil {
		return fmt.Errorf("%w: the first %d of %d leaves have another hash", ErrInconsistent, older.Size, newer.Size)
	}
	return nil
}

// Hashes returns a reader of the hashes of a checkpoint's tree. It verifies each tile with the checkpoint.
func (l Log) Hashes(ctx context.Context, c Checkpoint) tlog.HashReader {
	return tlog.TileHashReader(tlog.Tree{N: c.Size, Hash: c.Root}, &tileReader{ctx, l.Fetch})
}

// ReadTree reads all tiles of level 0, and returns [ErrInconsistent] unless they are the tree of a checkpoint.
func (l Log) ReadTree(ctx context.Context, c Checkpoint) error {
	hashes := l.Hashes(ctx, c)
	const width = 1 << tileHeight
	for first := int64(0); first < c.Size; first += width {
		var indexes []int64
		for leaf := first; leaf < min(first+width, c.Size); leaf++ {
			indexes = append(indexes, tlog.StoredHashIndex(0, leaf))
		}
		if _, err := hashes.ReadHashes(indexes); err != nil {
			return tileError(err)
		}
	}
	return nil
}

// errTile means that a tile cannot be read.
var errTile = errors.New("a tile cannot be read")

// tileError returns the error of a tile that cannot be read, or [ErrInconsistent] for a tile of another tree.
func tileError(err error) error {
	if errors.Is(err, errTile) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrInconsistent, err)
}

// tileReader implements [tlog.TileReader].
type tileReader struct {
	ctx   context.Context // tlog.TileReader takes none
	fetch Fetch
}

// Height implements [tlog.TileReader].
func (r *tileReader) Height() int { return tileHeight }

// SaveTiles implements [tlog.TileReader].
func (r *tileReader) SaveTiles([]tlog.Tile, [][]byte) {}

// ReadTiles implements [tlog.TileReader].
func (r *tileReader) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	all := make([][]byte, len(tiles))
	for i, t := range tiles {
		data, err := r.fetch(r.ctx, tilePath(t))
		if errors.Is(err, fs.ErrNotExist) && t.W < 1<<tileHeight { // partial tiles are removed once it is full
			full := t
			full.W = 1 << tileHeight
			if data, err = r.fetch(r.ctx, tilePath(full)); err == nil && len(data) >= t.W*tlog.HashSize {
				data = data[:t.W*tlog.HashSize]
			}
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: %s: %w", errTile, tilePath(t), err)
		case len(data) != t.W*tlog.HashSize:
			return nil, fmt.Errorf("%w: %s has %d bytes, want %d", ErrInconsistent, tilePath(t), len(data),
				t.W*tlog.HashSize)
		}
		all[i] = data
	}
	return all, nil
}

// ProveConsistency returns the proof that the tree of newer contains the tree of the first leaves, by RFC 6962, as
// witnesses require it. older is between 1 and newer.
//
// Errors: [*TilesError].
func ProveConsistency(ctx context.Context, db ledger.DB, a Archive, older, newer int64) (tlog.TreeProof, error) {
	proof, err := tlog.ProveTree(newer, older, &tree{ctx, db, a})
	if err != nil {
		return nil, fmt.Errorf("prove consistency: %w", err)
	}
	return proof, nil
}
