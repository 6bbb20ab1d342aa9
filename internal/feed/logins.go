package feed

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/login.sql
var loginSQL string

// loginNames contains the names of the logins of events that a feed has read, by id. An id never changes its name, so
// each is read once.
type loginNames map[int32]string

// fill sets the Login of each event, whose id is at the same index of ids.
func (n loginNames) fill(ctx context.Context, db ledger.DB, events []ledger.Event, ids []int32) error {
	for i, id := range ids {
		name, ok := n[id]
		if !ok {
			var err error
			if name, err = n.read(ctx, db, id); err != nil {
				return err
			}
		}
		events[i].Login = name
	}
	return nil
}

// read reads a name that is not known yet. It is separate from fill because its variable escapes to the heap.
func (n loginNames) read(ctx context.Context, db ledger.DB, id int32) (name string, err error) {
	if _, err := pgquery.Row(ctx, db, loginSQL, []any{int64(id)}, &name); err != nil {
		return "", fmt.Errorf("read login: %w", err)
	}
	n[id] = name
	return name, nil
}
