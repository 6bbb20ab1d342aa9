package relays

import (
	"context"
	_ "embed"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/may_serve.sql
var mayServeSQL string

// CheckRole returns an error with SQLSTATE 42501 unless the login of db is a member of the services' role. Otherwise
// each service would only log that, and retry.
func CheckRole(ctx context.Context, db ledger.DB) error {
	_, err := db.Exec(ctx, mayServeSQL)
	return pgerr.Explain("begin the services", err)
}
