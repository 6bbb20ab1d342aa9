package ledger

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
)

// States returns the states of the tasks with these keys, in one statement. A key without a task is left out.
func States(ctx context.Context, db DB, keys []Key) (map[Key]State, error) {
	states := make(map[Key]State, len(keys))
	if len(keys) == 0 {
		return states, nil
	}
	var kinds, ids pgarray.Builder
	for _, k := range keys {
		kinds.Add(string(k.Kind))
		ids.Add(string(k.BizID))
	}
	rows, _ := db.Query(ctx, headsSQL, kinds.String(), ids.String()) // ForEachRow returns its error
	var n, version int64
	var t string
	_, err := pgx.ForEachRow(rows, []any{&n, &version, &t}, func() error {
		states[keys[n-1]] = EventType(t).State()
		return nil
	})
	return states, pgerr.Explain("read states", err)
}
