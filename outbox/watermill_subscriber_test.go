package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

// subscriber returns a subscriber of group g that is quick to try again.
func (b *bundle) subscriber(configure ...func(*outbox.SubscriberConfig)) *outbox.Subscriber {
	b.t.Helper()
	c := outbox.SubscriberConfig{NATS: b.nc, Group: "g", AckWait: time.Second, NackDelay: time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(b.t.Output(), nil))}
	for _, f := range configure {
		f(&c)
	}
	s, err := outbox.NewSubscriber(c)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = s.Close() })
	return s
}

func (b *bundle) subscribe(s *outbox.Subscriber, topic string) <-chan *message.Message {
	b.t.Helper()
	messages, err := s.Subscribe(b.ctx(), topic)
	if err != nil {
		b.t.Fatal(err)
	}
	return messages
}

// receive returns the next message.
func (b *bundle) receive(messages <-chan *message.Message) *message.Message {
	b.t.Helper()
	select {
	case m, ok := <-messages:
		if !ok {
			b.t.Fatal("the channel is closed")
		}
		return m
	case <-time.After(patience):
		b.t.Fatal("no message came")
	}
	return nil
}

// streamed starts a relay and waits for the stream.
func (b *bundle) streamed() {
	b.t.Helper()
	b.relay()
	b.await("the stream is there", func() bool {
		_, err := b.js.Stream(b.ctx(), stream.Name)
		return err == nil
	})
}

// describe is what a test compares of a message.
func describe(m *message.Message) string {
	e, ok := outbox.EventOf(m.Context())
	if !ok {
		return "no event"
	}
	return fmt.Sprintf("%s %s v%d %s %s", m.UUID, e.Type, e.Version, m.Payload, m.Metadata.Get("note"))
}

func TestEventMessages(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.streamed()
	m := message.NewMessage("u-1", []byte(`{"a":1}`))
	m.Metadata.Set("note", "hello")
	m.Metadata.Set("biz_id", "o-1")
	if err := publisher(t, b.pool).Publish("coupon.send", m); err != nil {
		t.Fatal(err)
	}
	key := ledger.Key{Kind: "coupon.send", BizID: "o-1"}
	b.append(key, 1, ledger.EventStarted)
	released := b.append(key, 2, ledger.EventInterrupted)
	b.append(key, 3, ledger.EventSucceeded)
	other := ledger.Key{Kind: "mail.send", BizID: "o-1"}
	b.enqueue(other.Kind, "o-", 2)

	history, err := ledger.History(b.ctx(), b.pool, key)
	if err != nil {
		t.Fatal(err)
	}
	id := func(i int) string { return history[i].ID() }
	for _, test := range []struct {
		group, topic string
		types        []ledger.EventType
		want         []string
	}{
		{"all", "coupon.send", nil, []string{
			`u-1 enqueued v1 {"a":1} hello`, id(1) + ` started v2  `, id(2) + ` interrupted v3 {"a":1} hello`, id(3) + ` succeeded v4  `}},
		{"types", "coupon.>", []ledger.EventType{ledger.EventSucceeded, ledger.EventStarted}, []string{id(1) + ` started v2  `, id(3) + ` succeeded v4  `}},
		{"kinds", "*.send", []ledger.EventType{ledger.EventEnqueued}, []string{`u-1 enqueued v1 {"a":1} hello`, `o-0 enqueued v1 {"n":0} `, `o-1 enqueued v1 {"n":1} `}},
		{"everything", ">", []ledger.EventType{ledger.EventInterrupted}, []string{id(2) + ` interrupted v3 {"a":1} hello`}},
	} {
		t.Run(test.group, func(t *testing.T) {
			messages := b.subscribe(b.subscriber(func(c *outbox.SubscriberConfig) { c.Group, c.Types = test.group, test.types }), test.topic)
			var got []string
			for range test.want {
				m := b.receive(messages)
				got = append(got, describe(m))
				if e, _ := outbox.EventOf(m.Context()); e.Version == 3 && (e.Key != key || e.Position != released.Position || !e.RecordedAt.Equal(released.RecordedAt) ||
					m.Metadata.Get("ce-id") != released.ID() || m.Metadata.Get("ce-type") != "taskledger.interrupted" || m.Metadata.Get("ce-subject") != key.String()) {
					t.Errorf("event %+v, metadata %v", e, m.Metadata)
				}
				m.Ack()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			b.acknowledged(test.group)
		})
	}
	if _, ok := outbox.EventOf(context.Background()); ok {
		t.Error("a context without an event has one")
	}
}

// acknowledged waits until nothing is left for a group on any of its consumers.
func (b *bundle) acknowledged(group string) {
	b.t.Helper()
	b.await(group+" has acknowledged everything", func() bool {
		found := 0
		consumers := b.stream().ListConsumers(b.ctx())
		for c := range consumers.Info() {
			if strings.HasPrefix(c.Name, group+"=") {
				found++
				if c.NumPending > 0 || c.NumAckPending > 0 {
					return false
				}
			}
		}
		return consumers.Err() == nil && found > 0
	})
}

// Several members nack at random, in several lanes: the events of each task come in order all
// the same, and every one is acked.
func TestEventOrderPerTask(t *testing.T) {
	t.Parallel()
	for _, lanes := range []int{1, 7} {
		t.Run(fmt.Sprint(lanes), func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			b.streamed()
			const tasks, perTask = 30, 4
			var mu sync.Mutex
			next := make(map[ledger.BizID]ledger.Version)
			attempts, acked := 0, 0
			together, most := 0, 0
			for range 3 {
				messages := b.subscribe(b.subscriber(func(c *outbox.SubscriberConfig) { c.Lanes = lanes }), "coupon.send")
				go func() {
					for m := range messages {
						go func() { // as Watermill's router does
							e, _ := outbox.EventOf(m.Context())
							mu.Lock()
							together++
							most = max(most, together)
							attempts++
							nack := attempts%5 == 0
							mu.Unlock()
							time.Sleep(time.Millisecond)
							mu.Lock()
							defer mu.Unlock()
							together--
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
					b.append(ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprintf("o-%d", i))}, ledger.Version(version+1), typ)
				}
			}
			b.await("every event is acked", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return acked == tasks*perTask
			})
			b.acknowledged("g")
			mu.Lock()
			defer mu.Unlock()
			if most > lanes {
				t.Errorf("%d messages in hand at once, want at most %d", most, lanes)
			}
			if lanes > 1 && most == 1 {
				t.Error("several lanes never worked at once")
			}
		})
	}
}

