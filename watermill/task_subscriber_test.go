package watermill_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/watermill"
	"github.com/taskledger/taskledger/watermill/internal/watermilltest"
	"github.com/taskledger/taskledger/workers"
)

func TestTaskIsAMessage(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	m := message.NewMessage("u-1", []byte{0, 0xff})
	m.Metadata.Set("biz_id", "o-1")
	m.Metadata.Set("note", "hello")
	b.Publish("mail.send", m)
	key := ledger.Key{Kind: "mail.send", BizID: "o-1"}
	retry := ledger.RetryPolicy{Ladder: []time.Duration{0}, Attempts: 3}
	messages := b.Subscribe(b.subscriber(workers.KindConfig{Retry: retry}), "mail.send")

	// A nacked message is delivered again unchanged; the third nack buries the task.
	for attempt := range 3 {
		got := b.Receive(messages)
		if !got.Equals(m) {
			t.Errorf("got %v", got)
		}
		if job, ok := watermill.JobFromContext(got.Context()); !ok || job.Key != key || int(job.Attempt) != attempt+1 {
			t.Errorf("attempt %d: %v", attempt+1, ok)
		}
		if _, ok := watermill.TxFromContext(got.Context()); ok {
			t.Error("there is a transaction")
		}
		if !got.Nack() || got.Ack() { // the first answer counts
			t.Error("ack after nack")
		}
	}
	if task := b.AwaitState(key, ledger.StateDead); task.Failures != 3 || !strings.Contains(task.Error, "nacked") {
		t.Errorf("%d failures, error %q", task.Failures, task.Error)
	}

	b.Publish("mail.send", message.NewMessage("o-2", nil))
	got := b.Receive(messages)
	if !got.Ack() || got.Nack() {
		t.Error("nack after ack")
	}
	<-got.Context().Done()
	key.BizID = "o-2"
	b.AwaitState(key, ledger.StateSucceeded)
	if types := b.EventTypes(key); types != "enqueued succeeded" {
		t.Errorf("events: %s", types)
	}
}

func TestTaskSubscriberCloseGivesBackAtOnce(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	const n = 10
	for i := range n {
		b.Publish("mail.send", message.NewMessage(fmt.Sprint(i), nil))
	}
	lasting := watermill.TaskSubscriberConfig{
		Pool: workers.Config{DB: b.DB, NATS: b.NATS, LeaseTTL: time.Hour, Logger: b.Logger()},
	}
	first, err := watermill.NewTaskSubscriber(lasting)
	if err != nil {
		t.Fatal(err)
	}
	messages := b.Subscribe(first, "mail.send")
	m := b.Receive(messages) // the others are not received
	for range 2 {
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if !errors.Is(context.Cause(m.Context()), workers.ErrStopping) {
		t.Errorf("the context ended because of %v", context.Cause(m.Context()))
	}
	m.Ack() // too late
	if _, open := <-messages; open {
		t.Error("the channel is open")
	}
	if _, err := first.Subscribe(t.Context(), "mail.send"); !errors.Is(err, watermill.ErrClosed) {
		t.Errorf("subscribe after close: %v", err)
	}

	second, err := watermill.NewTaskSubscriber(lasting)
	if err != nil {
		t.Fatal(err)
	}
	messages = b.Subscribe(second, "mail.send")
	seen := make(map[string]bool)
	for range n { // LeaseTTL is an hour
		m := b.Receive(messages)
		seen[m.UUID] = true
		m.Ack()
	}
	if len(seen) != n {
		t.Errorf("got %d of %d", len(seen), n)
	}
	b.awaitSucceeded(n)
	if n := b.Count(`select count(*) from taskledger.event where type = 'interrupted'`); n != 1 {
		t.Errorf("%d tasks were interrupted, want the received one", n)
	}
	if n := b.Count(`select count(*) from taskledger.event where type = 'failed'`); n != 0 {
		t.Errorf("%d attempts failed", n)
	}
}

// awaitSucceeded waits until n tasks have succeeded.
func (b *bundle) awaitSucceeded(n int) {
	b.T.Helper()
	b.Await(fmt.Sprintf("%d tasks succeeded", n), func() bool {
		return b.Count(`select count(*) from taskledger.event where type = 'succeeded'`) == n
	})
}

// With a StopTimeout, Close waits for the messages in flight.
func TestTaskSubscriberCloseMayWait(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.Publish("mail.send", message.NewMessage("o-1", nil))
	s, err := watermill.NewTaskSubscriber(watermill.TaskSubscriberConfig{
		Pool: workers.Config{DB: b.DB, NATS: b.NATS, StopTimeout: watermilltest.Patience},
	})
	if err != nil {
		t.Fatal(err)
	}
	m := b.Receive(b.Subscribe(s, "mail.send"))
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case <-closed:
		t.Error("Close did not wait")
	case <-m.Context().Done():
		t.Error("Close cancelled the context of the message")
	case <-time.After(300 * time.Millisecond):
	}
	m.Ack()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if types := b.EventTypes(ledger.Key{Kind: "mail.send", BizID: "o-1"}); types != "enqueued succeeded" {
		t.Errorf("events: %s", types)
	}
}

