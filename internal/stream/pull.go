package stream

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// PullExpiry is the usual time after which an open request expires. The status with which it does shows that the
// consumer exists. A server of a cluster delivers to a request until then, even if its client has gone: it cannot see
// that, because workers and the stream are in different accounts. The messages are delivered again after AckWait.
const PullExpiry = 5 * time.Second

const (
	pullFlushTimeout = 2 * time.Second
	pullWords        = 64
)

// ErrConsumerGone is returned if no server answers for a consumer.
var ErrConsumerGone = errors.New("the consumer is gone")

// Puller requests messages of one consumer, as many as there is room for, and receives them as they arrive.
// It is for one goroutine.
//
// At most one request is open at a time. While it may still deliver messages, no other one is needed.
// jetstream.Consumer does not suit: its Messages buffers messages whose AckWait is not extended, and stopping
// its Fetch loses messages in transit until AckWait.
type Puller struct {
	nc      *nats.Conn
	subject string // of requests
	inbox   string // of responses to requests, without their number
	sub     *nats.Subscription
	msgs    chan *nats.Msg

	expiry time.Duration

	number int // of the open request
	left   int // messages that it may still deliver; 0: no request is open

	leftBytes int // bytes that it may still deliver, if they are limited

	lastSeen time.Time // time of the request, or of the last message or status
}

// NewPuller returns a puller without a request. Its requests expire after expiry.
func NewPuller(nc *nats.Conn, durable string, expiry time.Duration) *Puller {
	return &Puller{nc: nc, subject: "$JS.API.CONSUMER.MSG.NEXT." + Name + "." + durable, expiry: expiry}
}

// listen makes room for the responses to a request for n messages, since a full channel drops them. Besides
// those, there may be responses to an abandoned request, and status messages.
func (p *Puller) listen(n int) (err error) {
	if 2*n+pullWords <= cap(p.msgs) {
		return nil
	}
	under := p.Close()
	p.inbox, p.msgs = p.nc.NewInbox(), make(chan *nats.Msg, 2<<bits.Len(uint(n-1))+pullWords)
	if p.sub, err = p.nc.ChanSubscribe(p.inbox+".*", p.msgs); err != nil {
		return fmt.Errorf("ask for messages: %w", err)
	}
	for _, m := range under { // they fit: all came through a smaller channel
		p.msgs <- m
	}
	return nil
}

// Ask opens a request for n messages; no other request may be open. The request ends before its messages have
// more than this number of bytes in all, headers included, which must be enough for the largest one. 0: no limit.
func (p *Puller) Ask(n, bytes int) error {
	if err := p.listen(n); err != nil {
		return err
	}
	request, err := json.Marshal(struct {
		Batch    int           `json:"batch"`
		MaxBytes int           `json:"max_bytes,omitempty"`
		Expires  time.Duration `json:"expires"`
	}{n, bytes, p.expiry})
	if err != nil {
		return err
	}
	p.number++
	if err := p.nc.PublishRequest(p.subject, p.inbox+"."+strconv.Itoa(p.number), request); err != nil {
		p.left = 0
		return fmt.Errorf("ask for messages: %w", err)
	}
	p.left, p.leftBytes, p.lastSeen = n, bytes, time.Now()
	return nil
}

// Msgs returns the channel of messages and of the server's status messages: pass each to See. Ask may replace
// the channel.
func (p *Puller) Msgs() <-chan *nats.Msg { return p.msgs }

// Open reports whether a request is open, so that messages may still arrive.
func (p *Puller) Open() bool { return p.left > 0 }

// Forget drops the open request, whose responses will not arrive: the connection was lost.
func (p *Puller) Forget() { p.left = 0 }

// Silent reports whether the open request has had no message for too long after its expiry.
func (p *Puller) Silent() bool { return p.left > 0 && time.Since(p.lastSeen) > 3*p.expiry }

// Finish passes messages to take until no request is open, if the server is one of a cluster: other clients would wait
// for the messages that the server delivers to the request after Close. It returns after [PullExpiry] at most.
func (p *Puller) Finish(take func(*nats.Msg)) {
	if p.nc.ConnectedClusterName() == "" {
		return
	}
	expired := time.NewTimer(min(p.expiry, PullExpiry))
	defer expired.Stop()
	for p.Open() {
		select {
		case m := <-p.msgs:
			if work, _ := p.See(m); work {
				take(m)
			}
		case <-expired.C:
			return
		}
	}
}

// See records a message and reports whether it is a task's. If not, it is a status of a request; the error
// then is the reason for its end, unless the caller may ask again at once.
func (p *Puller) See(m *nats.Msg) (work bool, err error) {
	p.lastSeen = time.Now()
	status := ""
	if len(m.Data) == 0 {
		status = m.Header.Get("Status")
	}
	if status == "" {
		p.left = max(0, p.left-1)
		if p.leftBytes > 0 {
			if p.leftBytes -= m.Size(); p.leftBytes <= 0 {
				p.left = 0 // the server sends no status when they are used up
			}
		}
		return true, nil
	}
	if m.Subject != p.inbox+"."+strconv.Itoa(p.number) {
		return false, nil // about an abandoned request
	}
	p.left = 0
	description := m.Header.Get("Description")
	switch status {
	case "404", "408": // no message, expired
		return false, nil
	case "409":
		switch {
		case strings.EqualFold(description, "Consumer Deleted"):
			return false, ErrConsumerGone
		case strings.EqualFold(description, "Message Size Exceeds MaxBytes"),
			strings.EqualFold(description, "Batch Completed"):
			return false, nil
		}
	case "503": // no server answers for the consumer
		return false, ErrConsumerGone
	}
	return false, fmt.Errorf("the server ended the request: %s %s", status, description)
}

// Close ends the subscription and returns the messages in transit.
func (p *Puller) Close() []*nats.Msg {
	if p.sub == nil {
		return nil
	}
	// Drain and not Unsubscribe, which drops messages that the server has already sent. After the flush, no
	// message can arrive.
	if p.sub.Drain() == nil {
		_ = p.nc.FlushTimeout(pullFlushTimeout)
	}
	_ = p.sub.Unsubscribe() // of a lost connection; else drained already
	var rest []*nats.Msg
	for {
		select {
		case m := <-p.msgs:
			if work, _ := p.See(m); work {
				rest = append(rest, m)
			}
		default:
			return rest
		}
	}
}
