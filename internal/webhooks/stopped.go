package webhooks

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/stopped.sql
var stoppedSQL string

// Reason is why a receiver gets no events.
type Reason string

// The reasons of [Stopped].
const (
	Gone     Reason = "gone"     // it has answered 410, so its deliveries are paused
	Deleted  Reason = "deleted"  // a process has it, and its subscriber was deleted
	Unserved Reason = "unserved" // no process has it
	Stuck    Reason = "stuck"    // a process has it, and its subscriber passes no event: see the process's log
)

// Stopped is a receiver that gets no events.
type Stopped struct {
	Receiver string
	Reason   Reason
	Since    time.Time // when it began; zero: unknown
}

// ReadStopped returns at most limit receivers that get no events, by name: gone or deleted receivers, and receivers for
// which an event has waited longer than threshold. It never commits. It returns an [*ledger.InvalidError] if limit is
// less than 1, and [ledger.ErrNotMigrated].
func ReadStopped(ctx context.Context, db ledger.DB, threshold time.Duration, limit int) ([]Stopped, error) {
	if err := lists.CheckLimit(limit); err != nil {
		return nil, fmt.Errorf("read the receivers of webhooks: %w", err)
	}
	rows, err := db.Query(ctx, stoppedSQL, threshold.Milliseconds(), int64(limit))
	if err != nil {
		return nil, pgerr.Explain("read the receivers of webhooks", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Stopped, err error) {
		err = row.Scan(&s.Receiver, (*string)(&s.Reason), pgquery.Micros(&s.Since))
		return s, err
	})
	return all, pgerr.Explain("read the receivers of webhooks", err)
}
