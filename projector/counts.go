package projector

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/counts_add.sql
	countsAddSQL string
	//go:embed sql/counts_prune.sql
	countsPruneSQL string
	//go:embed sql/counts.sql
	countsSQL string
	//go:embed sql/counts_after.sql
	countsAfterSQL string
)

// ReadCounts returns the number of tasks by kind and state, sorted by both, without zeros, for at most limit kinds
// after a kind; "" is before the first. The numbers are running totals, so the cost grows with limit, not with the
// number of tasks or kinds. They lag behind the ledger, see [WaitFor]. Errors: [*ledger.InvalidError] if limit is less
// than 1, [ledger.ErrNotMigrated].
func ReadCounts(ctx context.Context, db ledger.DB, after ledger.Kind, limit int) ([]ledger.StateCount, error) {
	if err := lists.CheckLimit(limit); err != nil {
		return nil, fmt.Errorf("read counts: %w", err)
	}
	if after == "" && limit >= lists.All { // costs less while an old snapshot keeps removed rows
		return queryCounts(ctx, db, countsSQL)
	}
	return queryCounts(ctx, db, countsAfterSQL, string(after), int64(limit))
}

func queryCounts(ctx context.Context, db ledger.DB, sql string, args ...any) ([]ledger.StateCount, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, pgerr.Explain("read counts", err)
	}
	defer rows.Close()
	counts := []ledger.StateCount{}
	for rows.Next() {
		var c ledger.StateCount
		if err := rows.Scan((*string)(&c.Kind), (*string)(&c.State), &c.Tasks); err != nil {
			return nil, pgerr.Explain("read counts", err)
		}
		counts = append(counts, c)
	}
	return counts, pgerr.Explain("read counts", rows.Err())
}

// total is the key of one running total.
type total struct {
	kind  ledger.Kind
	state ledger.State
}

// addCounts adds the effect of the changes to the running totals. The rows that are added are known once w is sent.
func (p *tasks) addCounts(w *writes, changes []*change) *[]totalRow {
	added := new([]totalRow)
	deltas := make(map[total]int64)
	for _, c := range changes {
		if !c.new() {
			deltas[total{c.key.Kind, c.was}]--
		}
		deltas[total{c.key.Kind, c.task.State}]++
	}
	var kinds, states, values pgarray.Builder
	for t, delta := range deltas {
		if delta != 0 {
			kinds.Add(string(t.kind))
			states.Add(string(t.state))
			values.AddInt(delta)
		}
	}
	if kinds.IsEmpty() {
		return added
	}
	args := []any{kinds.String(), states.String(), values.String()}
	w.addQuery("add counts", p.sql.countsAdd, args, func(rows pgx.Rows) (err error) {
		*added, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r totalRow, err error) {
			err = row.Scan((*string)(&r.kind), (*string)(&r.state), &r.n)
			return r, err
		})
		return err
	})
	return added
}

// totalRow is one row of a running total.
type totalRow struct {
	total
	n int64
}

// prune removes rows of running totals. A row whose number is a multiple of keep removes those before it. So
// each old row is removed exactly once, by the transaction that made it old enough, and no scan begins where
// removed rows lie.
func (p *tasks) prune(ctx context.Context, tx pgx.Tx, added []totalRow) error {
	const keep = 256 // as in counts_prune.sql
	for _, r := range added {
		if r.n%keep != 0 {
			continue
		}
		if _, err := tx.Exec(ctx, p.sql.countsPrune, string(r.kind), string(r.state), r.n); err != nil {
			return pgerr.Explain("prune counts", err)
		}
	}
	return nil
}
