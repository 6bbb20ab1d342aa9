package seal

import (
	"context"
	_ "embed"
	"math"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/cuttable.sql
	cuttableSQL string
	//go:embed sql/cut_rows.sql
	cutRowsSQL string
)

// CutOptions are the options of [CutRows].
type CutOptions struct {
	// Place is the archive with the tiles, as the ledger records it. Required.
	Place string
	// Fetch reads a tile of the archive. Required.
	Fetch Fetch
	// Size returns the size of the tree whose tiles the archive contains. Required.
	Size func(context.Context) (int64, error)
	// Actor and Reason are recorded. Default: none.
	Actor, Reason string
}

// CutRows removes the first rows of the table seal whose tiles an archive contains, as long as at least half of their
// events are archived, and returns how many leaves they had. It verifies each tile with the hashes of the rows before
// it removes them. Of the events that are not archived, leaf and salt stay. Each removal is a transaction of some
// milliseconds, and is recorded. It may be killed and run again, and several may run at once. It needs the role
// archiver.
//
// Errors: [*TilesError] for a missing or damaged tile, in which case its rows stay; errors of Size.
func CutRows(ctx context.Context, db ledger.DB, o CutOptions) (leaves int64, err error) {
	for size := int64(math.MaxInt64); ; {
		var last, end int64
		found, err := pgquery.Row(ctx, db, cuttableSQL, []any{size}, &last, &end)
		if err != nil || !found {
			return leaves, explain("read the seal", err)
		}
		if size == math.MaxInt64 { // Size is called only if rows may be removed
			if size, err = o.Size(ctx); err != nil {
				return leaves, err
			}
			continue
		}
		edge, err := verifyTiles(ctx, db, o, end)
		if err != nil {
			return leaves, err
		}
		fault.Point(fault.ArchiveTilesRead)
		var n int64
		args := []any{last, end, formatHashes(edge), o.Place, pgquery.Optional(o.Actor), pgquery.Optional(o.Reason)}
		if _, err := pgquery.Row(ctx, db, cutRowsSQL, args, &n); err != nil {
			return leaves, explain("remove rows of the seal", err)
		}
		fault.Point(fault.ArchiveCut)
		leaves += n
	}
}

// verifyTiles verifies that an archive contains each full tile of the tree of the first leaves, and returns its partial
// tiles. Tiles that an earlier call has verified there are not read again.
func verifyTiles(ctx context.Context, db ledger.DB, o CutOptions, leaves int64) ([]tlog.Hash, error) {
	before, err := readCut(ctx, db)
	if err != nil {
		return nil, err
	}
	// The rows before an earlier cut are in an archive, which may be another one.
	edge, err := readEdge(leaves, &tree{ctx: ctx, db: db})
	if err != nil {
		return nil, err
	}
	c := &cut{leaves: leaves}
	c.split(edge)
	root, err := c.frontier().root()
	if err != nil {
		return nil, err
	}
	from := int64(0)
	if before != nil && before.place == o.Place {
		from = before.leaves
	}
	hashes := tlog.TileHashReader(tlog.Tree{N: leaves, Hash: root}, &cutTiles{ctx: ctx, cut: c, fetch: o.Fetch})
	err = eachTiles(from, leaves, func(_, _ int64, indexes []int64) error {
		_, err := hashes.ReadHashes(indexes)
		return err
	})
	if err != nil {
		return nil, &TilesError{First: from &^ tileMask, Last: leaves - 1, Place: o.Place, Err: tileError(err)}
	}
	return edge, nil
}
