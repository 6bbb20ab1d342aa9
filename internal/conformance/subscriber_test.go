package conformance_test

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
	"github.com/taskledger/taskledger/workers"
)

func (b *bundle) subscribe(s message.Subscriber, topic string) <-chan *message.Message {
	b.t.Helper()
	b.t.Cleanup(func() { _ = s.Close() })
	messages, err := s.Subscribe(b.t.Context(), topic)
	if err != nil {
		b.t.Fatal(err)
	}
	return messages
}

func TestTaskIsAMessage(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	m := message.NewMessage("u-1", []byte{0, 0xff})
	m.Metadata.Set("biz_id", "o-1")
	m.Metadata.Set("note", "hello")
	b.publish("mail.send", m)
	key := ledger.Key{Kind: "mail.send", BizID: "o-1"}
	messages := b.subscribe(b.taskSubscriber(workers.KindConfig{Retry: ledger.RetryPolicy{Ladder: []time.Duration{0}, Attempts: 3}}), "mail.send")

	// Nacked, it comes again just as it was; the third nack is one too many.
	for attempt := range 3 {
		got := b.receive(messages)
		if !got.Equals(m) {
			t.Errorf("got %v", got)
		}
		if job, ok := workers.JobFromContext(got.Context()); !ok || job.Key != key || int(job.Attempt) != attempt+1 {
			t.Errorf("attempt %d: %v", attempt+1, ok)
		}
		if _, ok := workers.TxFromContext(got.Context()); ok {
			t.Error("there is a transaction")
		}
		if !got.Nack() || got.Ack() { // the first word counts
			t.Error("ack after nack")
		}
	}
	if task := b.awaitState(key, ledger.StateDead); task.Failures != 3 || !strings.Contains(task.Error, "nacked") {
		t.Errorf("%d failures, error %q", task.Failures, task.Error)
	}

	b.publish("mail.send", message.NewMessage("o-2", nil))
	got := b.receive(messages)
	if !got.Ack() || got.Nack() {
		t.Error("nack after ack")
	}
	<-got.Context().Done()
	key.BizID = "o-2"
	b.awaitState(key, ledger.StateSucceeded)
	if types := b.types(key); types != "enqueued succeeded" {
		t.Errorf("events: %s", types)
	}
}

func TestTaskSubscriberCloseGivesBackAtOnce(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	const n = 10
	for i := range n {
		b.publish("mail.send", message.NewMessage(fmt.Sprint(i), nil))
	}
	lasting := workers.SubscriberConfig{Pool: workers.Config{DB: b.db, NATS: b.nc, AckWait: time.Hour, Logger: b.logger()}}
	first, err := workers.NewSubscriber(lasting)
	if err != nil {
		t.Fatal(err)
	}
	messages := b.subscribe(first, "mail.send")
	m := b.receive(messages) // the others wait to be received
	for range 2 {
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if !errors.Is(context.Cause(m.Context()), workers.ErrStopping) {
		t.Errorf("the handler is told %v", context.Cause(m.Context()))
	}
	m.Ack() // too late
	if _, open := <-messages; open {
		t.Error("the channel is open")
	}
	if _, err := first.Subscribe(t.Context(), "mail.send"); !errors.Is(err, workers.ErrClosed) {
		t.Errorf("subscribe after close: %v", err)
	}

	second, err := workers.NewSubscriber(lasting)
	if err != nil {
		t.Fatal(err)
	}
	messages = b.subscribe(second, "mail.send")
	seen := make(map[string]bool)
	for range n { // AckWait is an hour
		m := b.receive(messages)
		seen[m.UUID] = true
		m.Ack()
	}
	if len(seen) != n {
		t.Errorf("got %d of %d", len(seen), n)
	}
	b.await("all succeeded", func() bool { return b.count(`select count(*) from taskledger.event where type = 'succeeded'`) == n })
	if n := b.count(`select count(*) from taskledger.event where type = 'interrupted'`); n != 1 {
		t.Errorf("%d tasks were interrupted, want the one that was being worked on", n)
	}
	if n := b.count(`select count(*) from taskledger.event where type = 'failed'`); n != 0 {
		t.Errorf("%d attempts failed", n)
	}
}

// With a StopTimeout, Close waits for what is being worked on.
func TestTaskSubscriberCloseMayWait(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.publish("mail.send", message.NewMessage("o-1", nil))
	s, err := workers.NewSubscriber(workers.SubscriberConfig{Pool: workers.Config{DB: b.db, NATS: b.nc, StopTimeout: patience}})
	if err != nil {
		t.Fatal(err)
	}
	m := b.receive(b.subscribe(s, "mail.send"))
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case <-closed:
		t.Error("Close did not wait")
	case <-m.Context().Done():
		t.Error("the handler was told to stop")
	case <-time.After(300 * time.Millisecond):
	}
	m.Ack()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if types := b.types(ledger.Key{Kind: "mail.send", BizID: "o-1"}); types != "enqueued succeeded" {
		t.Errorf("events: %s", types)
	}
}

