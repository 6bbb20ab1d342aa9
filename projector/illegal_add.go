package projector

import (
	"context"
	_ "embed"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/illegal_add.sql
var illegalAddSQL string

// addIllegal records an error of [ledger.Fold] in the transaction of a page, by illegal_add.sql for its tables.
func addIllegal(ctx context.Context, tx pgx.Tx, sql string, k ledger.Key, err error) error {
	var version ledger.Version
	var illegal *ledger.IllegalError
	if errors.As(err, &illegal) {
		version = illegal.Event.Version
	}
	_, err = tx.Exec(ctx, sql, string(k.Kind), string(k.BizID), int64(version), err.Error())
	return pgerr.Explain("record an illegal event", err)
}
