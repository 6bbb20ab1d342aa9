package projector_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/projection"
)

// patience bounds waits that normally take milliseconds.
const patience = time.Minute

// await polls until ready returns true.
func await(tb testing.TB, what string, ready func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(patience); !ready(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("%s: still not after %s", what, patience)
		}
	}
}

// awaitCaughtUp waits until every committed event is applied. It polls seldom, since counting the events that
// are left costs the database too.
func awaitCaughtUp(tb testing.TB, pool *pgxpool.Pool) {
	tb.Helper()
	await(tb, "projection caught up", func() bool {
		lag, err := projection.ReadLag(tb.Context(), pool)
		if err != nil {
			tb.Fatal(err)
		}
		return lag.Events == 0
	})
}
