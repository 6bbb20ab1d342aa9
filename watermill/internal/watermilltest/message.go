package watermilltest

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	ledgerwm "github.com/taskledger/taskledger/watermill"
)

// Publisher returns a publisher on the database that no context bounds.
func (k *Kit) Publisher() *ledgerwm.Publisher {
	k.T.Helper()
	p, err := ledgerwm.NewPublisher(context.Background(), k.DB, nil)
	if err != nil {
		k.T.Fatal(err)
	}
	return p
}

// Publish publishes messages.
func (k *Kit) Publish(topic string, messages ...*message.Message) {
	k.T.Helper()
	if err := k.Publisher().Publish(topic, messages...); err != nil {
		k.T.Fatal(err)
	}
}

// Subscribe subscribes to a topic until the test ends.
func (k *Kit) Subscribe(s message.Subscriber, topic string) <-chan *message.Message {
	k.T.Helper()
	k.T.Cleanup(func() { _ = s.Close() })
	messages, err := s.Subscribe(k.T.Context(), topic)
	if err != nil {
		k.T.Fatal(err)
	}
	return messages
}

// Receive returns the next message.
func (k *Kit) Receive(messages <-chan *message.Message) *message.Message {
	k.T.Helper()
	select {
	case m, ok := <-messages:
		if !ok {
			k.T.Fatal("the channel is closed")
		}
		return m
	case <-time.After(Patience):
		k.T.Fatalf("no message was delivered within %s", Patience)
	}
	return nil
}

// Router returns a router that runs from start until the test ends.
func (k *Kit) Router() (router *message.Router, start func()) {
	k.T.Helper()
	config := message.RouterConfig{CloseTimeout: Patience}
	router, err := message.NewRouter(config, watermill.NewSlogLogger(k.Logger()))
	if err != nil {
		k.T.Fatal(err)
	}
	return router, func() {
		ended := make(chan error, 1)
		go func() { ended <- router.Run(context.Background()) }()
		<-router.Running()
		k.T.Cleanup(func() {
			if err := router.Close(); err != nil {
				k.T.Error(err)
			}
			if err := <-ended; err != nil {
				k.T.Error(err)
			}
		})
	}
}
