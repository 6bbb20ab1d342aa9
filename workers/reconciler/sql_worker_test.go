package reconciler_test

import (
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
)

// The task of a worker in SQL is left alone while its lease lasts, and runs elsewhere afterwards. The late worker is
// fenced.
func TestReconcilerSQLWorker(t *testing.T) {
	t.Parallel()
	b := setup(t, outbox.StreamConfig{})
	r := b.reconciler(b.As("relay"))
	k := b.Enqueue("o-1")
	db := b.As("worker")
	exec := func(statement string) error {
		_, err := db.Exec(b.Context(), statement)
		return err
	}
	for _, statement := range []string{
		"select taskledger.heartbeat('sql', '{test.order}', '1 second')",
		"select * from taskledger.claim('test.order', 'o-1', 'sql')",
	} {
		if err := exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	b.AcknowledgeUnworked(1) // the worker claims after it received the message, and acknowledges then
	b.AwaitProjected()
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err := exec("select taskledger.heartbeat('sql', '{test.order}', '30 seconds')"); err != nil {
			t.Fatal(err)
		}
		b.passes(r, 1)
	}
	if types := b.EventTypes(k); len(types) != 2 {
		t.Fatalf("touched while its worker lives: %v", types)
	}
	if err := exec("select taskledger.heartbeat('sql', '{test.order}', '1 second')"); err != nil { // its last one
		t.Fatal(err)
	}
	b.Start(r.Run)
	b.Work(workers.Config{}, servicetest.Exactly(servicetest.InsertEffect, nil))
	b.AwaitState(k, ledger.StateSucceeded)
	b.WantOneEffect(k)
	// Its message was sent again. The other worker has got it, or the reconciler was first.
	types := b.EventTypes(k)
	if len(types) < 4 || types[2] != ledger.EventInterrupted && types[2] != ledger.EventStarted {
		t.Errorf("events %v, want one that takes it from its worker", types)
	}
	if err := exec("select taskledger.finish('test.order', 'o-1', 2)"); !pgerr.Is(err, "TL001") {
		t.Errorf("the late worker: %v", err)
	}
}
