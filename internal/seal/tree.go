package seal

import (
	"context"
	_ "embed"
	"encoding/hex"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/hashes.sql
var hashesSQL string

// nodeLevel is the lowest level of nodes that the table seal stores. A node below it covers at most 16 leaves, and is
// computed from them. So an event takes 34 bytes of hashes; with all nodes it would take 64.
const nodeLevel = 5

// maxLeaves is more than any ledger contains. Package tlog has no hashes of much larger trees, and panics.
const maxLeaves = 1 << 48

// firstNode returns the number of nodes in a tree with this number of leaves. The node at level l is the node that
// package tlog stores at level l - nodeLevel, where each record is the hash of 32 leaves.
func firstNode(leaves int64) int64 { return tlog.StoredHashCount(leaves >> nodeLevel) }

// frontier is a tree to which leaves are appended: it contains the last complete subtree of each level.
type frontier struct {
	size   int64
	hashes [63]tlog.Hash
}

// ReadHashes implements [tlog.HashReader] for the hashes that appending a leaf and computing the root need.
func (f *frontier) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		level, n := tlog.SplitStoredHashIndex(index)
		if n != f.size>>level-1 {
			return nil, fmt.Errorf("hash %d of level %d is not on the frontier of %d leaves", n, level, f.size)
		}
		hashes[i] = f.hashes[level]
	}
	return hashes, nil
}

// append appends a leaf, and returns the nodes for the table seal that it completes.
func (f *frontier) append(leaf tlog.Hash) (nodes []tlog.Hash, err error) {
	hashes, err := tlog.StoredHashesForRecordHash(f.size, leaf, f)
	if err != nil {
		return nil, err
	}
	f.size++
	copy(f.hashes[:], hashes)
	return hashes[min(nodeLevel, len(hashes)):], nil
}

// root returns the hash of the tree.
func (f *frontier) root() (tlog.Hash, error) { return tlog.TreeHash(f.size, f) }

// readFrontier returns the frontier of the first size leaves.
func readFrontier(ctx context.Context, db ledger.DB, a Archive, size int64) (*frontier, error) {
	f := &frontier{size: size}
	var levels []int
	var indexes []int64
	for left := uint64(size); left != 0; left &= left - 1 {
		level := bits.TrailingZeros64(left)
		levels = append(levels, level)
		indexes = append(indexes, tlog.StoredHashIndex(level, size>>level-1))
	}
	hashes, err := (&tree{ctx, db, a}).ReadHashes(indexes)
	if err != nil {
		return nil, err
	}
	for i, level := range levels {
		f.hashes[level] = hashes[i]
	}
	return f, nil
}

// tree reads the hashes of the table seal, and of removed rows from an archive.
type tree struct {
	ctx     context.Context // tlog.HashReader takes none
	db      ledger.DB
	archive Archive
}

// ReadHashes implements [tlog.HashReader] by one statement, and another one if a row was removed.
func (t *tree) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	if len(indexes) == 0 {
		return nil, nil
	}
	var leaves, nodes pgarray.Builder
	var of []int64 // the indexes of these leaves and nodes
	for _, index := range indexes {
		level, n := tlog.SplitStoredHashIndex(index)
		if level >= nodeLevel {
			leaves.AddInt((n+1)<<level - 1) // this leaf completes the node
			nodes.AddInt(tlog.StoredHashIndex(level-nodeLevel, n))
			of = append(of, index)
			continue
		}
		for leaf := n << level; leaf < (n+1)<<level; leaf++ {
			leaves.AddInt(leaf)
			nodes.AddInt(-1)
			of = append(of, tlog.StoredHashIndex(0, leaf))
		}
	}
	rows, err := t.db.Query(t.ctx, hashesSQL, leaves.String(), nodes.String())
	if err != nil {
		return nil, explain("read the seal", err)
	}
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, explain("read the seal", err)
	}
	read, err := t.parse(texts, of)
	if err != nil {
		return nil, err
	}
	hashes := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		level, _ := tlog.SplitStoredHashIndex(index)
		width := 1
		if level < nodeLevel {
			width = 1 << level
		}
		hashes[i], read = join(read[:width]), read[width:]
	}
	return hashes, nil
}

// parse parses hashes with these indexes, and reads the missing ones of removed rows from the archive.
func (t *tree) parse(texts []string, of []int64) ([]tlog.Hash, error) {
	if !slices.Contains(texts, "") {
		return parseHashes(strings.Join(texts, ""), len(of))
	}
	c, err := readCut(t.ctx, t.db)
	if err != nil {
		return nil, err
	}
	hashes := make([]tlog.Hash, len(of))
	var removed []int64
	for i, text := range texts {
		level, n := tlog.SplitStoredHashIndex(of[i])
		if text == "" && c != nil && (n+1)<<level <= c.leaves {
			removed = append(removed, of[i])
			continue
		}
		hash, err := parseHashes(text, 1)
		if err != nil {
			return nil, err
		}
		hashes[i] = hash[0]
	}
	archived, err := c.read(t.ctx, t.archive, removed)
	if err != nil {
		return nil, err
	}
	for i, text := range texts {
		if text == "" {
			hashes[i], archived = archived[0], archived[1:]
		}
	}
	return hashes, nil
}

// join returns the hash of a complete tree of leaves, whose number is a power of two.
func join(leaves []tlog.Hash) tlog.Hash {
	if len(leaves) == 1 {
		return leaves[0]
	}
	half := len(leaves) / 2
	return tlog.NodeHash(join(leaves[:half]), join(leaves[half:]))
}

// parseHashes returns n hashes from hexadecimal text.
func parseHashes(text string, n int) ([]tlog.Hash, error) {
	decoded, err := hex.DecodeString(text)
	if err == nil && len(decoded) != n*tlog.HashSize {
		err = fmt.Errorf("%d bytes for %d hashes", len(decoded), n)
	}
	if err != nil {
		return nil, &ledger.CorruptError{What: "hashes of the seal", Err: err}
	}
	hashes := make([]tlog.Hash, n)
	for i := range hashes {
		hashes[i] = tlog.Hash(decoded[i*tlog.HashSize:])
	}
	return hashes, nil
}

// formatHashes is the inverse of parseHashes.
func formatHashes(hashes []tlog.Hash) string {
	text := make([]byte, 0, 2*tlog.HashSize*len(hashes))
	for _, h := range hashes {
		text = hex.AppendEncode(text, h[:])
	}
	return string(text)
}
