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

// PullExpiry is the time after which an open request expires. The status that reports the expiry shows that the
// consumer exists.
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
// At most one request is open at a time: while it may still deliver messages, another request is not needed.
// jetstream.Consumer does not fit: its Messages buffers messages without extending their AckWait, and stopping its
// Fetch loses messages in transit until AckWait.
type Puller struct {
	nc      *nats.Conn
	subject string // of requests
	inbox   string // of responses to requests, without their number
	sub     *nats.Subscription
	msgs    chan *nats.Msg

	number int // of the open request
	left   int // messages that it may still deliver; 0: no request is open

	lastSeen time.Time // time of the request, or of the last message or status
}

// NewPuller returns a puller without a request.
func NewPuller(nc *nats.Conn, durable string) *Puller {
	return &Puller{nc: nc, subject: "$JS.API.CONSUMER.MSG.NEXT." + PrefixOf(nc).Stream() + "." + durable}
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

// Ask opens a request for n messages; no other request may be open.
func (p *Puller) Ask(n int) error {
	if err := p.listen(n); err != nil {
		return err
	}
	request, err := json.Marshal(struct {
		Batch   int           `json:"batch"`
		Expires time.Duration `json:"expires"`
	}{n, PullExpiry})
	if err != nil {
		return err
	}
	p.number++
	if err := p.nc.PublishRequest(p.subject, p.inbox+"."+strconv.Itoa(p.number), request); err != nil {
		p.left = 0
		return fmt.Errorf("ask for messages: %w", err)
	}
	p.left, p.lastSeen = n, time.Now()
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
func (p *Puller) Silent() bool { return p.left > 0 && time.Since(p.lastSeen) > 3*PullExpiry }

// See records a message and reports whether it is an event's. If not, it is a status of a request; the error
// then is the reason for its end, unless the caller may ask again at once.
func (p *Puller) See(m *nats.Msg) (isEvent bool, err error) {
	p.lastSeen = time.Now()
	status := ""
	if len(m.Data) == 0 {
		status = m.Header.Get("Status")
	}
	if status == "" {
		p.left = max(0, p.left-1)
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
		case strings.EqualFold(description, "Batch Completed"):
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
			if isEvent, _ := p.See(m); isEvent {
				rest = append(rest, m)
			}
		default:
			return rest
		}
	}
}
