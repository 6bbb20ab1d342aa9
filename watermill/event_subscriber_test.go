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
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/watermill"
)

// describe is what a test compares of a message.
func describe(m *message.Message) string {
	e, ok := watermill.EventOf(m.Context())
	if !ok {
		return "no event"
	}
	return fmt.Sprintf("%s %s v%d %s %s", m.UUID, e.Type, e.Version, m.Payload, m.Metadata.Get("note"))
}

// checkEvent compares the event of a message, and its CloudEvents attributes, with an event.
func checkEvent(t *testing.T, m *message.Message, got, want ledger.Event) {
	t.Helper()
	if got.Key != want.Key || got.Position != want.Position || !got.RecordedAt.Equal(want.RecordedAt) {
		t.Errorf("event %+v, want %+v", got, want)
	}
	for name, value := range map[string]string{
		"ce-id": want.ID(), "ce-type": "taskledger." + string(want.Type), "ce-subject": want.Key.String(),
	} {
		if m.Metadata.Get(name) != value {
			t.Errorf("%s is %q, want %q", name, m.Metadata.Get(name), value)
		}
	}
}

func TestEventMessages(t *testing.T) {
	t.Parallel()
	b := newStreamed(t)
	m := message.NewMessage("u-1", []byte(`{"a":1}`))
	m.Metadata.Set("note", "hello")
	m.Metadata.Set("biz_id", "o-1")
	if err := publisher(t, b.DB).Publish("coupon.send", m); err != nil {
		t.Fatal(err)
	}
	key := ledger.Key{Kind: "coupon.send", BizID: "o-1"}
	b.append(key, 1, ledger.EventStarted)
	released := b.append(key, 2, ledger.EventInterrupted)
	b.append(key, 3, ledger.EventSucceeded)
	other := ledger.Key{Kind: "mail.send", BizID: "o-1"}
	b.enqueue(other.Kind, "o-", 2)

	history, err := ledger.History(t.Context(), b.DB, key)
	if err != nil {
		t.Fatal(err)
	}
	id := func(i int) string { return history[i].ID() }
	published := `u-1 enqueued v1 {"a":1} hello`
	for _, test := range []struct {
		group, topic string
		types        []ledger.EventType
		want         []string
	}{
		{
			group: "all", topic: "coupon.send",
			want: []string{
				published, id(1) + ` started v2  `, id(2) + ` interrupted v3 {"a":1} hello`, id(3) + ` succeeded v4  `,
			},
		},
		{
			group: "types", topic: "coupon.>",
			types: []ledger.EventType{ledger.EventSucceeded, ledger.EventStarted},
			want:  []string{id(1) + ` started v2  `, id(3) + ` succeeded v4  `},
		},
		{
			group: "kinds", topic: "*.send",
			types: []ledger.EventType{ledger.EventEnqueued},
			want:  []string{published, `o-0 enqueued v1 {"n":0} `, `o-1 enqueued v1 {"n":1} `},
		},
		{
			group: "everything", topic: ">",
			types: []ledger.EventType{ledger.EventInterrupted},
			want:  []string{id(2) + ` interrupted v3 {"a":1} hello`},
		},
	} {
		t.Run(test.group, func(t *testing.T) {
			messages := b.Subscribe(b.subscriber(func(c *watermill.EventSubscriberConfig) {
				c.Group, c.Types = test.group, test.types
			}), test.topic)
			var got []string
			for range test.want {
				m := b.Receive(messages)
				got = append(got, describe(m))
				if e, _ := watermill.EventOf(m.Context()); e.Version == released.Version {
					checkEvent(t, m, e, released)
				}
				m.Ack()
			}
			if diff := difference.Of(test.want, got); diff != "" {
				t.Error(diff)
			}
			b.awaitAcknowledged(test.group)
		})
	}
	if _, ok := watermill.EventOf(context.Background()); ok {
		t.Error("a context without an event has one")
	}
}

