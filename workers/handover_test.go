package workers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// begunBy enqueues a task whose start is recorded by a worker that has released the task without an outcome.
func (b *bundle) begunBy(w *worker, id string, args json.RawMessage, o *ledger.EnqueueOptions) ledger.Key {
	b.T.Helper()
	k := ledger.Key{Kind: order.Name(), BizID: ledger.BizID(id)}
	if err := pgx.BeginFunc(b.Context(), b.As(ledgertest.App), func(tx pgx.Tx) error { // before any worker receives it
		if _, err := ledger.Enqueue(b.Context(), tx, k, args, o); err != nil {
			return err
		}
		_, err := ledger.Append(
			b.Context(), tx, ledger.AppendRequest{Key: k, Expected: 1, Type: ledger.EventStarted, Actor: w.ID()},
		)
		return err
	}); err != nil {
		b.T.Fatal(err)
	}
	return k
}

// goneOnWithBy waits until a worker has continued a task that was begun, and checks which one.
func (b *bundle) goneOnWithBy(k ledger.Key, w *worker) {
	b.T.Helper()
	b.Await(fmt.Sprintf("%s to go on", k), func() bool { return len(b.History(k)) > 2 })
	if next := b.History(k)[2]; next.Actor != w.ID() {
		b.T.Errorf("%s of %s by %s, want by the worker that began, %s", next.Type, k, next.Actor, w.ID())
	}
}

// longLived returns the config of a worker whose lease does not expire on a busy machine.
var longLived = workers.Config{AckWait: patience / 2}

var someArgs = json.RawMessage(`{"amount":7}`)

// busy registers a handler with one slot, which is busy until release is closed.
func (b *bundle) busy(release <-chan struct{}) (register func(*workers.Pool) error, begun <-chan struct{}) {
	entered := make(chan struct{})
	return exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		if job.BizID == "keeps it busy" {
			close(entered)
			<-release
		}
		return insertEffect(ctx, tx, job, args)
	}, &workers.KindConfig{Slots: 1}), entered
}

// A worker has released a task whose start it recorded, and its message reaches another worker. The first worker gets
// it, although it asks for no messages, whatever its name and the size of the message.
func TestMessageFindsTheWorkerThatBegan(t *testing.T) {
	needMessages(t)
	t.Parallel()
	b := setup(t)
	b.Relay()
	b.Forge("update taskledger.setting set value = '2000000' where name = 'max_args_bytes'")
	release := make(chan struct{})
	handler, begun := b.busy(release)
	owner := b.Work(workers.Config{Name: `ä *.> "\ b`, AckWait: longLived.AckWait}, handler)
	b.Enqueue("keeps it busy")
	<-begun
	b.Work(longLived, exactly(insertEffect, nil))
	tasks := make([]ledger.Key, 10)
	for i := range tasks {
		args := someArgs
		if i == 0 { // nearly the server's maximum
			args = fmt.Appendf(nil, `{"amount":7,"note":"%s"}`, strings.Repeat("x", int(b.NC.MaxPayload())-1000))
		}
		tasks[i] = b.begunBy(owner, fmt.Sprint(i), args, nil)
	}
	for _, k := range tasks { // it gives them back, having no slot for them
		b.goneOnWithBy(k, owner)
	}
	close(release)
	for _, k := range tasks {
		b.AwaitState(k, ledger.StateSucceeded)
		b.WantOneEffect(k)
	}
	b.Await("the acknowledgements", func() bool { return b.unanswered() == 0 })
}

