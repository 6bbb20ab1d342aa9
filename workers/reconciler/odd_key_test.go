package reconciler_test

import (
	"testing"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// The owner has inserted a task whose biz_id has a control character. Its event was parked and discarded, so it has no
// message. The lost tasks of the kind are released all the same.
func TestInvalidKeysDelayNoOtherTask(t *testing.T) {
	t.Parallel()
	b := setup(t, outbox.StreamConfig{})
	lost := b.Enqueue("o-1")
	for _, id := range []string{"a\x01b", "z\x7f"} {
		ledgertest.ExecAsOwner(t, b.DB, `
			with tx as materialized (select pg_current_xact_id() as xid)
			insert into taskledger.event (xid, version, attempt, shard, type, kind, biz_id)
			select tx.xid, 1, 0, 0, 'enqueued', $1, $2 from tx`, string(lost.Kind), id)
	}
	b.AwaitProjected()
	b.AcknowledgeUnworked(1)
	ledgertest.ExecAsOwner(t, b.DB, `update taskledger.parked set discarded = true`)
	r := b.reconciler(b.DB)
	for range 3 {
		if err := r.Pass(b.Context()); err != nil {
			t.Errorf("a pass failed: %v", err)
		}
	}
	if types := b.EventTypes(lost); len(types) < 2 || types[1] != ledger.EventReleased {
		t.Errorf("the lost task has the events %v", types)
	}
	odd := servicetest.One[int](
		b, "select count(*)::integer from taskledger.event where biz_id in (E'a\x01b', E'z\x7f')",
	)
	if odd != 2 {
		t.Errorf("the tasks with invalid keys have %d events, want 2", odd)
	}
}