// The events of each task are delivered in order, and all are acked, although several members nack at
// random in several lanes.
func TestEventOrderPerTask(t *testing.T) {
	t.Parallel()
	for _, lanes := range []int{1, 7} {
		t.Run(fmt.Sprint(lanes), func(t *testing.T) {
			t.Parallel()
			b := newStreamed(t)
			const tasks, perTask = 30, 4
			var mu sync.Mutex
			next := make(map[ledger.BizID]ledger.Version)
			attempts, acked := 0, 0
			inFlight, most := 0, 0
			for range 3 {
				s := b.subscriber(func(c *watermill.EventSubscriberConfig) { c.Lanes = lanes })
				messages := b.Subscribe(s, "coupon.send")
				go func() {
					for m := range messages {
						go func() { // as Watermill's router does
							e, _ := watermill.EventOf(m.Context())
							mu.Lock()
							inFlight++
							most = max(most, inFlight)
							attempts++
							nack := attempts%5 == 0
							mu.Unlock()
							time.Sleep(time.Millisecond)
							mu.Lock()
							defer mu.Unlock()
							inFlight--
							if want := next[e.BizID] + 1; e.Version > want {
								t.Errorf("%s came before version %d", e.ID(), want)
							}
							if nack {
								m.Nack()
								return
							}
							if e.Version == next[e.BizID]+1 {
								next[e.BizID] = e.Version
								acked++
							}
							m.Ack()
						}()
					}
				}()
			}
			b.enqueue("coupon.send", "o-", tasks)
			for version := range perTask - 1 {
				typ := []ledger.EventType{ledger.EventStarted, ledger.EventInterrupted, ledger.EventSucceeded}[version]
				for i := range tasks {
					key := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprintf("o-%d", i))}
					b.append(key, ledger.Version(version+1), typ)
				}
			}
			b.Await("every event is acked", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return acked == tasks*perTask
			})
			b.awaitAcknowledged("g")
			mu.Lock()
			defer mu.Unlock()
			if most > lanes {
				t.Errorf("%d messages in flight at a time, want at most %d", most, lanes)
			}
			if lanes > 1 && most == 1 {
				t.Error("several lanes never had messages in flight at the same time")
			}
		})
	}
}

func TestEventSubscriberClose(t *testing.T) {
	t.Parallel()
	b := newStreamed(t)
	b.enqueue("coupon.send", "o-", 2)
	lasting := func(c *watermill.EventSubscriberConfig) { c.AckWait = time.Hour }
	first := b.subscriber(lasting)
	messages := b.Subscribe(first, "coupon.send")
	m := b.Receive(messages)
	for range 2 {
		if err := first.Close(); err != nil { // in the middle of a handler
			t.Fatal(err)
		}
	}
	if m.Context().Err() == nil {
		t.Error("the context of the message is not done")
	}
	m.Ack() // too late
	if _, open := <-messages; open {
		t.Error("the channel is open")
	}
	if _, err := first.Subscribe(t.Context(), "coupon.send"); !errors.Is(err, watermill.ErrClosed) {
		t.Errorf("subscribe after close: %v", err)
	}
	// The message was given back at once, not after an hour.
	again := b.Receive(b.Subscribe(b.subscriber(lasting), "coupon.send"))
	if again.UUID != m.UUID {
		t.Errorf("got %s, want %s again", again.UUID, m.UUID)
	}
	if !again.Ack() || again.Nack() { // the first answer counts
		t.Error("nack after ack")
	}
	b.Await("its ack has arrived", func() bool {
		c, err := b.stream().Consumer(t.Context(), stream.GroupDurable("g", "coupon.send", 0))
		return err == nil && c.CachedInfo().AckFloor.Consumer > 0
	})
}

// A handler may take longer than AckWait: no other member receives its message.
func TestEventIsKeptWhileItIsHandled(t *testing.T) {
	t.Parallel()
	b := newStreamed(t)
	b.enqueue("coupon.send", "o-", 1)
	const ackWait = 5 * time.Second // a third of it is the interval at which the message is kept
	long := func(c *watermill.EventSubscriberConfig) { c.AckWait = ackWait }
	one := b.Subscribe(b.subscriber(long), "coupon.send")
	other := b.Subscribe(b.subscriber(long), "coupon.send")
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
	case <-time.After(2 * ackWait):
	}
	m.Ack()
	b.awaitAcknowledged("g")
}

