package seal

import (
	_ "embed"
	"encoding/hex"
	"fmt"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/leaves_from.sql
var leavesFromSQL string

// leafReader reads the hashes of a tree whose leaves are needed in order: whole batches of leaves with one statement.
type leafReader struct {
	*tree

	first  int64  // number of the first leaf in leaves
	leaves []byte // of consecutive batches
}

// ReadHashes implements [tlog.HashReader].
func (r *leafReader) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	first, isRun := leafRun(indexes)
	if !isRun {
		return r.tree.ReadHashes(indexes)
	}
	if err := r.read(first, int64(len(indexes))); err != nil {
		return nil, err
	}
	at := (first - r.first) * tlog.HashSize
	if first < r.first || at+int64(len(indexes))*tlog.HashSize > int64(len(r.leaves)) { // rows are missing, or removed
		return r.tree.ReadHashes(indexes)
	}
	hashes := make([]tlog.Hash, len(indexes))
	for i := range hashes {
		hashes[i] = tlog.Hash(r.leaves[at+int64(i)*tlog.HashSize:])
	}
	return hashes, nil
}

// leafRun reports whether indexes are those of consecutive leaves, and returns the first.
func leafRun(indexes []int64) (first int64, isRun bool) {
	if len(indexes) == 0 {
		return 0, false
	}
	level, first := tlog.SplitStoredHashIndex(indexes[0])
	if level > 0 {
		return 0, false
	}
	for i, index := range indexes {
		if index != tlog.StoredHashIndex(0, first+int64(i)) {
			return 0, false
		}
	}
	return first, true
}

// read reads batches until they contain n leaves from first on, or none follows that begins where the last one ends.
func (r *leafReader) read(first, n int64) error {
	for {
		end := r.first + int64(len(r.leaves)/tlog.HashSize)
		switch {
		case first < r.first || first > end:
			r.first, r.leaves, end = first, nil, first
		case first+n <= end:
			return nil
		}
		r.leaves = r.leaves[(first-r.first)*tlog.HashSize:]
		r.first = first
		rows, err := r.db.Query(r.ctx, leavesFromSQL, end, int64(batchesAtOnce))
		if err != nil {
			return explain("read the seal", err)
		}
		var begin int64
		var text string
		before := len(r.leaves)
		_, err = pgx.ForEachRow(rows, []any{&begin, &text}, func() error {
			if begin > end || begin < end && len(r.leaves) > 0 {
				return nil
			}
			hashes, err := hex.DecodeString(text)
			if err == nil && len(hashes)%tlog.HashSize != 0 {
				err = fmt.Errorf("%d bytes of hashes", len(hashes))
			}
			if err != nil {
				return &ledger.CorruptError{What: "hashes of the seal", Err: err}
			}
			if skipped := (end - begin) * tlog.HashSize; skipped < int64(len(hashes)) {
				r.leaves = append(r.leaves, hashes[skipped:]...)
				end = begin + int64(len(hashes)/tlog.HashSize)
			}
			return nil
		})
		if err != nil || len(r.leaves) == before {
			return explain("read the seal", err)
		}
	}
}
