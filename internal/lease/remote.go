package lease

import (
	"context"
	_ "embed"
	"encoding/hex"
	"time"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/fence_key.sql
	fenceKeySQL string
	//go:embed sql/session_hold.sql
	sessionHoldSQL string
	//go:embed sql/session_holds.sql
	sessionHoldsSQL string
	//go:embed sql/session_renew.sql
	sessionRenewSQL string
)

// FenceKey returns the key with which all processes of serve seal the fences of attempts over HTTP.
func FenceKey(ctx context.Context, db ledger.DB) ([]byte, error) {
	var text string
	if _, err := pgquery.Row(ctx, db, fenceKeySQL, nil, &text); err != nil {
		return nil, pgerr.Explain("read the key of fences", err)
	}
	return hex.DecodeString(text)
}

// HoldSession records for d which attempts a process of a worker over HTTP holds. holds are their numbers.
func HoldSession(ctx context.Context, db ledger.DB, session string, holds []string, d time.Duration) error {
	_, err := db.Exec(ctx, sessionHoldSQL, session, pgarray.Of(holds...), d.Milliseconds())
	return pgerr.Explain("record the attempts that a worker holds", err)
}

// RenewSession extends the lease of a session over HTTP by d, or creates it. It adds the kinds to the kinds that the
// lease has. worker is the id under which the session's attempts run.
func RenewSession(ctx context.Context, db ledger.DB, worker string, kinds []string, d time.Duration) error {
	_, err := db.Exec(ctx, sessionRenewSQL, worker, pgarray.Of(kinds...), d.Milliseconds())
	return pgerr.Explain("renew the lease of a session", err)
}

// SessionHolds returns for how long a process of a worker over HTTP holds an attempt, by the last [HoldSession].
func SessionHolds(ctx context.Context, db ledger.DB, session, hold string) (time.Duration, error) {
	var ms int64
	_, err := pgquery.Row(ctx, db, sessionHoldsSQL, []any{session, hold}, &ms)
	return time.Duration(ms) * time.Millisecond, pgerr.Explain("read the attempts that a worker holds", err)
}
