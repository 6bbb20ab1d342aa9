package seal

import (
	"context"
	_ "embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/batches.sql
var batchesSQL string

// batchesAtOnce is how many batches a statement reads: a full one takes 150 KB.
const batchesAtOnce = 16

// batch is a row of the table seal.
type batch struct {
	number               int64
	firstLeaf, firstNode int64
	top                  ledger.Position
	isLate               bool
	isRegular            bool // its arrays have one dimension, from 1
	positions            []int64
	leaves, nodes        []tlog.Hash
	salts                [][]byte
}

// readBatches returns the batches from a number on, at most batchesAtOnce.
func readBatches(ctx context.Context, db ledger.DB, from int64) ([]*batch, error) {
	rows, err := db.Query(ctx, batchesSQL, from, int64(batchesAtOnce))
	if err != nil {
		return nil, explain("read the seal", err)
	}
	batches, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*batch, error) {
		b := &batch{}
		var positions, leaves, nodes, salts string
		err := row.Scan(&b.number, &b.firstLeaf, &b.firstNode, (*int64)(&b.top), &b.isLate, &b.isRegular, &positions,
			&leaves, &nodes, &salts)
		if err != nil {
			return nil, err
		}
		return b, b.parse(positions, leaves, nodes, salts)
	})
	return batches, explain("read the seal", err)
}

// parse sets the fields of b that are read as text. The constraints of the table have checked their lengths.
func (b *batch) parse(positions, leaves, nodes, salts string) (err error) {
	if b.positions, err = parsePositions(positions); err != nil {
		return err
	}
	if b.leaves, err = parseHashes(leaves, len(b.positions)); err != nil {
		return err
	}
	if b.nodes, err = parseHashes(nodes, len(nodes)/2/tlog.HashSize); err != nil {
		return err
	}
	for text := range strings.SplitSeq(salts, ",") {
		salt, err := hex.DecodeString(text)
		if err != nil {
			return &ledger.CorruptError{What: "salts of the seal", Err: err}
		}
		b.salts = append(b.salts, salt)
	}
	if len(b.salts) != len(b.positions) {
		err := fmt.Errorf("%d salts for %d events", len(b.salts), len(b.positions))
		return &ledger.CorruptError{What: "salts of the seal", Err: err}
	}
	return nil
}

// problem returns why b cannot follow the end of a seal, or "".
func (b *batch) problem(e end) string {
	switch {
	case b.number != e.batch+1:
		return fmt.Sprintf("batch %d follows batch %d", b.number, e.batch)
	case !b.isRegular:
		return fmt.Sprintf("the arrays of batch %d do not have one dimension from 1", b.number)
	case b.firstLeaf != e.leaves || b.firstNode != firstNode(e.leaves):
		return fmt.Sprintf("batch %d begins at leaf %d, and %d leaves are before it", b.number, b.firstLeaf, e.leaves)
	case !slices.IsSorted(b.positions) || len(slices.Compact(slices.Clone(b.positions))) < len(b.positions):
		return fmt.Sprintf("the positions of batch %d are not in order", b.number)
	}
	first, last := ledger.Position(b.positions[0]), ledger.Position(b.positions[len(b.positions)-1])
	if b.isLate && (b.top != e.top || last > e.top) || !b.isLate && (b.top != last || first <= e.top) {
		return fmt.Sprintf("batch %d, positions %d to %d, ends at position %d, after %d", b.number, first, last,
			b.top, e.top)
	}
	return ""
}
