package workers_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// A worker has recorded the start of a task, and must repeat its attempt. The message of the task is lost meanwhile. No
// other process may continue the task while the worker lives, so the worker keeps it in flight and runs it again.
func TestBegunTaskOutlivesItsMessage(t *testing.T) {
	t.Parallel()
	needMessages(t)
	b := setup(t)
	b.Relay()
	calls := make(chan int, 10)
	n := 0
	handler := func(ctx context.Context, tx pgx.Tx, job *workers.Job, args servicetest.OrderArgs) error {
		n++
		calls <- n
		if n > 1 {
			return servicetest.InsertEffect(ctx, tx, job, args)
		}
		for b.Task(job.Key).State != ledger.StateRunning {
			time.Sleep(5 * time.Millisecond)
		}
		b.acknowledgeFirst()
		_, err := tx.Exec(ctx, `do $$ begin raise exception 'again' using errcode = 'serialization_failure'; end $$`)
		return err
	}
	config := &workers.KindConfig{Slots: 1, StartedAfter: time.Millisecond}
	b.Work(workers.Config{}, servicetest.Exactly(handler, config))
	k := b.Enqueue("o-1")
	b.AwaitState(k, ledger.StateSucceeded)
	b.WantOneEffect(k)
	want := []ledger.EventType{ledger.EventEnqueued, ledger.EventStarted, ledger.EventSucceeded}
	if types := b.EventTypes(k); len(types) != len(want) || types[1] != want[1] || types[2] != want[2] {
		t.Errorf("events %v, want %v", types, want)
	}
	if got := len(calls); got != 2 {
		t.Errorf("%d calls, want 2", got)
	}
}

// acknowledgeFirst acknowledges the first message of the stream, as another client may.
func (b *bundle) acknowledgeFirst() {
	b.T.Helper()
	durable := stream.Durable(order.Name(), ledger.AllShards)
	text := fmt.Sprintf("$JS.ACK.%s.%s.1.1.1.%d.0", stream.Name, durable, time.Now().UnixNano())
	if err := b.NC.Publish(text, []byte("+ACK")); err != nil {
		b.T.Error(err)
	}
	b.Await("the foreign acknowledgement", func() bool {
		c := try(b.JS.Consumer(b.Context(), stream.Name, durable))(b.T)
		return c.CachedInfo().AckFloor.Stream >= 1
	})
}
