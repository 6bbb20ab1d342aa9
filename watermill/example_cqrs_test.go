package watermill_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"strings"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"

	ledgerwm "github.com/taskledger/taskledger/watermill"
)

// Succeeded is the event taskledger.succeeded.
type Succeeded struct {
	Worker string          `json:"worker"`
	Result json.RawMessage `json:"result"`
}

// ledgerEvents is a marshaler for CQRS: an event's name is ce-type.
type ledgerEvents struct{ cqrs.JSONMarshaler }

func (ledgerEvents) NameFromMessage(m *message.Message) string { return m.Metadata.Get("ce-type") }

func (ledgerEvents) Name(v any) string {
	return "taskledger." + strings.ToLower(cqrs.StructName(v))
}

// Watermill's event processor handles the events of all kinds of coupons.
func ExampleNewEventSubscriber_cqrs() {
	var router *message.Router
	var nc *nats.Conn
	processor, err := cqrs.NewEventProcessorWithConfig(router, cqrs.EventProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.EventProcessorGenerateSubscribeTopicParams) (string, error) {
			return "coupon.>", nil
		},
		SubscriberConstructor: func(p cqrs.EventProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return ledgerwm.NewEventSubscriber(ledgerwm.EventSubscriberConfig{NATS: nc, Group: p.HandlerName})
		},
		Marshaler: ledgerEvents{}, AckOnUnknownEvent: true, // types without a handler
	})
	if err != nil {
		log.Fatal(err)
	}
	err = processor.AddHandlers(cqrs.NewEventHandler("report", func(ctx context.Context, s *Succeeded) error {
		e, _ := ledgerwm.EventOf(ctx) // its key, version and position
		_, err := fmt.Println(e.Key, string(s.Result))
		return err
	}))
	if err != nil {
		log.Fatal(err)
	}
}
