package seal_test

import (
	"testing"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Events are read with leaf and salt, whether their batch is found by the range of positions or by each position, late
// events and unsealed ones included.
func TestReadSealed(t *testing.T) {
	f := newFixture(t)
	late, err := f.app.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ledgertest.Enqueue(t, late, ledgertest.Key(t, "coupon.send/late"), `{}`)
	f.finish(1, 3)
	f.seal()
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.fill(500)
	f.seal()
	f.finish(4, 4)
	check := func(events []seal.Sealed, err error, want, sealed int) {
		t.Helper()
		if err != nil || len(events) != want {
			t.Fatalf("%d events, want %d: %v", len(events), want, err)
		}
		for i, e := range events {
			if i > 0 && e.Position <= events[i-1].Position {
				t.Errorf("position %d follows %d", e.Position, events[i-1].Position)
			}
			if (e.Leaf != nil) != (i < sealed) || (e.Leaf == nil) != (e.Salt == nil) {
				t.Errorf("event %d of %s has leaf %v and salt %x", i, e.Key, e.Leaf, e.Salt)
			}
			if e.Leaf == nil {
				continue
			}
			proved := f.prove(e.Key.String(), f.newest())
			hash, err := e.LeafHash()
			if p := proved[e.Version-1].Proof; err != nil || p == nil || p.Leaf != *e.Leaf {
				t.Errorf("%s has leaf %d with hash %s, and its proof is %+v", e.Key, *e.Leaf, hash, p)
			}
		}
	}
	all, err := seal.ReadRange(t.Context(), f.reader, 0, 1_000_000, nil, 2000)
	check(all, err, 513, 510)
	for _, e := range all[:12] {
		stored, err := ledger.History(t.Context(), f.reader, e.Key)
		if err != nil || int(e.Version) > len(stored) {
			t.Fatal(stored, err)
		}
		want := stored[e.Version-1]
		if diff := difference.Of(want, e.LedgerEvent(want.Login)); diff != "" {
			t.Error(diff)
		}
	}
	first, last := all[0].Position, all[len(all)-1].Position
	some, err := seal.ReadRange(t.Context(), f.reader, first+1, last, []ledger.Kind{"coupon.send"}, 10)
	check(some, err, 10, 9)
	tasks, err := seal.ReadTasks(t.Context(), f.reader, []ledger.Key{
		ledgertest.Key(t, "coupon.send/4"), ledgertest.Key(t, "coupon.send/late"),
		ledgertest.Key(t, "coupon.send/none"),
	})
	check(tasks, err, 4, 1)
}

func (f *fixture) newest() seal.Checkpoint {
	f.t.Helper()
	c, err := seal.Newest(f.t.Context(), f.reader)
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}
