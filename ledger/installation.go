package ledger

import (
	"context"
	_ "embed"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
)

//go:embed sql/installation_renew.sql
var installationRenewSQL string

// RenewInstallation gives the ledger a new installation id and returns it. A copy of a database that runs beside the
// original needs one, and a NATS account of its own: the relay of each refuses the stream of the other. It commits
// unless db is a transaction. It needs the owner of the table setting.
func RenewInstallation(ctx context.Context, db DB) (id string, err error) {
	_, err = pgquery.Row(ctx, db, installationRenewSQL, nil, &id)
	return id, pgerr.Explain("renew the installation", err)
}