// A task that is handed over to a worker without its shard goes to the worker that has the shard.
func TestHandedOverToAWorkerWithoutTheShard(t *testing.T) {
	needMessages(t)
	t.Parallel()
	b := setup(t)
	b.Relay()
	none := func(context.Context, pgx.Tx, *workers.Job, orderArgs) error { return errBoom }
	owner := b.Work(workers.Config{Shards: ledger.ShardRange(0, 31), AckWait: longLived.AckWait}, exactly(none, nil))
	b.Await("its lease", func() bool { return len(try(workers.ReadWorkers(b.Context(), b.DB))(t)) == 1 })
	shard := ledger.Shard(40)
	k := b.begunBy(owner, "o-1", someArgs, &ledger.EnqueueOptions{Shard: &shard})
	b.Work(workers.Config{Shards: ledger.ShardRange(32, 63), AckWait: longLived.AckWait}, exactly(insertEffect, nil))
	b.AwaitState(k, ledger.StateSucceeded)
	want := []ledger.EventType{
		ledger.EventEnqueued, ledger.EventStarted, ledger.EventInterrupted, ledger.EventSucceeded,
	}
	if diff := cmp.Diff(want, b.EventTypes(k)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// A handover does not repeat an AtMostOnce attempt, whose outcome is unknown.
func TestHandedOverAtMostOnce(t *testing.T) {
	needMessages(t)
	t.Parallel()
	b := setup(t)
	b.Relay()
	register := atMost(func(context.Context, *workers.Job, orderArgs) error {
		t.Error("it began again")
		return nil
	}, nil)
	owner := b.Work(longLived, register)
	b.Await("its lease", func() bool { return len(try(workers.ReadWorkers(b.Context(), b.DB))(t)) == 1 })
	b.Work(longLived, register)
	for i := range 10 { // some of them reach the other worker first
		k := b.begunBy(owner, fmt.Sprint(i), someArgs, nil)
		b.AwaitState(k, ledger.StateDead)
		b.goneOnWithBy(k, owner)
	}
}

// Forged handovers make a worker answer only messages of its kinds, and run only tasks that the ledger has.
func TestForgedHandovers(t *testing.T) {
	needMessages(t)
	t.Parallel()
	b := setup(t)
	var mu sync.Mutex
	var amounts []int
	w := b.Work(longLived, exactly(func(_ context.Context, _ pgx.Tx, _ *workers.Job, args orderArgs) error {
		mu.Lock()
		defer mu.Unlock()
		amounts = append(amounts, args.Amount)
		return nil
	}, nil))
	k := b.Enqueue("o-1")
	b.Publish(b.History(k)[0])
	b.AwaitState(k, ledger.StateSucceeded)
	b.Await("its acknowledgement", func() bool { return b.unanswered() == 0 })

	answers := try(b.NC.SubscribeSync("$JS.ACK.>"))(t)
	b.Enqueue("o-2")
	first := b.History(ledger.Key{Kind: order.Name(), BizID: "o-2"})[0]
	forged := try(json.Marshal(map[string]any{
		"Message": stream.Message{
			Key:        first.Key,
			Version:    1,
			RecordedAt: first.RecordedAt,
			Type:       first.Type,
			Shard:      first.Shard,
			Payload:    []byte(`{"amount":1000000}`),
		},
		"Reply": "$JS.ACK.LEDGER.test~order.1.1.1.1.0",
	}))(t)
	const genuine = "$JS.ACK.LEDGER.test~order.1.1.1.1.0"
	for _, text := range []string{
		"", "nonsense", string(forged),
		"$JS.ACK.OTHER.test~order.1.1.1.1.0",
		"$JS.ACK.LEDGER.test~other.1.1.1.1.0",
		"$JS.ACK.LEDGER.test~order.1.2.1.1.0", // no such message
		"$JS.ACK.LEDGER.test~order.1.18446744073709551615.1.1.0",
		genuine,
	} {
		if err := b.NC.Publish(stream.HandoverSubject(w.ID()), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"+WPI", "+ACK"} { // its task is finished
		m, err := answers.NextMsgWithContext(b.Context())
		if err != nil || m.Subject != genuine || string(m.Data) != want {
			t.Errorf("answered %+v, %v, want %s to %s", m, err, want, genuine)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff([]int{7}, amounts); diff != "" {
		t.Errorf("args of handlers (-want +got):\n%s", diff)
	}
}

// A worker that receives more handovers than it can read keeps up on its connection, and takes its own tasks
// afterwards.
func TestManyHandovers(t *testing.T) {
	needMessages(t)
	t.Parallel()
	b := setup(t)
	release := make(chan struct{})
	handler, begun := b.busy(release)
	var slow atomic.Bool
	nc := try(stream.Connect(b.Server.URL(), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrSlowConsumer) {
			slow.Store(true)
		}
	})))(t)
	t.Cleanup(nc.Close)
	owner := b.Work(workers.Config{NATS: nc, AckWait: longLived.AckWait}, handler)
	b.Relay()
	b.Enqueue("keeps it busy")
	<-begun
	for range 5_000 {
		if err := b.NC.Publish(
			stream.HandoverSubject(owner.ID()), []byte("$JS.ACK.LEDGER.test~order.1.1000.1.1.0"),
		); err != nil {
			t.Fatal(err)
		}
	}
	b.Work(longLived, exactly(insertEffect, nil))
	k := b.begunBy(owner, "o-1", someArgs, nil)
	b.goneOnWithBy(k, owner)
	close(release)
	b.AwaitState(k, ledger.StateSucceeded)
	b.WantOneEffect(k)
	if slow.Load() {
		t.Error("the connection calls it a slow consumer")
	}
}

// A worker stops while its tasks are handed over to it: others run those that it cannot take any more.
func TestHandoversWhileStopping(t *testing.T) {
	needMessages(t)
	t.Parallel()
	b := setup(t)
	owner := b.Work(workers.Config{AckWait: 4 * time.Second}, exactly(insertEffect, &workers.KindConfig{Slots: 1}))
	b.Await("its lease", func() bool { return len(try(workers.ReadWorkers(b.Context(), b.DB))(t)) == 1 })
	const n = 200
	for i := range n {
		b.begunBy(owner, fmt.Sprint(i), someArgs, nil)
	}
	b.Relay()
	b.Work(workers.Config{AckWait: 4 * time.Second}, exactly(insertEffect, nil))
	b.Await(
		"the worker that began to be at it",
		func() bool { return owner.KindStatus().Attempts[workers.OutcomeSucceeded] > 0 },
	)
	owner.Stop()
	b.AwaitSucceeded(n)
	b.WantOneEffectEach(n)
	b.Await("the acknowledgements", func() bool { return b.unanswered() == 0 })
}