func TestEventSubscriberClose(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.streamed()
	b.enqueue("coupon.send", "o-", 2)
	first := b.subscriber(func(c *outbox.SubscriberConfig) { c.AckWait = time.Hour })
	messages := b.subscribe(first, "coupon.send")
	m := b.receive(messages)
	for range 2 {
		if err := first.Close(); err != nil { // in the middle of a handler
			t.Fatal(err)
		}
	}
	if m.Context().Err() == nil {
		t.Error("the handler is not told")
	}
	m.Ack() // too late
	if _, open := <-messages; open {
		t.Error("the channel is open")
	}
	if _, err := first.Subscribe(b.ctx(), "coupon.send"); !errors.Is(err, outbox.ErrClosed) {
		t.Errorf("subscribe after close: %v", err)
	}
	// Given back, and not only after an hour.
	again := b.receive(b.subscribe(b.subscriber(func(c *outbox.SubscriberConfig) { c.AckWait = time.Hour }), "coupon.send"))
	if again.UUID != m.UUID {
		t.Errorf("got %s, want %s again", again.UUID, m.UUID)
	}
	if !again.Ack() || again.Nack() { // the first word counts
		t.Error("nack after ack")
	}
	b.await("its ack has arrived", func() bool {
		c, err := b.stream().Consumer(b.ctx(), stream.GroupDurable("g", "coupon.send", 0))
		return err == nil && c.CachedInfo().AckFloor.Consumer > 0
	})
}

// A handler may take longer than AckWait: its message is not given to another.
func TestEventIsKeptWhileItIsWorkedOn(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.streamed()
	b.enqueue("coupon.send", "o-", 1)
	one := b.subscribe(b.subscriber(), "coupon.send")
	other := b.subscribe(b.subscriber(), "coupon.send")
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
	case <-time.After(2500 * time.Millisecond): // AckWait is 1 s
	}
	m.Ack()
	b.acknowledged("g")
}

