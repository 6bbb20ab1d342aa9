package ledger_test

import (
	"testing"

	"github.com/taskledger/taskledger/ledger"
)

// Each run counts its attempts from 1. An attempt of a later run neither holds the permit of the attempt with its
// number, nor hides it from other starts.
func TestPermitOfALaterRun(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 3} {
		db := gate(t, limit, 1)
		version := ledger.Version(1)
		for run := range 8 {
			mustAppend(t, db, 0, version, ledger.EventStarted)
			version++
			if run%2 == 1 { // a take-over keeps the permit
				mustAppend(t, db, 0, version, ledger.EventStarted)
				version++
			}
			if got := concurrencyOf(t, db); got.Running != 1 {
				t.Fatalf("limit %d, run %d: %d permits are held, want 1", limit, run+1, got.Running)
			}
			mustAppend(t, db, 0, version, ledger.EventSucceeded)
			version += 2
			again := ledger.EnqueueOptions{IfExists: ledger.IfExistsRerun}
			if _, err := enqueueAs(t, db, gatedKey(0), `1`, again); err != nil {
				t.Fatal(err)
			}
		}
	}
}
