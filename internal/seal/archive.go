package seal

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/cut.sql
var cutSQL string

// Archive reads the tiles of an archive, for leaves whose rows were removed from the table seal. The zero value reads
// archives that are directories of this machine.
type Archive struct {
	// Place is the archive. Default: where the ledger has recorded that it is.
	Place string
	// Open opens an object store. Default: none.
	Open func(place string) (Objects, error)
	// Objects contains tiles that are read before those at the place. Default: none.
	Objects Objects
}

// at returns a reader of the files of an archive that the ledger has recorded, and its place.
func (a Archive) at(recorded string) (Fetch, string) {
	place := recorded
	if a.Place != "" {
		place = a.Place
	}
	return func(ctx context.Context, path string) ([]byte, error) {
		if a.Objects != nil {
			if data, err := a.Objects.Get(ctx, path, 0, -1); !errors.Is(err, fs.ErrNotExist) {
				return data, err
			}
		}
		if !strings.Contains(place, "://") {
			return Directory(place).Fetch(ctx, path)
		}
		if a.Open == nil {
			return nil, errors.New("no object store can be opened here")
		}
		objects, err := a.Open(place)
		if err != nil {
			return nil, err
		}
		return objects.Get(ctx, path, 0, -1)
	}, place
}

// TilesError means that a part of the tree is in an archive only, and cannot be read there.
type TilesError struct {
	First, Last int64  // the leaves that need the archive
	Place       string // of the archive
	Err         error
}

// Error states which leaves are in which archive.
func (e *TilesError) Error() string {
	return fmt.Sprintf("leaves %d to %d of the seal are in the archive at %s: %s", e.First, e.Last, e.Place, e.Err)
}

// Unwrap returns the error of the archive.
func (e *TilesError) Unwrap() error { return e.Err }

// cut is where the rows of the table seal begin: tiles of an archive contain the leaves before.
type cut struct {
	batch, leaves int64           // the last batch without a row, and the leaves up to its end
	top           ledger.Position // the highest position in these batches
	xor           int64           // the exclusive or of their positions
	place         string
	// edge contains the hashes of the partial tile of each level, from 0, in the tree of these leaves.
	edge [][]tlog.Hash
}

// readCut returns nil if no rows were removed.
func readCut(ctx context.Context, db ledger.DB) (*cut, error) {
	c := &cut{}
	var edge string
	found, err := pgquery.Row(ctx, db, cutSQL, nil, &c.batch, &c.leaves, (*int64)(&c.top), &c.xor, &c.place, &edge)
	if err != nil || !found {
		return nil, explain("read the seal", err)
	}
	if c.leaves < 1 || c.leaves > maxLeaves {
		return nil, &ledger.CorruptError{What: "seal_cut", Err: fmt.Errorf("%d leaves", c.leaves)}
	}
	hashes, err := parseHashes(edge, edgeWidth(c.leaves))
	if err != nil {
		return nil, err
	}
	c.split(hashes)
	return c, nil
}

// split sets the edge.
func (c *cut) split(hashes []tlog.Hash) {
	for left := c.leaves; left > 0; left >>= tileHeight {
		n := left & tileMask
		c.edge, hashes = append(c.edge, hashes[:n]), hashes[n:]
	}
}

// tileMask masks the number of a hash in its tile.
const tileMask = 1<<tileHeight - 1

// edgeWidth returns the number of hashes in the partial tiles of a tree.
func edgeWidth(leaves int64) (n int) {
	for ; leaves > 0; leaves >>= tileHeight {
		n += int(leaves & tileMask)
	}
	return n
}

// readEdge returns the partial tiles of the tree of the first leaves, as seal_cut stores them.
func readEdge(leaves int64, hashes tlog.HashReader) ([]tlog.Hash, error) {
	var indexes []int64
	for level := 0; leaves>>level > 0; level += tileHeight {
		n := leaves >> level
		for i := n &^ tileMask; i < n; i++ {
			indexes = append(indexes, tlog.StoredHashIndex(level, i))
		}
	}
	return hashes.ReadHashes(indexes)
}

