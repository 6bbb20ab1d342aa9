package conformance_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
)

// raceDetector reports whether the race detector is on. The suite's TestReconnect has a race: a goroutine
// appends to publishedMessages (test_pubsub.go:1086), and the test reads it (1120). So it is skipped under
// the race detector; TestReconnect below runs in both cases.
var raceDetector bool

// suiteRestarts returns the suite's RestartServiceCommand.
func (b *bundle) suiteRestarts() []string {
	b.T.Helper()
	if raceDetector {
		return nil
	}
	return b.restartCommand()
}

// All messages are delivered although the server restarts while they are published and received.
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
