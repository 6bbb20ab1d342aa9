package operator

import (
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/dead.sql
var deadSQL string

// DeadGroup is the dead tasks of one kind whose errors have the same fingerprint.
type DeadGroup struct {
	Kind        ledger.Kind `json:"kind"`
	Fingerprint string      `json:"fingerprint"` // see ledger.Fingerprint
	Tasks       int64       `json:"tasks"`
	Oldest      time.Time   `json:"oldest"` // when the first of them died
	Newest      time.Time   `json:"newest"`
	Error       string      `json:"error"`   // of the newest
	Example     ledger.Key  `json:"example"` // the newest
}

// ReadDead returns the dead tasks of a kind ("": of all kinds) in groups, the largest first. It reads the
// projection, of which it reads only the dead tasks. It never commits.
//
// Errors: [*ledger.InvalidError], [ledger.ErrNotMigrated].
func ReadDead(ctx context.Context, db ledger.DB, kind ledger.Kind) ([]DeadGroup, error) {
	if err := kind.ValidateStored(); err != nil {
		return nil, err
	}
	rows, err := db.Query(ctx, deadSQL, string(kind))
	if err != nil {
		return nil, pgerr.Explain("read dead tasks", err)
	}
	groups, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (g DeadGroup, err error) {
		err = row.Scan((*string)(&g.Kind), &g.Fingerprint, &g.Tasks, pgquery.Micros(&g.Oldest),
			pgquery.Micros(&g.Newest), &g.Error, (*string)(&g.Example.BizID))
		g.Example.Kind = g.Kind
		return g, err
	})
	if err != nil {
		return nil, pgerr.Explain("read dead tasks", err)
	}
	return groups, nil
}