func TestEventsFromNow(t *testing.T) {
	t.Parallel()
	b := newStreamed(t)
	b.enqueue("coupon.send", "old-", 3)
	b.AwaitPublished()
	fromNow := func(c *watermill.EventSubscriberConfig) { c.FromNow = true }
	if err := b.subscriber(fromNow).SubscribeInitialize("coupon.send"); err != nil {
		t.Fatal(err)
	}
	b.enqueue("coupon.send", "new-", 1)
	b.AwaitPublished()
	s := b.subscriber(fromNow)
	messages := b.Subscribe(s, "coupon.send")
	m := b.Receive(messages)
	if m.UUID != "new-0" {
		t.Errorf("got %s first", m.UUID)
	}
	m.Ack()
	// A consumer that vanishes is made again, and begins early enough for what it had not delivered.
	b.awaitAcknowledged("g")
	if err := b.stream().DeleteConsumer(t.Context(), stream.GroupDurable("g", "coupon.send", 0)); err != nil {
		t.Fatal(err)
	}
	b.enqueue("coupon.send", "after-", 1)
	for {
		m := b.Receive(messages)
		m.Ack()
		if strings.HasPrefix(m.UUID, "old-") {
			t.Errorf("got %s", m.UUID)
		}
		if m.UUID == "after-0" {
			return
		}
	}
}

func TestEventGroupWithOtherSettings(t *testing.T) {
	t.Parallel()
	b := newStreamed(t)
	b.Subscribe(b.subscriber(), "coupon.send")
	// AckWait may differ: the last one counts.
	b.Subscribe(b.subscriber(func(c *watermill.EventSubscriberConfig) { c.AckWait = 2 * time.Second }), "coupon.send")
	for name, configure := range map[string]func(*watermill.EventSubscriberConfig){
		"types": func(c *watermill.EventSubscriberConfig) { c.Types = []ledger.EventType{ledger.EventFailed} },
		"lanes": func(c *watermill.EventSubscriberConfig) { c.Lanes = 2 },
	} {
		_, err := b.subscriber(configure).Subscribe(t.Context(), "coupon.send")
		var settings *watermill.SettingsError
		if !errors.As(err, &settings) || settings.Group != "g" || settings.Topic != "coupon.send" {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.Subscribe(b.subscriber(func(c *watermill.EventSubscriberConfig) { c.Group, c.Lanes = "h", 2 }), "coupon.send")
}

func TestEventSubscriberBadInput(t *testing.T) {
	t.Parallel()
	_, err := watermill.NewEventSubscriber(watermill.EventSubscriberConfig{
		Group: "a.b", Types: []ledger.EventType{"done"}, Lanes: 65, AckWait: 1, NackDelay: -1,
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, fault := range []string{
		"NATS is required", "Group", `"done"`, "Lanes must be between 1 and 64, got 65", "AckWait", "NackDelay",
	} {
		if !strings.Contains(err.Error(), fault) {
			t.Errorf("%q does not name %s", err, fault)
		}
	}
	b := newEventBundle(t)
	s := b.subscriber()
	for _, topic := range []string{"", "a b", "a..b", "a.>.b", ".>", "a*"} {
		var invalid *ledger.InvalidError
		if _, err := s.Subscribe(t.Context(), topic); !errors.As(err, &invalid) {
			t.Errorf("topic %q: %v", topic, err)
		}
		if err := s.SubscribeInitialize(topic); !errors.As(err, &invalid) {
			t.Errorf("topic %q: %v", topic, err)
		}
	}
	if _, err := s.Subscribe(t.Context(), "coupon.send"); err == nil {
		t.Error("Subscribe returned no error without a stream")
	}
}

// A foreign message on the stream's subjects does not end the subscription.
func TestEventSubscriberRefusesForeignMessages(t *testing.T) {
	t.Parallel()
	b := newEventBundle(t)
	if _, err := stream.Ensure(t.Context(), b.JS, stream.Config{MaxBytes: 1 << 30}, "test"); err != nil {
		t.Fatal(err)
	}
	messages := b.Subscribe(b.subscriber(), "coupon.send")
	key := ledger.Key{Kind: "coupon.send", BizID: "o-1"}
	e := ledger.Event{Key: key, Version: 1, Type: ledger.EventEnqueued, RecordedAt: time.Now()}
	good := stream.Encode(e, []byte("x"), "taskledger/test")
	repeated := nats.NewMsg(good.Subject)
	repeated.Header = nats.Header{"a": {"1", "2"}}
	for _, m := range []*nats.Msg{{Subject: good.Subject, Data: []byte("?")}, repeated, good} {
		if _, err := b.JS.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	m := b.Receive(messages)
	if want := "o-1 enqueued v1 x "; describe(m) != want {
		t.Errorf("got %s, want %s", describe(m), want)
	}
	m.Ack()
	b.awaitAcknowledged("g")
}
