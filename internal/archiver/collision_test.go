package archiver_test

import (
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A key whose hash is that of an archived one, of a different key, is not taken for it: its task runs, and stays in the
// tables.
func TestCollisionOfKeys(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("1")
	f.archive()
	ledgertest.ExecAsOwner(t, f.DB, `
		update taskledger.archived_key set hash = taskledger_internal.key_hash('coupon.send', '2')`)
	e, err := ledger.Enqueue(t.Context(), f.DB, key("2"), nil, &ledger.EnqueueOptions{CheckArchive: true})
	if err != nil || !e.New {
		t.Fatalf("%+v, %v", e, err)
	}
	if found, err := ledger.Archived(t.Context(), f.DB, key("2")); err != nil || found[0] != nil {
		t.Errorf("a read: %v, %v", found[0], err)
	}
	worker := ledgertest.As(t, f.DB, "worker")
	if n := claims(t, worker, "2"); n != 1 {
		t.Errorf("%d claims", n)
	}
	ledgertest.Append(t, worker, key("2"), ledger.EventSucceeded)
	f.want("events", f.events("2"), "1 enqueued\n2 started\n3 succeeded")
	if r := f.archive(); r.Tasks != 0 {
		t.Errorf("a key with the hash of another is archived: %+v", r)
	}
	f.want("events", f.events("2"), "1 enqueued\n2 started\n3 succeeded")

	ledgertest.ExecAsOwner(t, f.DB, `
		update taskledger.archived_key
		   set hash = taskledger_internal.key_hash('coupon.send', '3'),
		       rest = taskledger_internal.key_rest('coupon.send', '3')`)
	ledgertest.Enqueue(t, f.DB, key("3"), `{}`)
	if n := claims(t, worker, "3"); n != 0 {
		t.Errorf("the key itself: %d claims", n)
	}
}
