// Package lease stores the leases of the relay and of workers: rows of taskledger.lease with the time until which a
// process counts as alive, by the database's clock. Correctness never depends on a lease; it decides which process
// continues a piece of work.
//
// The package contains all statements that name the table. Other packages read its views (migrations/00008_lease.sql).
package lease

import (
	"context"
	_ "embed"
	"encoding/json"
	"time"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/worker_lock.sql
	lockSQL string
	//go:embed sql/worker_renew.sql
	renewSQL string
	//go:embed sql/worker_end.sql
	endSQL string
	//go:embed sql/worker_sweep.sql
	sweepSQL string
)

// Worker returns the name of the lease of a worker.
func Worker(id string) string { return "worker/" + id }

// Lock blocks other workers of these kinds that call it until the end of db's transaction.
func Lock(ctx context.Context, db ledger.DB, kinds []string) error {
	_, err := db.Exec(ctx, lockSQL, pgarray.Of(kinds...))
	return pgerr.Explain("lock leases", err)
}

// Renew extends a lease by d, or creates it. detail is stored as JSON.
func Renew(ctx context.Context, db ledger.DB, name, holder string, d time.Duration, detail any) error {
	text, err := json.Marshal(detail)
	if err != nil {
		return err
	}
	_, err = db.Exec(ctx, renewSQL, name, holder, d.Milliseconds(), string(text))
	return pgerr.Explain("renew lease", err)
}

// Release removes a lease.
func Release(ctx context.Context, db ledger.DB, name string) error {
	_, err := db.Exec(ctx, endSQL, name)
	return pgerr.Explain("release lease", err)
}

// Sweep removes leases that ended a day ago. Of workers' ended leases, it keeps only the newest 1,000.
func Sweep(ctx context.Context, db ledger.DB) error {
	_, err := db.Exec(ctx, sweepSQL)
	return pgerr.Explain("sweep leases", err)
}
