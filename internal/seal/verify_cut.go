package seal

import (
	"context"
	"encoding/hex"
	"errors"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/taskledger/taskledger/ledger"
)

// passCut verifies the leaves whose rows were removed from the seal, and continues after them.
func (v *verifier) passCut(ctx context.Context) error {
	c, err := readCut(ctx, v.db)
	if err != nil || c == nil || c.leaves <= v.end.leaves {
		return err
	}
	hashes, err := c.hashes(ctx, v.archive)
	if err != nil {
		return err
	}
	if err := v.compareCheckpoints(c, hashes); err != nil {
		return err
	}
	remaining := int64(0)
	xor := c.xor ^ v.cutXOR
	err = eachTiles(v.end.leaves, c.leaves, func(first, end int64, indexes []int64) error {
		leaves, err := v.readLeaves(c, hashes, first, indexes)
		if err != nil {
			return err
		}
		positions, err := v.compareRest(ctx, first, end, leaves)
		for _, p := range positions {
			remaining++
			xor ^= p
		}
		if v.progress != nil {
			v.progress(end, max(end, v.total))
		}
		return err
	})
	if err != nil {
		return err
	}
	v.archived.events += c.leaves - v.end.leaves - remaining
	v.archived.xor ^= xor
	v.report.Archived += c.leaves - v.end.leaves - remaining
	v.cutXOR = c.xor
	// Events that are in none of these rows.
	err = v.eachEventBetween(ctx, v.next, c.top, func(e Event) { v.extra = append(v.extra, int64(e.Position)) })
	if err != nil {
		return err
	}
	v.tree = *c.frontier()
	v.end.batch, v.end.leaves, v.end.top = c.batch, c.leaves, c.top
	v.next = max(v.next, c.top+1)
	return nil
}

// compareCheckpoints compares the kept checkpoints of leaves whose rows were removed.
func (v *verifier) compareCheckpoints(c *cut, hashes tlog.HashReader) error {
	for len(v.kept) > 0 && v.kept[0].Size < c.leaves {
		if v.kept[0].Size == v.tree.size {
			if err := v.compareTree(); err != nil {
				return err
			}
			continue
		}
		root, err := tlog.TreeHash(v.kept[0].Size, hashes)
		unread, isUnread := errors.AsType[*TilesError](err)
		switch {
		case isUnread:
			v.report.Comparisons = append(v.report.Comparisons, Comparison{Checkpoint: v.kept[0],
				Unchecked: unread.Error()})
			v.kept = v.kept[1:]
		case err != nil:
			return err
		default:
			v.compareRoot(root)
		}
	}
	return nil
}

// readLeaves reads leaves of the archive. It returns no hash for leaves of tiles that cannot be read, and reports them.
func (v *verifier) readLeaves(
	c *cut, hashes tlog.HashReader, first int64, indexes []int64,
) (map[int64]tlog.Hash, error) {
	leaves := make(map[int64]tlog.Hash, len(indexes))
	note := func(from int64, read []tlog.Hash) {
		for i, hash := range read {
			leaves[from+int64(i)] = hash
		}
	}
	if v.away == nil {
		if read, err := hashes.ReadHashes(indexes); err == nil {
			note(first, read)
			return leaves, nil
		}
	}
	for end := first + int64(len(indexes)); first < end; {
		last := min(first|tileMask, end-1)
		isOfEdge := last >= c.leaves&^tileMask
		read, err := []tlog.Hash(nil), v.away
		if isOfEdge || v.away == nil {
			read, err = hashes.ReadHashes(leafIndexes(first, last+1))
		}
		unread, isUnread := errors.AsType[*TilesError](err)
		switch {
		case err == nil:
			note(first, read)
		case !isUnread:
			return nil, err
		default:
			v.reportUnread(Range{First: first, Last: last, Place: unread.Place, Reason: unread.Err.Error()}, unread)
			if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrInconsistent) {
				v.away = err
			}
		}
		first = last + 1
	}
	return leaves, nil
}

// reportUnread reports leaves whose tile cannot be read: a fault if the tile is damaged.
func (v *verifier) reportUnread(r Range, err error) {
	if errors.Is(err, ErrInconsistent) {
		v.add(Fault{Fault: Seal, Leaf: -1, Detail: r.String()})
		return
	}
	if n := len(v.report.Unchecked); n > 0 && v.report.Unchecked[n-1].Last+1 == r.First {
		v.report.Unchecked[n-1].Last = r.Last
		return
	}
	v.report.Unchecked = append(v.report.Unchecked, r)
}

// rest is an event in the table whose row of the seal was removed.
type rest struct {
	leaf int64
	salt []byte
	hash *tlog.Hash // nil: its tile cannot be read
}

// compareRest compares the events in the table whose rows were removed, with leaves from first to end. It returns their
// positions.
func (v *verifier) compareRest(
	ctx context.Context, first, end int64, leaves map[int64]tlog.Hash,
) (positions []int64, err error) {
	rows, err := v.db.Query(ctx, restSQL, first, end)
	if err != nil {
		return nil, explain("read the seal", err)
	}
	var position int64
	var salt string
	one, all := rest{}, make(map[int64]rest)
	_, err = pgx.ForEachRow(rows, []any{&position, &one.leaf, &salt}, func() (err error) {
		if one.salt, err = hex.DecodeString(salt); err != nil {
			return &ledger.CorruptError{What: "salts of the seal", Err: err}
		}
		one.hash = nil
		if hash, ok := leaves[one.leaf]; ok {
			one.hash = &hash
		}
		positions, all[position] = append(positions, position), one
		return nil
	})
	if err != nil || len(positions) == 0 {
		return nil, explain("read the seal", err)
	}
	_, _, err = v.eachEvent(ctx, eventsSQL, []any{literal(positions)}, func(e Event) {
		r := all[int64(e.Position)]
		delete(all, int64(e.Position))
		if r.hash != nil && !v.matches(e, r.salt, *r.hash) {
			v.suspects = append(v.suspects, suspect{key: e.Key, version: e.Version, position: e.Position, leaf: r.leaf,
				hash: *r.hash})
		}
	})
	for p, r := range all {
		if err == nil {
			err = v.reportMissing(ctx, &batch{firstLeaf: r.leaf, positions: []int64{p}}, map[int64]int{p: 0})
		}
	}
	return positions, err
}
