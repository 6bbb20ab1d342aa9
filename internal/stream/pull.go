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

// PullHeartbeat is how often the server says that a request is still there, as a rule.
const PullHeartbeat = 5 * time.Second

const (
	pullBeats        = 6 // until a request expires
	pullFlushTimeout = 2 * time.Second
	pullWords        = 64
)

// ErrConsumerGone says that nobody answers for a consumer any more.
var ErrConsumerGone = errors.New("the consumer is gone")

// Puller asks one consumer for messages, so many as there is room for, and receives them as
// they come. At most one request is open at a time: if it has messages left to deliver, then
// there are none. (jetstream.Consumer would do: but its Messages buffers what nobody keeps
// alive, and stopping its Fetch loses what is under way for a whole AckWait.) For one goroutine.
type Puller struct {
	nc      *nats.Conn
	subject string // to ask
	inbox   string // what requests are answered to, but for their number
	sub     *nats.Subscription
	msgs    chan *nats.Msg

	heartbeat time.Duration

	number int // of the open request
	left   int // messages that it may still deliver; 0: none is open

	leftBytes int // those that it may still deliver, if they are limited

	heard time.Time // when anything came last
}

// NewPuller returns one that has asked for nothing yet. heartbeat is how often the server says that
// a request is still there.
func NewPuller(nc *nats.Conn, durable string, heartbeat time.Duration) *Puller {
	return &Puller{nc: nc, subject: "$JS.API.CONSUMER.MSG.NEXT." + Name + "." + durable, heartbeat: heartbeat}
}

// listen sees to it that there is room for the answers to a request for n messages, since a full
// channel drops them: beside those, there may be some to a request that was forgotten, and words.
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

// Ask opens a request for n messages, when none is open. It ends before they have more than so many
// bytes in all, with what is around them; that must be enough for the largest one. 0: no limit.
func (p *Puller) Ask(n, bytes int) error {
	if err := p.listen(n); err != nil {
		return err
	}
	request, err := json.Marshal(struct {
		Batch     int           `json:"batch"`
		MaxBytes  int           `json:"max_bytes,omitempty"`
		Expires   time.Duration `json:"expires"`
		Heartbeat time.Duration `json:"idle_heartbeat"`
	}{n, bytes, pullBeats * p.heartbeat, p.heartbeat})
	if err != nil {
		return err
	}
	p.number++
	if err := p.nc.PublishRequest(p.subject, p.inbox+"."+strconv.Itoa(p.number), request); err != nil {
		p.left = 0
		return fmt.Errorf("ask for messages: %w", err)
	}
	p.left, p.leftBytes, p.heard = n, bytes, time.Now()
	return nil
}

// Msgs is where messages come, and the server's words on requests: give each to See. It may be
// another channel after Ask.
func (p *Puller) Msgs() <-chan *nats.Msg { return p.msgs }

// Open reports whether a request is open, so that messages may still come.
func (p *Puller) Open() bool { return p.left > 0 }

// Forget drops the open request, whose answers will not come: the connection was lost.
func (p *Puller) Forget() { p.left = 0 }

// Silent reports whether the open request has gone unheard of for too long.
func (p *Puller) Silent() bool { return p.left > 0 && time.Since(p.heard) > 3*p.heartbeat }

// See takes note of a message, and reports whether it is work. If not, it is the server's word
// on a request; the error then says why it ended, if asking again at once would not do.
func (p *Puller) See(m *nats.Msg) (work bool, err error) {
	p.heard = time.Now()
	status := ""
	if len(m.Data) == 0 {
		status = m.Header.Get("Status")
	}
	if status == "" {
		p.left = max(0, p.left-1)
		if p.leftBytes > 0 {
			if p.leftBytes -= m.Size(); p.leftBytes <= 0 {
				p.left = 0 // the server says nothing when they are just used up
			}
		}
		return true, nil
	}
	if status == "100" || m.Subject != p.inbox+"."+strconv.Itoa(p.number) {
		return false, nil // a heartbeat, or about a request that was given up
	}
	p.left = 0
	description := m.Header.Get("Description")
	switch status {
	case "404", "408": // nothing there, expired
		return false, nil
	case "409":
		switch {
		case strings.EqualFold(description, "Consumer Deleted"):
			return false, ErrConsumerGone
		case strings.EqualFold(description, "Message Size Exceeds MaxBytes"),
			strings.EqualFold(description, "Batch Completed"):
			return false, nil
		}
	case "503": // nobody answers for the consumer
		return false, ErrConsumerGone
	}
	return false, fmt.Errorf("the server ended the request: %s %s", status, description)
}

// Close stops listening and returns the messages that were under way.
func (p *Puller) Close() []*nats.Msg {
	if p.sub == nil {
		return nil
	}
	// Drain and not Unsubscribe: the latter throws away what the server has sent already. Once
	// the flush comes back, nothing more can come.
	if p.sub.Drain() == nil {
		_ = p.nc.FlushTimeout(pullFlushTimeout)
	}
	_ = p.sub.Unsubscribe() // of a connection that is away; else drained already
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
