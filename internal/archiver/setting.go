package archiver

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/setting_set.sql
	settingSetSQL string
	//go:embed sql/key_life_set.sql
	keyLifeSetSQL string
	//go:embed sql/setting_list.sql
	settingListSQL string
)

// Setting is how long a [Service] keeps the finished tasks of a kind.
type Setting struct {
	Kind      ledger.Kind   `json:"kind"`
	Keep      time.Duration `json:"-"`
	IsForever bool          `json:"forever"`
	IsDefault bool          `json:"default"` // as long as tasks of other kinds
	Actor     string        `json:"actor,omitempty"`
}

// Set stores a setting, and records it with an actor and a reason. It commits.
//
// Errors: [*ledger.InvalidError], [ledger.ErrNotMigrated], or errors of the database.
func Set(ctx context.Context, db ledger.DB, s Setting, reason string) error {
	if err := s.Kind.Validate(); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	if s.Keep < 0 {
		return &ledger.InvalidError{Field: "keep", Value: s.Keep.String(), Rule: "must not be negative"}
	}
	if err := operation.CheckReason(reason); err != nil {
		return err
	}
	var keep any
	if !s.IsForever && !s.IsDefault {
		keep = s.Keep.Microseconds()
	}
	forever := int64(0)
	if s.IsForever {
		forever = 1
	}
	args := []any{string(s.Kind), keep, forever, pgquery.Optional(s.Actor), pgquery.Optional(reason)}
	_, err := db.Exec(ctx, settingSetSQL, args...)
	return pgerr.Explain("set how long tasks are kept", err)
}

// Settings returns the settings of all kinds that have one, by kind. It never commits.
func Settings(ctx context.Context, db ledger.DB) ([]Setting, error) {
	rows, err := db.Query(ctx, settingListSQL)
	if err != nil {
		return nil, pgerr.Explain("read how long tasks are kept", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Setting, err error) {
		var keep int64
		err = row.Scan((*string)(&s.Kind), &keep, &s.Actor)
		s.Keep, s.IsForever = time.Duration(keep)*time.Microsecond, keep < 0
		return s, err
	})
	return all, pgerr.Explain("read how long tasks are kept", err)
}

// SetKeyLife sets how long the keys of tasks of a kind stay known that are archived from now on, and records it with an
// actor and a reason. A key that is forgotten is a new one: if it is enqueued again, its task runs, from version 1 on.
// keep is at least 0; negative: forever. It commits.
//
// Errors: as [Set].
func SetKeyLife(ctx context.Context, db ledger.DB, k ledger.Kind, keep time.Duration, actor, reason string) error {
	if err := k.Validate(); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	if err := operation.CheckReason(reason); err != nil {
		return err
	}
	var micros any
	if keep >= 0 {
		micros = keep.Microseconds()
	}
	_, err := db.Exec(ctx, keyLifeSetSQL, string(k), micros, pgquery.Optional(actor), pgquery.Optional(reason))
	return pgerr.Explain("set how long archived keys are kept", err)
}
