package outbox_test

import (
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The history of a subscriber has its place, and that of the events, at the end of each step. A step without a row of
// the cursor has the place before it.
func TestSubscriberHistory(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	for _, id := range []string{"a", "b", "c"} {
		ledgertest.Enqueue(t, owner, ledgertest.Key(t, "coupon.send/"+id), `{}`)
	}
	ledgertest.ExecAsOwner(t, owner, `
		insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, after_position, origin, recorded_at)
		select 'subscriber/mails', c.n, '3:3:', 0, '3', c.position, taskledger_internal.origin(), now() - c.ago
		  from (values (1, 4, interval '59 minutes'), (2, 7, interval '5 minutes'), (3, 8, interval '250 seconds'),
		               (4, 9, interval '1 second')) c (n, position, ago);
		insert into taskledger.moment (at, snapshot, top, bound)
		select now() - m.ago, pg_current_snapshot(), m.top, pg_current_xact_id()
		  from (values (6, interval '7 minutes'), (12, interval '3 minutes')) m (top, ago)`)
	var newest ledger.Position
	err := owner.QueryRow(t.Context(), "select max(position) from taskledger.event").Scan((*int64)(&newest))
	if err != nil {
		t.Fatal(err)
	}
	got, err := subscribers.ReadHistory(t.Context(), ledgertest.As(t, owner, "reader"), "mails", 2*time.Minute, 5)
	want := []subscribers.Point{{Position: 4}, {Position: 4, Newest: 6}, {Position: 8, Newest: 6},
		{Position: 8, Newest: 12}, {Position: 9, Newest: newest}}
	if diff := difference.Of(want, got); diff != "" || err != nil {
		t.Errorf("%v: %s", err, diff)
	}
	if _, err := subscribers.ReadHistory(t.Context(), owner, "a b", time.Minute, 5); err == nil {
		t.Error("an invalid name has a history")
	}
}