// A handler may take longer than LeaseTTL: its message is kept alive.
func TestTaskMessageIsKeptAlive(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.Publish("mail.send", message.NewMessage("o-1", nil))
	const leaseTTL = 5 * time.Second // a third of it is the interval at which the message is kept
	one := b.Subscribe(b.subscriberThatWaits(leaseTTL, workers.KindConfig{}), "mail.send")
	other := b.Subscribe(b.subscriberThatWaits(leaseTTL, workers.KindConfig{}), "mail.send")
	var m *message.Message
	select {
	case m = <-one:
	case m = <-other:
	}
	select {
	case <-one:
		t.Error("delivered twice")
	case <-other:
		t.Error("delivered to both")
	case <-time.After(2 * leaseTTL):
	}
	m.Ack()
	key := ledger.Key{Kind: "mail.send", BizID: "o-1"}
	b.AwaitState(key, ledger.StateSucceeded)
	if types := b.EventTypes(key); types != "enqueued started succeeded" {
		t.Errorf("events: %s", types)
	}
}

// The attempt fails if its message is not acked or nacked within Timeout. A late ack has no effect.
func TestTaskMessageTimesOut(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.Publish("mail.send", message.NewMessage("o-1", nil))
	messages := b.Subscribe(
		b.subscriber(workers.KindConfig{Timeout: 200 * time.Millisecond, Retry: atOnce}), "mail.send",
	)
	late := b.Receive(messages)
	again := b.Receive(messages)
	if !errors.Is(context.Cause(late.Context()), workers.ErrTimeout) {
		t.Errorf("the context ended because of %v", context.Cause(late.Context()))
	}
	late.Ack()
	if again.Context().Err() != nil {
		t.Error("the late ack ended the next attempt")
	}
	again.Ack()
	task := b.AwaitState(ledger.Key{Kind: "mail.send", BizID: "o-1"}, ledger.StateSucceeded)
	if task.Failures != 1 || task.Attempt != 2 {
		t.Errorf("%d failures, attempt %d", task.Failures, task.Attempt)
	}
}

// Two subscribers of a topic share its tasks, each with its own settings.
func TestTaskSubscribersWithDifferentSettings(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	const n = 200
	var mu sync.Mutex
	done := make(map[string]int)
	var most [2]int
	// Each waits with its first task for the other's. Without that, one could handle all before the other is ready.
	var bothBegan sync.WaitGroup
	bothBegan.Add(2)
	for i, slots := range []int{1, 3} {
		router, start := b.Router()
		inFlight := 0
		var began sync.Once
		s := b.subscriber(workers.KindConfig{Slots: slots, Timeout: time.Duration(i+1) * time.Minute})
		router.AddConsumerHandler("mail", "mail.send", s, func(m *message.Message) error {
			mu.Lock()
			inFlight++
			most[i] = max(most[i], inFlight)
			done[m.UUID]++
			mu.Unlock()
			began.Do(bothBegan.Done)
			bothBegan.Wait()
			time.Sleep(2 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			inFlight--
			return nil
		})
		start()
	}
	for i := range n {
		b.Publish("mail.send", message.NewMessage(fmt.Sprint(i), nil))
	}
	b.awaitSucceeded(n)
	mu.Lock()
	defer mu.Unlock()
	for id, times := range done {
		if times != 1 {
			t.Errorf("%s was handled %d times", id, times)
		}
	}
	if len(done) != n || most[0] != 1 || most[1] < 2 || most[1] > 3 {
		t.Errorf("%d of %d handled, at most %v at a time", len(done), n, most)
	}
}

func TestTaskSubscriberBadInput(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	s := b.subscriber(workers.KindConfig{})
	for _, topic := range []string{"", "a b", "mail.>"} {
		var invalid *ledger.InvalidError
		if _, err := s.Subscribe(t.Context(), topic); !errors.As(err, &invalid) {
			t.Errorf("topic %q: %v", topic, err)
		}
	}
	_, err := watermill.NewTaskSubscriber(watermill.TaskSubscriberConfig{Kind: workers.KindConfig{Slots: -1}})
	if err == nil {
		t.Fatal("no error")
	}
	for _, fault := range []string{"DB", "NATS", "Slots"} {
		if !strings.Contains(err.Error(), fault) {
			t.Errorf("%q does not name %s", err, fault)
		}
	}
}

// A task whose meta is not an envelope fails by the policy, and other tasks are delivered.
func TestTaskWithAForeignEnvelope(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.Exec(`select taskledger.enqueue('mail.send', 'bad', meta => '{"watermill":[1]}')`)
	b.Publish("mail.send", message.NewMessage("good", nil))
	once := workers.KindConfig{Retry: ledger.RetryPolicy{Attempts: 1}}
	m := b.Receive(b.Subscribe(b.subscriber(once), "mail.send"))
	if m.UUID != "good" {
		t.Errorf("got %q", m.UUID)
	}
	m.Ack()
	b.AwaitState(ledger.Key{Kind: "mail.send", BizID: "bad"}, ledger.StateDead)
	b.AwaitState(ledger.Key{Kind: "mail.send", BizID: "good"}, ledger.StateSucceeded)
}
