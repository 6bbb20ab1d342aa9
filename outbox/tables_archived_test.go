package outbox_test

import (
	"errors"
	"testing"

	"github.com/taskledger/taskledger/outbox"
)

// Tables of a subscriber begin with archived events, and are rebuilt and verified with them. Without the archive a
// rebuild is refused: the new tables would lack these events.
func TestTablesBeginInTheArchive(t *testing.T) {
	t.Parallel()
	pool := ownPool(t)
	enqueueCoupons(t, pool, "spring", 0, 30)
	place := t.TempDir()
	archiveFinished(t, pool, place)
	enqueueCoupons(t, pool, "summer", 100, 10)
	s := coupons()
	s.Archive = directories
	stop := start(t, quick(pool, s))
	await(t, "the subscriber is registered", func() bool { return registered(t, pool).Version == 1 })
	awaitApplied(t, pool)
	stop()
	const want = "spring 30 30, summer 10 10"
	if have := campaigns(t, pool); have != want {
		t.Errorf("campaigns: %s, want %s", have, want)
	}
	archiveFinished(t, pool, place)
	verifyCoupons(t, pool, s)
	if err := outbox.RebuildTables(t.Context(), on(pool, s), nil); err != nil {
		t.Fatal(err)
	}
	if have := campaigns(t, pool); have != want {
		t.Errorf("campaigns after a rebuild: %s, want %s", have, want)
	}
	verifyCoupons(t, pool, s)
	var archived *outbox.ArchivedError
	if err := outbox.RebuildTables(t.Context(), on(pool, coupons()), nil); !errors.As(err, &archived) ||
		archived.Events != 80 {
		t.Errorf("a rebuild without the archive: %v", err)
	}
	if _, err := outbox.VerifyTables(t.Context(), on(pool, coupons()), nil); !errors.As(err, &archived) {
		t.Errorf("a verification without the archive: %v", err)
	}
}
