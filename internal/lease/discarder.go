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
	//go:embed sql/discarder_take.sql
	discarderTakeSQL string
	//go:embed sql/discarder_yield.sql
	discarderYieldSQL string
)

// TakeDiscarder takes or extends the lease of the scheduler that discards, and reports whether the holder has it.
func TakeDiscarder(ctx context.Context, db ledger.DB, holder string, d time.Duration) (bool, error) {
	var holds bool
	found, err := pgquery.Row(ctx, db, discarderTakeSQL, []any{holder, d.Milliseconds()}, &holds)
	return found && holds, pgerr.Explain("take the lease of the discarder", err)
}

// YieldDiscarder lets another scheduler take the lease at once.
func YieldDiscarder(ctx context.Context, db ledger.DB, holder string) error {
	_, err := db.Exec(ctx, discarderYieldSQL, holder)
	return pgerr.Explain("yield the lease of the discarder", err)
}
