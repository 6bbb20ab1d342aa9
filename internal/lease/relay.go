package lease

import (
	"context"
	_ "embed"
	"strconv"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/relay_take.sql
	relayTakeSQL string
	//go:embed sql/relay_yield.sql
	relayYieldSQL string
	//go:embed sql/relay_release.sql
	relayReleaseSQL string
)

// TakeRelay takes or renews the relay's lease for d, and reports whether the holder has it. note is why the holder
// cannot work: "" if it can, nil to keep the note of the row.
func TakeRelay(ctx context.Context, db ledger.DB, holder string, d time.Duration, note *string) (bool, error) {
	var holds bool
	found, err := pgquery.Row(ctx, db, relayTakeSQL, []any{holder, d.Milliseconds(), note}, &holds)
	return found && holds, pgerr.Explain("take the lease", err)
}

// YieldRelay lets another relay take the lease at once, and stores the reason in it. refused means that no relay
// continues before an operator acts.
func YieldRelay(ctx context.Context, db ledger.DB, holder, reason string, refused bool) error {
	_, err := db.Exec(ctx, relayYieldSQL, holder, reason, strconv.FormatBool(refused))
	return pgerr.Explain("yield the lease", err)
}

// ReleaseRelay deletes the relay's lease.
func ReleaseRelay(ctx context.Context, db ledger.DB, holder string) error {
	_, err := db.Exec(ctx, relayReleaseSQL, holder)
	return pgerr.Explain("release the lease", err)
}