func TestEventsFromNow(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.streamed()
	b.enqueue("coupon.send", "old-", 3)
	b.settle()
	fromNow := func(c *outbox.SubscriberConfig) { c.FromNow = true }
	if err := b.subscriber(fromNow).SubscribeInitialize("coupon.send"); err != nil {
		t.Fatal(err)
	}
	b.enqueue("coupon.send", "new-", 1)
	b.settle()
	s := b.subscriber(fromNow)
	messages := b.subscribe(s, "coupon.send")
	m := b.receive(messages)
	if m.UUID != "new-0" {
		t.Errorf("got %s first", m.UUID)
	}
	m.Ack()
	// The consumer vanishes, with a message that it had not delivered. It is made again, early enough.
	b.acknowledged("g")
	if err := b.stream().DeleteConsumer(b.ctx(), stream.GroupDurable("g", "coupon.send", 0)); err != nil {
		t.Fatal(err)
	}
	b.enqueue("coupon.send", "after-", 1)
	for {
		m := b.receive(messages)
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
	b := newBundle(t)
	b.streamed()
	b.subscribe(b.subscriber(), "coupon.send")
	b.subscribe(b.subscriber(func(c *outbox.SubscriberConfig) { c.AckWait = 2 * time.Second }), "coupon.send") // may differ: the last one's counts
	for name, configure := range map[string]func(*outbox.SubscriberConfig){
		"types": func(c *outbox.SubscriberConfig) { c.Types = []ledger.EventType{ledger.EventFailed} },
		"lanes": func(c *outbox.SubscriberConfig) { c.Lanes = 2 },
	} {
		_, err := b.subscriber(configure).Subscribe(b.ctx(), "coupon.send")
		var settings *outbox.SettingsError
		if !errors.As(err, &settings) || settings.Group != "g" || settings.Topic != "coupon.send" {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.subscribe(b.subscriber(func(c *outbox.SubscriberConfig) { c.Group, c.Lanes = "h", 2 }), "coupon.send")
}

func TestEventSubscriberBadInput(t *testing.T) {
	t.Parallel()
	_, err := outbox.NewSubscriber(outbox.SubscriberConfig{Group: "a.b", Types: []ledger.EventType{"done"}, Lanes: 65, AckWait: 1, NackDelay: -1})
	if err == nil {
		t.Fatal("no error")
	}
	for _, fault := range []string{"NATS", "Group", `type "done"`, "Lanes", "AckWait", "NackDelay"} {
		if !strings.Contains(err.Error(), fault) {
			t.Errorf("%q does not name %s", err, fault)
		}
	}
	b := newBundle(t)
	s := b.subscriber()
	for _, topic := range []string{"", "a b", "a..b", "a.>.b", ".>", "a*"} {
		var invalid *ledger.InvalidError
		if _, err := s.Subscribe(b.ctx(), topic); !errors.As(err, &invalid) {
			t.Errorf("topic %q: %v", topic, err)
		}
		if err := s.SubscribeInitialize(topic); !errors.As(err, &invalid) {
			t.Errorf("topic %q: %v", topic, err)
		}
	}
	if _, err := s.Subscribe(b.ctx(), "coupon.send"); err == nil {
		t.Error("there is no stream yet, and no error")
	}
}

// Somebody else's message on the stream's subjects ends nothing.
func TestEventSubscriberRefusesForeignMessages(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	if _, err := stream.Ensure(b.ctx(), b.js, stream.Config{MaxBytes: 1 << 30}, "test"); err != nil {
		t.Fatal(err)
	}
	messages := b.subscribe(b.subscriber(), "coupon.send")
	e := ledger.Event{Key: ledger.Key{Kind: "coupon.send", BizID: "o-1"}, Version: 1, Type: ledger.EventEnqueued, RecordedAt: time.Now()}
	good := stream.Encode(e, []byte("x"), "taskledger/test", 1)
	repeated := nats.NewMsg(good.Subject)
	repeated.Header = nats.Header{"a": {"1", "2"}}
	for _, m := range []*nats.Msg{{Subject: good.Subject, Data: []byte("?")}, repeated, good} {
		if _, err := b.js.PublishMsg(b.ctx(), m); err != nil {
			t.Fatal(err)
		}
	}
	m := b.receive(messages)
	if want := "o-1 enqueued v1 x "; describe(m) != want {
		t.Errorf("got %s, want %s", describe(m), want)
	}
	m.Ack()
	b.acknowledged("g")
}

func TestGroupDurablesAreDistinct(t *testing.T) {
	t.Parallel()
	var names []string
	for _, group := range []string{"a", "a-b"} {
		for _, topic := range []string{"a", "a.b", "a.*", "a.>", ">", "*", "a-b", "a_b"} {
			for lane := range 12 {
				names = append(names, stream.GroupDurable(group, topic, lane))
			}
		}
	}
	for _, name := range names {
		if strings.ContainsAny(name, ".*> /\\\t") {
			t.Errorf("%s is no name of a consumer", name)
		}
		if _, _, ok := stream.Served(name); ok {
			t.Errorf("%s is a worker's", name)
		}
	}
	if n := len(slices.Compact(slices.Sorted(slices.Values(names)))); n != len(names) {
		t.Errorf("%d names for %d consumers", n, len(names))
	}
}
