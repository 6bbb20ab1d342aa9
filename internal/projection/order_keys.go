package projection

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/list_order_keys.sql
var listOrderKeysSQL string

// AddOrderKeys sets the order keys of listed tasks, as of the events that they show.
func AddOrderKeys(ctx context.Context, db ledger.DB, tasks []ledger.ListedTask) error {
	if len(tasks) == 0 {
		return nil
	}
	var kinds, ids, versions pgarray.Builder
	for _, t := range tasks {
		kinds.Add(string(t.Kind))
		ids.Add(string(t.BizID))
		versions.AddInt(int64(t.Version))
	}
	rows, err := db.Query(ctx, listOrderKeysSQL, kinds.String(), ids.String(), versions.String())
	if err != nil {
		return pgerr.Explain("read order keys", err)
	}
	var i int
	var orderKey string
	_, err = pgx.ForEachRow(rows, []any{&i, &orderKey}, func() error {
		tasks[i].OrderKey = orderKey
		return nil
	})
	return pgerr.Explain("read order keys", err)
}
