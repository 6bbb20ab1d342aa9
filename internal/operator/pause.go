package operator

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/pause.sql
	pauseSQL string
	//go:embed sql/resume.sql
	resumeSQL string
	//go:embed sql/paused.sql
	pausedSQL string
)

// PausedKind is a kind whose tasks no worker starts.
type PausedKind struct {
	Kind   ledger.Kind `json:"kind"`
	Since  time.Time   `json:"since"`
	Actor  string      `json:"actor"`
	Reason string      `json:"reason"`
}

// PauseKind stops all workers, including later ones, from starting tasks of a kind until it is resumed. It takes
// effect within about a second. Running handlers and enqueueing go on. It reports whether the kind was not paused
// before; if it was, only a new reason is recorded, with its actor. Each change is recorded as a task of kind
// taskledger.operation. It commits.
//
// Errors: [*ledger.InvalidError], [ledger.ErrNotMigrated].
func (o *Operator) PauseKind(ctx context.Context, kind ledger.Kind, audit Audit) (bool, error) {
	if err := kind.Validate(); err != nil {
		return false, err
	}
	if err := audit.validate(); err != nil {
		return false, err
	}
	isNew, isChange := false, false
	err := o.recordKind(ctx, operation.PauseKind, kind, audit, func(tx pgx.Tx) (_ bool, err error) {
		isChange, err = pgquery.Row(ctx, tx, pauseSQL,
			[]any{string(kind), pgquery.Optional(audit.Actor), audit.Reason}, &isNew)
		return isChange, err
	})
	return isNew, pgerr.Explain(fmt.Sprintf("pause kind %s", kind), err)
}

// ResumeKind ends the pause of [Operator.PauseKind]. It reports whether the kind was paused. It commits. Its errors
// are the same.
func (o *Operator) ResumeKind(ctx context.Context, kind ledger.Kind, audit Audit) (bool, error) {
	if err := kind.Validate(); err != nil {
		return false, err
	}
	if err := audit.validate(); err != nil {
		return false, err
	}
	wasPaused := false
	err := o.recordKind(ctx, operation.ResumeKind, kind, audit, func(tx pgx.Tx) (bool, error) {
		tag, err := tx.Exec(ctx, resumeSQL, string(kind))
		wasPaused = tag.RowsAffected() > 0
		return wasPaused, err
	})
	return wasPaused && err == nil, pgerr.Explain(fmt.Sprintf("resume kind %s", kind), err)
}

// recordKind calls change in a transaction, and records the action if change reports a change.
func (o *Operator) recordKind(
	ctx context.Context, action string, kind ledger.Kind, audit Audit, change func(pgx.Tx) (bool, error),
) error {
	return pgx.BeginFunc(ctx, o.db, func(tx pgx.Tx) error {
		if isChange, err := change(tx); err != nil || !isChange {
			return err
		}
		return operation.Record(ctx, tx, operation.Operation{Action: action, Reason: audit.Reason, Actor: audit.Actor,
			Detail: map[string]string{"kind": string(kind)}})
	})
}

// ReadPaused returns at most limit paused kinds, the first ones after a kind, by name; "" is before the first. It never
// commits. Errors: [*ledger.InvalidError] if limit is less than 1, [ledger.ErrNotMigrated].
func ReadPaused(ctx context.Context, db ledger.DB, after ledger.Kind, limit int) ([]PausedKind, error) {
	if err := lists.CheckLimit(limit); err != nil {
		return nil, fmt.Errorf("read paused kinds: %w", err)
	}
	rows, err := db.Query(ctx, pausedSQL, string(after), int64(limit))
	if err != nil {
		return nil, pgerr.Explain("read paused kinds", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (k PausedKind, err error) {
		err = row.Scan((*string)(&k.Kind), pgquery.Micros(&k.Since), &k.Actor, &k.Reason)
		return k, err
	})
	if err != nil {
		return nil, pgerr.Explain("read paused kinds", err)
	}
	return all, nil
}