// frontier returns the frontier of the leaves before the cut.
func (c *cut) frontier() *frontier {
	f := &frontier{size: c.leaves}
	for level := 0; c.leaves>>level > 0; level++ {
		if c.leaves>>level&1 == 0 {
			continue
		}
		within := level % tileHeight
		first := (c.leaves>>level - 1) << within & tileMask
		f.hashes[level] = join(c.edge[level/tileHeight][first : first+1<<within])
	}
	return f
}

// hashes returns a reader of the tree of the leaves before the cut. It verifies each tile of the archive with the edge.
func (c *cut) hashes(ctx context.Context, a Archive) (tlog.HashReader, error) {
	root, err := c.frontier().root()
	if err != nil {
		return nil, err
	}
	fetch, place := a.at(c.place)
	tiles := &cutTiles{ctx: ctx, cut: c, fetch: fetch}
	hashes := tlog.TileHashReader(tlog.Tree{N: c.leaves, Hash: root}, tiles)
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		read, err := hashes.ReadHashes(indexes)
		if err != nil {
			return nil, &TilesError{First: 0, Last: c.leaves&^tileMask - 1, Place: place, Err: tileError(err)}
		}
		return read, nil
	}), nil
}

// read returns hashes of the tree of the leaves before the cut: of the edge, or of an archive.
func (c *cut) read(ctx context.Context, a Archive, indexes []int64) ([]tlog.Hash, error) {
	hashes, err := c.hashes(ctx, a)
	if err != nil {
		return nil, err
	}
	return hashes.ReadHashes(indexes)
}

// cutTiles implements [tlog.TileReader] with the partial tiles of the cut, and the full tiles of the archive.
type cutTiles struct {
	ctx   context.Context // tlog.TileReader takes none
	cut   *cut
	fetch Fetch
}

// Height implements [tlog.TileReader].
func (r *cutTiles) Height() int { return tileHeight }

// SaveTiles implements [tlog.TileReader].
func (r *cutTiles) SaveTiles([]tlog.Tile, [][]byte) {}

// tilesAtOnce is how many tiles are read at once.
const tilesAtOnce = 8

// ReadTiles implements [tlog.TileReader].
func (r *cutTiles) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	all := make([][]byte, len(tiles))
	faults := make([]error, len(tiles))
	slots := make(chan struct{}, tilesAtOnce)
	var reading sync.WaitGroup
	for i, t := range tiles {
		if t.W < 1<<tileHeight {
			for _, hash := range r.cut.edge[t.L][:t.W] {
				all[i] = append(all[i], hash[:]...)
			}
			continue
		}
		slots <- struct{}{}
		reading.Go(func() {
			all[i], faults[i] = r.readTile(t)
			<-slots
		})
	}
	reading.Wait()
	for _, err := range faults {
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// readTile reads a full tile.
func (r *cutTiles) readTile(t tlog.Tile) ([]byte, error) {
	data, err := r.fetch(r.ctx, tilePath(t))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errTile, tilePath(t), err)
	}
	if want := t.W * tlog.HashSize; len(data) != want {
		return nil, fmt.Errorf("%w: %s has %d bytes, want %d", ErrInconsistent, tilePath(t), len(data), want)
	}
	return data, nil
}

// leavesAtOnce is how many leaves are read from tiles at once.
const leavesAtOnce = 64 << tileHeight

// eachTiles calls f with the leaves from one to another, a few tiles at once: first, end, and their indexes in the
// tree.
func eachTiles(from, to int64, f func(first, end int64, indexes []int64) error) error {
	for first := from; first < to; {
		end := min(first&^tileMask+leavesAtOnce, to)
		if err := f(first, end, leafIndexes(first, end)); err != nil {
			return err
		}
		first = end
	}
	return nil
}

// leafIndexes returns the indexes of leaves in the tree.
func leafIndexes(first, end int64) (indexes []int64) {
	for leaf := first; leaf < end; leaf++ {
		indexes = append(indexes, tlog.StoredHashIndex(0, leaf))
	}
	return indexes
}
