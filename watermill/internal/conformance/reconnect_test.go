package conformance_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
)

// All messages are delivered although the server restarts while they are published and received. It is in
// the place of the suite's TestReconnect, which fails if the last message is received before a goroutine of its own
// has noted that it was published (watermill v1.5.1, pubsub/tests/test_pubsub.go:1084 and 1120).
func TestReconnect(t *testing.T) {
	t.Parallel()
	for name, pair := range map[string]func(*bundle, *testing.T) (message.Publisher, message.Subscriber){
		"tasks": (*bundle).tasks, "events": (*bundle).eventsOfOneGroup,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			p, s := pair(b, t)
			const n, publishers, restarts = 3000, 10, 3
			messages := b.Subscribe(s, "topic")
			var publishing sync.WaitGroup
			for i := range publishers {
				publishing.Go(func() {
					for j := range n / publishers {
						if err := p.Publish("topic", message.NewMessage(fmt.Sprintf("%d-%d", i, j),
							[]byte("x"))); err != nil {
							t.Error(err) // publishing requires PostgreSQL only
							return
						}
					}
				})
			}
			received := make(map[string]bool)
			for len(received) < n {
				m := b.Receive(messages)
				m.Ack()
				if received[m.UUID] {
					continue // at least once
				}
				received[m.UUID] = true
				if len(received)%(n/(restarts+1)) == 0 {
					b.Server.Stop()
					if err := b.Server.Restart(); err != nil {
						t.Fatal(err)
					}
				}
			}
			publishing.Wait()
		})
	}
}
