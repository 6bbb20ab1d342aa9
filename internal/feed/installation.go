package feed

import (
	"context"
	_ "embed"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/installation_renew.sql
var installationRenewSQL string

// RenewInstallation gives the ledger a new installation id and returns it. A copy of a database that runs next to the
// original needs its own id and its own NATS account: the relay of each refuses the other's stream. It commits unless
// db is a transaction. It needs the owner of the table setting.
func RenewInstallation(ctx context.Context, db ledger.DB) (id string, err error) {
	_, err = pgquery.Row(ctx, db, installationRenewSQL, nil, &id)
	return id, pgerr.Explain("renew the installation", err)
}
