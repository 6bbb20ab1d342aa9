package operator

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

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

// PausedKind is a kind of which no worker starts tasks.
type PausedKind struct {
	Kind   ledger.Kind `json:"kind"`
	Since  time.Time   `json:"since"`
	Actor  string      `json:"actor"`
	Reason string      `json:"reason"`
}

// PauseKind has all workers, including later ones, start no task of a kind until it is resumed. They notice it
// within about a second. Running handlers and enqueueing go on. It reports whether the kind was not paused
// before; if it was, only another reason is recorded, with its actor. It commits.
//
// Errors: [*ledger.InvalidError], [ledger.ErrNotMigrated].
func (o *Operator) PauseKind(ctx context.Context, kind ledger.Kind, audit Audit) (bool, error) {
	if err := kind.Validate(); err != nil {
		return false, err
	}
	if err := audit.validate(); err != nil {
		return false, err
	}
	isNew := false
	_, err := pgquery.Row(ctx, o.config.DB, pauseSQL,
		[]any{string(kind), pgquery.Optional(audit.Actor), audit.Reason}, &isNew)
	return isNew, pgerr.Explain(fmt.Sprintf("pause kind %s", kind), err)
}

// ResumeKind ends the pause of [Operator.PauseKind]. It reports whether the kind was paused. It commits. Errors
// as there.
func (o *Operator) ResumeKind(ctx context.Context, kind ledger.Kind) (bool, error) {
	if err := kind.Validate(); err != nil {
		return false, err
	}
	tag, err := o.config.DB.Exec(ctx, resumeSQL, string(kind))
	if err != nil {
		return false, pgerr.Explain(fmt.Sprintf("resume kind %s", kind), err)
	}
	return tag.RowsAffected() > 0, nil
}

// ReadPaused returns the paused kinds, by name. It never commits. Errors: [ledger.ErrNotMigrated].
func ReadPaused(ctx context.Context, db ledger.DB) ([]PausedKind, error) {
	rows, err := db.Query(ctx, pausedSQL)
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
