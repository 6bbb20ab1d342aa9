package operator

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/resumed.sql
var resumedSQL string

// ResumedKind is a kind whose pause has ended.
type ResumedKind struct {
	Kind  ledger.Kind
	At    time.Time
	Actor string
}

// maxResumed is the maximum number of records that ReadResumed reads.
const maxResumed = 20

// ReadResumed returns the kinds that were resumed after a time, the last one first, among the newest 20 records. A kind
// occurs as often as it was resumed. Records that are not projected yet are left out. It never commits.
//
// Errors: [ledger.ErrNotMigrated].
func ReadResumed(ctx context.Context, db ledger.DB, after time.Time) (all []ResumedKind, err error) {
	from := operation.ResumeKind + "/"
	end := operation.ResumeKind + "0" // the character after /
	rows, err := db.Query(ctx, resumedSQL, from+after.UTC().Format(time.RFC3339), end, int64(maxResumed))
	if err != nil {
		return nil, pgerr.Explain("read resumed kinds", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, pgerr.Explain("read resumed kinds", err)
	}
	for _, id := range ids {
		e, err := ledger.ArgsEvent(ctx, db, ledger.Key{Kind: operation.Kind, BizID: ledger.BizID(id)})
		if errors.Is(err, ledger.ErrUnknownTask) { // archived since
			continue
		}
		if err != nil {
			return nil, err
		}
		var o operation.Operation
		if json.Unmarshal(e.Data, &o) == nil { // other programs can store any JSON
			all = append(all, ResumedKind{ledger.Kind(o.Detail["kind"]), e.RecordedAt, e.Actor})
		}
	}
	return all, nil
}
