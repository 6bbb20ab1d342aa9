package systemtest_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
)

// An operator rebuilds the stream while tasks have ended, run and wait, and others are enqueued. Each task has one
// effect.
func TestRebuiltStreamLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	d := newDepot(t)
	d.startServing()
	d.start("parcels", sends)
	running, gate := make(chan struct{}, 1), make(chan struct{})
	openGate := sync.OnceFunc(func() { close(gate) })
	d.start("letters", handles(letter, func(*workers.Job) {
		select {
		case running <- struct{}{}:
		default:
		}
		<-gate
	}))
	t.Cleanup(openGate)
	for i := range 300 {
		d.enqueue(parcel, ledger.BizID(fmt.Sprintf("ended-%d", i)))
	}
	d.await("the first parcels to be sent", func() bool { return d.count(`select count(*) from effect`) == 300 })
	for i := range 100 {
		d.enqueue(letter, ledger.BizID(fmt.Sprintf("waiting-%d", i))) // the first one runs
	}
	<-running
	js := d.jetStream()
	before, err := relays.ReadStream(t.Context(), d.db, js, outbox.StreamConfig{})
	if err != nil || before == nil || !before.IsOwn || len(before.Drift) > 0 {
		t.Fatalf("before: %+v, %v", before, err)
	}
	subscriber := jetstream.ConsumerConfig{Durable: "audit", AckPolicy: jetstream.AckExplicitPolicy}
	if _, err := js.CreateConsumer(t.Context(), stream.Name, subscriber); err != nil {
		t.Fatal(err)
	}

	stop := make(chan struct{})
	producers := d.produce(stop, time.Millisecond, parcel)
	err = relays.RebuildStream(t.Context(), d.db, js, &relays.RebuildOptions{Actor: "alice", Reason: "test"})
	if err != nil {
		t.Fatal(err)
	}
	d.await("the relay to make the stream", func() bool {
		after, err := relays.ReadStream(t.Context(), d.db, js, outbox.StreamConfig{})
		return err == nil && after != nil && after.Created.After(before.Created)
	})
	close(stop)
	producers.Wait()
	openGate()

	after, err := relays.ReadStream(t.Context(), d.db, js, outbox.StreamConfig{})
	if err != nil || !after.Created.After(before.Created) || len(after.Subscribers) > 0 {
		t.Errorf("after: %+v, %v", after, err)
	}
	tasks := int(d.enqueued.Load())
	d.await("every task to be done", func() bool {
		return d.count(`select count(distinct (kind, biz_id)) from effect`) == tasks
	})
	if n := d.count(`select count(*) from effect`); n != tasks {
		t.Errorf("%d effects of %d tasks", n, tasks)
	}
	const record = `select count(*) from taskledger.event where kind = 'taskledger.operation' and actor = 'alice'`
	if n := d.count(record); n != 2 {
		t.Errorf("alice has %d events, want 2", n)
	}
	ledgertest.Check(t, d.db)
}
