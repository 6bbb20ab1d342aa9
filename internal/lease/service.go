package lease

import (
	"context"
	_ "embed"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/service_take.sql
	serviceTakeSQL string
	//go:embed sql/service_yield.sql
	serviceYieldSQL string
)

// Service names a service that one process at a time performs.
type Service string

// The services whose lease only saves double work.
const (
	Discarder Service = "discarder" // the scheduler that discards
	Sealer    Service = "sealer"
)

// Take takes or extends the lease, and reports whether the holder has it.
func (s Service) Take(ctx context.Context, db ledger.DB, holder string, d time.Duration) (bool, error) {
	var holds bool
	found, err := pgquery.Row(ctx, db, serviceTakeSQL, []any{string(s), holder, d.Milliseconds()}, &holds)
	return found && holds, pgerr.Explain("take the lease of the "+string(s), err)
}

// Yield lets another process take the lease at once.
func (s Service) Yield(ctx context.Context, db ledger.DB, holder string) error {
	_, err := db.Exec(ctx, serviceYieldSQL, string(s), holder)
	return pgerr.Explain("yield the lease of the "+string(s), err)
}
