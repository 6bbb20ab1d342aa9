package workers_test

import (
	"errors"
	"testing"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// A worker whose database and NATS belong to different ledgers ends, and takes no message of the other ledger.
func TestForeignStreamIsRefused(t *testing.T) {
	needMessages(t)
	t.Parallel()
	b := setup(t)
	w := b.Work(workers.Config{}, exactly(insertEffect, nil)) // of the ledger that the stream belongs to
	first := b.Enqueue("o-1")
	b.Publish(b.History(first)[0])
	b.AwaitState(first, ledger.StateSucceeded)
	w.Stop()
	durable := stream.Durable(order.Name(), ledger.AllShards)
	b.Forge("update taskledger.setting set value = gen_random_uuid()::text where name = 'installation'")
	b.Publish(b.History(b.Enqueue("o-2"))[0])

	for _, config := range []workers.Config{{}, {ShardGroups: 4}} {
		config.DB, config.NATS, config.AckWait = b.DB, b.Connect(), ackWait
		p := try(workers.New(config))(t)
		if err := exactly(insertEffect, nil)(p); err != nil {
			t.Fatal(err)
		}
		var foreign *workers.ForeignStreamError
		if err := p.Run(b.Context()); !errors.As(err, &foreign) {
			t.Errorf("%d groups: error %v, want a ForeignStreamError", config.ShardGroups, err)
		}
	}
	if n := try(b.JS.Consumer(b.Context(), stream.Name, durable))(t).CachedInfo().NumPending; n != 1 {
		t.Errorf("%d messages wait for their own workers, want 1", n)
	}
	if n := one[int](b, "select count(*)::integer from effect where biz_id = 'o-2'"); n != 0 {
		t.Error("a task of another ledger's stream was worked on")
	}
}
