package ledgertest

import (
	"context"
	_ "embed"
	"testing"

	"github.com/taskledger/taskledger/ledger"
)

//go:embed enqueued.sql
var enqueuedSQL string

// Enqueued returns the args of all tasks of a kind, by biz_id, in all states. db may be the transaction in
// which the code under test has enqueued them. It fails the test if args do not decode.
func Enqueued[A any](t testing.TB, db ledger.DB, kind ledger.TypedKind[A]) map[ledger.BizID]A {
	t.Helper()
	all, err := enqueued(t.Context(), db, kind.Name())
	if err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
	tasks := make(map[ledger.BizID]A, len(all))
	for id, payload := range all {
		args, err := kind.Decode(payload)
		if err != nil {
			t.Fatalf("ledgertest: %s/%s: %v", kind.Name(), id, err)
		}
		tasks[id] = args
	}
	return tasks
}

func enqueued(ctx context.Context, db ledger.DB, kind ledger.Kind) (map[ledger.BizID][]byte, error) {
	rows, err := db.Query(ctx, enqueuedSQL, string(kind))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := make(map[ledger.BizID][]byte)
	for rows.Next() {
		var id string
		var data, meta *string
		if err := rows.Scan(&id, &data, &meta); err != nil {
			return nil, err
		}
		payload, err := ledger.Event{Data: bytesOf(data), Meta: bytesOf(meta)}.Payload()
		if err != nil {
			return nil, err
		}
		all[ledger.BizID(id)] = payload
	}
	return all, rows.Err()
}
