package projection

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/illegal.sql
	illegalSQL string
	//go:embed sql/illegal_list.sql
	illegalListSQL string
	//go:embed sql/illegal_dismiss.sql
	illegalDismissSQL string
)

// MaxIllegal is the highest number of events that [Illegal] counts.
const MaxIllegal = 10_000

// Illegal is the number of events that cannot follow those before them, as the projector found them.
type Illegal struct {
	Events int       // at most MaxIllegal, which also stands for more
	Since  time.Time // when the first one was found; zero if Events is 0 or MaxIllegal
	Last   string    // the last one, and why it is illegal; any one if Events is MaxIllegal
}

// ErrNotIllegal is the error of a task without illegal events on record.
var ErrNotIllegal = errors.New("no illegal event of the task is on record")

// IllegalEvent is an event that cannot follow those before it.
type IllegalEvent struct {
	Key     ledger.Key     `json:"key"`
	Version ledger.Version `json:"version"` // 0: unknown
	Reason  string         `json:"reason"`
	FoundAt time.Time      `json:"found_at"`
}

// ReadIllegal returns the number of illegal events that are recorded in taskledger.illegal_event. [DismissIllegal]
// removes its rows, and [ListIllegal] lists them all. It never commits.
func ReadIllegal(ctx context.Context, db ledger.DB) (i Illegal, err error) {
	_, err = pgquery.Row(ctx, db, illegalSQL, []any{int64(MaxIllegal)}, &i.Events, pgquery.Micros(&i.Since), &i.Last)
	return i, pgerr.Explain("read illegal events", err)
}

// ListIllegal returns at most limit illegal events on record after an event, by key and version. The zero EventName is
// before the first event. It never commits.
func ListIllegal(ctx context.Context, db ledger.DB, after subscribers.EventName, limit int) ([]IllegalEvent, error) {
	if err := lists.CheckLimit(limit); err != nil {
		return nil, fmt.Errorf("list illegal events: %w", err)
	}
	rows, err := db.Query(ctx, illegalListSQL, string(after.Key.Kind), string(after.Key.BizID), int64(after.Version),
		int64(limit))
	if err != nil {
		return nil, pgerr.Explain("list illegal events", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e IllegalEvent, err error) {
		err = row.Scan((*string)(&e.Key.Kind), (*string)(&e.Key.BizID), (*int32)(&e.Version), &e.Reason,
			pgquery.Micros(&e.FoundAt))
		return e, err
	})
	return all, pgerr.Explain("list illegal events", err)
}

// DismissIllegal removes the illegal events of a task from the record and returns their number. The events stay in the
// ledger, and the task stays as before them; if it gets another event, or the projection is rebuilt, the projector
// records them again. The act is recorded. It commits.
//
// Default of actor: the database's session_user. Errors: [ErrNotIllegal], [*ledger.InvalidError],
// [ledger.ErrNotMigrated].
func DismissIllegal(ctx context.Context, db operation.DB, k ledger.Key, actor, reason string) (int, error) {
	o := operation.Operation{Action: operation.DismissIllegal, Actor: actor, Reason: reason}
	tx, err := db.Begin(ctx)
	if err != nil {
		return 0, pgerr.Explain(o.Action, err)
	}
	defer pgquery.Rollback(ctx, tx) // after the commit it does nothing
	rows, err := tx.Query(ctx, illegalDismissSQL, string(k.Kind), string(k.BizID))
	if err != nil {
		return 0, pgerr.Explain(o.Action, err)
	}
	versions, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		return 0, pgerr.Explain(o.Action, err)
	}
	if len(versions) == 0 {
		return 0, fmt.Errorf("%s: %w", k, ErrNotIllegal)
	}
	for _, v := range versions {
		o.Events = append(o.Events, fmt.Sprintf("%s/%d", k, v))
	}
	if err := operation.Record(ctx, tx, o); err != nil {
		return 0, err
	}
	return len(versions), pgerr.Explain(o.Action, tx.Commit(ctx))
}
