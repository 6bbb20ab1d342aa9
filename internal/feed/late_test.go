package feed_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The pages of a window return each late event once and in position order, however the events of its transactions are
// distributed. A mutant that merges too little skips some.
func TestLatePagesAreComplete(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	connections := make([]*pgxpool.Pool, 20)
	for i := range connections {
		connections[i] = f.connect(ledgertest.Database, ledgertest.Owner)
	}
	mutant := f.mutantShares("lowest < top and", "false and")
	skipped := 0
	for seed := range uint64(12) {
		f.reset()
		random := rand.New(rand.NewPCG(seed, 0))
		late := make([]pgx.Tx, 2+random.IntN(len(connections)-1))
		for i := range late {
			tx, err := connections[i].Begin(f.ctx)
			if err != nil {
				t.Fatal(err)
			}
			late[i] = tx
			fill(f, tx, i, 1)
		}
		for id := 1_000; id < 4_000; {
			n := 1 + random.IntN([]int{1, 20, 300}[random.IntN(3)])
			fill(f, late[random.IntN(len(late))], id, n)
			id += n
		}
		if seed%2 == 0 {
			edgeNow(f) // the transactions are in the snapshot, and not above its xmax
		}
		lower := edgeNow(f)
		for _, tx := range late {
			fill(f, tx, 10_000+int(seed)*100+random.IntN(1<<20)*1_000, 3) // not late: drawn after the edge
			f.commit(tx)
		}
		upper := edgeNow(f)
		rows, _ := f.pool.Query(f.ctx, "select position from taskledger.event order by position")
		want, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			t.Fatal(err)
		}
		for _, pageSize := range []int{1 + random.IntN(20), 100 + random.IntN(1_000)} {
			walk := func(sql string) (all []int64) {
				for after := int64(0); ; {
					rows, _ := f.pool.Query(f.ctx, "select p.position from ("+sql+") p",
						lower[0], lower[1], lower[2], upper[0], upper[1], after, int64(pageSize))
					page, err := pgx.CollectRows(rows, pgx.RowTo[int64])
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, page...)
					if len(page) < pageSize {
						return all
					}
					after = page[len(page)-1]
				}
			}
			if got := walk(feed.PageSQL); !slices.Equal(got, want) {
				t.Errorf("seed %d, %d transactions, pages of %d: %d events of %d, or in another order",
					seed, len(late), pageSize, len(got), len(want))
			}
			if !slices.Equal(walk(mutant), want) {
				skipped++
			}
		}
	}
	if skipped == 0 {
		t.Error("the mutant passes: this test proves nothing")
	}
}
