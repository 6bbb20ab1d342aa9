package conformance_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
)

// raceDetector is on. The suite's TestReconnect has a race of its own: a goroutine appends to
// publishedMessages (test_pubsub.go:1086) and the test reads it (1120). So the detector does
// without it, and TestReconnect here is for both.
var raceDetector bool

// suiteRestarts is the suite's RestartServiceCommand.
func (b *bundle) suiteRestarts() []string {
	b.t.Helper()
	if raceDetector {
		return nil
	}
	return b.restartCommand()
}

// The server restarts again and again while messages are published and received: all arrive.
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
			messages := b.subscribe(s, "topic")
			var publishing sync.WaitGroup
			for i := range publishers {
				publishing.Go(func() {
					for j := range n / publishers {
						if err := p.Publish("topic", message.NewMessage(fmt.Sprintf("%d-%d", i, j), []byte("x"))); err != nil {
							t.Error(err) // publishing does not need NATS
							return
						}
					}
				})
			}
			received := make(map[string]bool)
			for len(received) < n {
				m := b.receive(messages)
				m.Ack()
				if received[m.UUID] {
					continue // at least once
				}
				received[m.UUID] = true
				if len(received)%(n/(restarts+1)) == 0 {
					b.server.Stop()
					if err := b.server.Restart(); err != nil {
						t.Fatal(err)
					}
				}
			}
			publishing.Wait()
		})
	}
}