// A handler may take longer than AckWait: its message is kept alive.
func TestTaskMessageIsKeptAlive(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.publish("mail.send", message.NewMessage("o-1", nil))
	one := b.subscribe(b.taskSubscriber(workers.KindConfig{}), "mail.send")
	other := b.subscribe(b.taskSubscriber(workers.KindConfig{}), "mail.send")
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
	case <-time.After(5 * time.Second): // AckWait is 2 s
	}
	m.Ack()
	key := ledger.Key{Kind: "mail.send", BizID: "o-1"}
	b.awaitState(key, ledger.StateSucceeded)
	if types := b.types(key); types != "enqueued started succeeded" {
		t.Errorf("events: %s", types)
	}
}

// An answer must come within Timeout; the attempt fails else, and a late answer has no effect.
func TestTaskMessageTimesOut(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.publish("mail.send", message.NewMessage("o-1", nil))
	messages := b.subscribe(b.taskSubscriber(workers.KindConfig{Timeout: 200 * time.Millisecond, Retry: atOnce}), "mail.send")
	late := b.receive(messages)
	again := b.receive(messages)
	if !errors.Is(context.Cause(late.Context()), workers.ErrTimeout) {
		t.Errorf("the handler is told %v", context.Cause(late.Context()))
	}
	late.Ack()
	if again.Context().Err() != nil {
		t.Error("the late ack ended the next attempt")
	}
	again.Ack()
	task := b.awaitState(ledger.Key{Kind: "mail.send", BizID: "o-1"}, ledger.StateSucceeded)
	if task.Failures != 1 || task.Attempt != 2 {
		t.Errorf("%d failures, attempt %d", task.Failures, task.Attempt)
	}
}

// Two subscribers of a topic share its tasks, each by its own settings.
func TestTaskSubscribersWithDifferentSettings(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	const n = 200
	var mu sync.Mutex
	done := make(map[string]int)
	var most [2]int
	for i, slots := range []int{1, 3} {
		router, start := b.router()
		together := 0
		router.AddConsumerHandler("mail", "mail.send", b.taskSubscriber(workers.KindConfig{Slots: slots, Timeout: time.Duration(i+1) * time.Minute}),
			func(m *message.Message) error {
				mu.Lock()
				together++
				most[i] = max(most[i], together)
				done[m.UUID]++
				mu.Unlock()
				time.Sleep(2 * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				together--
				return nil
			})
		start()
	}
	for i := range n {
		b.publish("mail.send", message.NewMessage(fmt.Sprint(i), nil))
	}
	b.await("all succeeded", func() bool { return b.count(`select count(*) from taskledger.event where type = 'succeeded'`) == n })
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
	s := b.taskSubscriber(workers.KindConfig{})
	for _, topic := range []string{"", "a b", "mail.>"} {
		var invalid *ledger.InvalidError
		if _, err := s.Subscribe(t.Context(), topic); !errors.As(err, &invalid) {
			t.Errorf("topic %q: %v", topic, err)
		}
	}
	_, err := workers.NewSubscriber(workers.SubscriberConfig{Kind: workers.KindConfig{Slots: -1, Produces: "a b"}})
	if err == nil {
		t.Fatal("no error")
	}
	for _, fault := range []string{"DB", "NATS", "Slots", "Produces"} {
		if !strings.Contains(err.Error(), fault) {
			t.Errorf("%q does not name %s", err, fault)
		}
	}
}

// A meta that is no envelope, from somebody else, buries the task and nothing else.
func TestTaskWithAForeignEnvelope(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.exec(`select taskledger.enqueue('mail.send', 'bad', meta => '{"watermill":[1]}')`)
	b.publish("mail.send", message.NewMessage("good", nil))
	m := b.receive(b.subscribe(b.taskSubscriber(workers.KindConfig{}), "mail.send"))
	if m.UUID != "good" {
		t.Errorf("got %q", m.UUID)
	}
	m.Ack()
	b.awaitState(ledger.Key{Kind: "mail.send", BizID: "bad"}, ledger.StateDead)
	b.awaitState(ledger.Key{Kind: "mail.send", BizID: "good"}, ledger.StateSucceeded)
}
