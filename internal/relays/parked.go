package relays

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/parked_list.sql
	parkedListSQL string
	//go:embed sql/unpark.sql
	unparkSQL string
	//go:embed sql/discard.sql
	discardSQL string
	//go:embed sql/unpark_all.sql
	unparkAllSQL string
)

// MaxParked is the maximum number of events in a call of [RetryParked] or [DiscardParked].
const MaxParked = 1000

// ParkedCure is the cure for parked events.
const ParkedCure = "too large: raise max_payload of the NATS server and restart it, or raise the stream's " +
	"max bytes, then: taskledger retry parked --all; otherwise, or if a kind, biz_id or data is invalid: " +
	"taskledger cancel KIND BIZ_ID, then: taskledger discard parked POSITION"

// Parked is an event that the relay could not publish.
type Parked struct {
	Position ledger.Position `json:"position"`
	Key      ledger.Key      `json:"key"`
	Version  ledger.Version  `json:"version"`
	Reason   string          `json:"reason"`
	ParkedAt time.Time       `json:"parked_at"`
}

// DB is a pgxpool.Pool or pgx.Conn, or a pgx.Tx, whose transactions are savepoints.
type DB = operation.DB

// ReadParked returns at most limit parked events after a position, in the order of their positions. It never commits.
// Errors: [*ledger.InvalidError] if limit is less than 1, [ledger.ErrNotMigrated].
func ReadParked(ctx context.Context, db ledger.DB, after ledger.Position, limit int) ([]Parked, error) {
	if err := lists.CheckLimit(limit); err != nil {
		return nil, fmt.Errorf("read parked events: %w", err)
	}
	rows, err := db.Query(ctx, parkedListSQL, int64(after), int64(limit))
	if err != nil {
		return nil, pgerr.Explain("read parked events", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p Parked, err error) {
		err = row.Scan((*int64)(&p.Position), (*string)(&p.Key.Kind), (*string)(&p.Key.BizID), (*int32)(&p.Version),
			&p.Reason, pgquery.Micros(&p.ParkedAt))
		return p, err
	})
	return all, pgerr.Explain("read parked events", err)
}

// RetryParked makes the relay publish parked events again, in the order of their positions. It removes them from the
// list and records the act; the relay acts when it reads the record. An event that it cannot publish is parked again.
// Later events of the task may have been published before. RetryParked commits, all of the events or none.
//
// Default of actor: the database's session_user. Errors: [ErrStreamOff], [subscribers.ErrNotParked],
// [*ledger.InvalidError], [ledger.ErrNotMigrated].
func RetryParked(ctx context.Context, db DB, positions []ledger.Position, actor, reason string) error {
	if err := checkOn(ctx, db); err != nil {
		return err
	}
	return unpark(ctx, db, unparkSQL, positions, operation.Operation{
		Action: operation.RetryParked, Actor: actor, Reason: reason,
	})
}

// DiscardParked removes parked events from the list: they are never published, not even when the stream is filled
// again. Their tasks do not change. It commits, all of the events or none. Default of actor and errors: as in
// [RetryParked].
func DiscardParked(ctx context.Context, db DB, positions []ledger.Position, actor, reason string) error {
	return unpark(ctx, db, discardSQL, positions, operation.Operation{
		Action: operation.DiscardParked, Actor: actor, Reason: reason,
	})
}

// unpark removes parked events from the list by a statement and records the act, in one transaction.
func unpark(ctx context.Context, db DB, sql string, positions []ledger.Position, o operation.Operation) error {
	if n := len(positions); n == 0 || n > MaxParked {
		return &ledger.InvalidError{Field: "positions", Rule: fmt.Sprintf("must be 1 to %d, got %d", MaxParked, n)}
	}
	o.Positions = slices.Compact(slices.Sorted(slices.Values(positions)))
	var list pgarray.Builder
	for _, p := range o.Positions {
		list.AddInt(int64(p))
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		return pgerr.Explain(o.Action, err)
	}
	defer pgquery.Rollback(ctx, tx) // after the commit it does nothing
	rows, err := tx.Query(ctx, sql, list.String())
	if err != nil {
		return pgerr.Explain(o.Action, err)
	}
	removed, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return pgerr.Explain(o.Action, err)
	}
	for _, p := range o.Positions {
		if !slices.Contains(removed, int64(p)) {
			return fmt.Errorf("position %d: %w", p, subscribers.ErrNotParked)
		}
	}
	if err := operation.Record(ctx, tx, o); err != nil {
		return err
	}
	return pgerr.Explain(o.Action, tx.Commit(ctx))
}

// ForgetParked empties the list of parked events, except discarded ones, before the relay begins again at the first
// event. The caller moves the cursor in the same transaction. It needs the owner of the table.
func ForgetParked(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, unparkAllSQL)
	return pgerr.Explain("forget parked events", err)
}
