package inflight

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
)

// ackDelay is how long an acknowledgement waits for others.
const ackDelay = 2 * time.Millisecond

// acks are acknowledgements that are sent together. Each alone is a system call here and another one in the server, a
// twentieth of a task that has a transaction of its own. Nothing depends on when an acknowledgement arrives, as long as
// it is before AckWait. It is safe for concurrent use.
type acks struct {
	delay   time.Duration // constant
	mu      sync.Mutex
	replies []string
	timer   *time.Timer
	isSet   bool // the timer
}

func (a *acks) add(nc *nats.Conn, d Delivery) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.replies = append(a.replies, d.Reply)
	switch {
	case a.isSet:
	case a.timer == nil:
		a.timer = time.AfterFunc(a.delay, func() { a.send(nc) })
	default:
		a.timer.Reset(a.delay)
	}
	a.isSet = true
}

// send sends what is waiting.
func (a *acks) send(nc *nats.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, reply := range a.replies {
		_ = nc.Publish(reply, stream.AckAnswer)
	}
	clear(a.replies)
	a.replies, a.isSet = a.replies[:0], false
}
