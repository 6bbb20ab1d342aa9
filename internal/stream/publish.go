package stream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// ErrBuffered is returned for a connection that buffers messages while it is disconnected. It would send them
// after the publisher has given them up.
var ErrBuffered = errors.New("the NATS connection must have the option nats.ReconnectBufSize(-1)")

// MaxPage is the maximum number of messages of one call to [Publisher.Publish]. Between two pages the server is idle
// for a moment: while workers are busy, a relay takes a twentieth less time with 2000 than with 1000. With 4000, the
// data exceed a processor's cache.
const MaxPage = 2000

// Publisher publishes pages of messages and counts their acknowledgements, over one subscription. It is safe for
// concurrent use. It publishes one page at a time, because a task's later message must not overtake an earlier message
// that failed.
type Publisher struct {
	nc     *nats.Conn
	acks   acks
	sub    *nats.Subscription
	prefix string           // of reply subjects: <inbox>.<page>.<message>, or <inbox>.<page> for all messages of a page
	status chan nats.Status // connection lost

	publishing sync.Mutex // one page at a time
	pages      uint64

	mu   sync.Mutex // guards page
	page *page      // the current one, or nil
}

// page collects the acknowledgements of one call.
type page struct {
	id      string
	results []Result
	got     []bool
	answers []Result // to the subject of the whole page, as they arrived
	missing int
	done    chan struct{} // closed when no acknowledgement is missing
}

// NewPublisher returns a publisher to the stream of the ledger on a connection without a buffer, see [Connect]. For
// another connection it returns [ErrBuffered]. The caller must close the publisher.
func NewPublisher(nc *nats.Conn) (*Publisher, error) {
	return NewPublisherTo(nc, PrefixOf(nc).Stream())
}

// NewPublisherTo is [NewPublisher] to a stream of another name.
func NewPublisherTo(nc *nats.Conn, stream string) (*Publisher, error) {
	if nc.Opts.ReconnectBufSize >= 0 {
		return nil, ErrBuffered
	}
	p := &Publisher{nc: nc, acks: acksOf(stream), prefix: nc.NewInbox() + "."}
	sub, err := nc.Subscribe(p.prefix+">", p.acknowledged)
	if err != nil {
		return nil, fmt.Errorf("subscribe to acknowledgements: %w", err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, fmt.Errorf("subscribe to acknowledgements: %w", err)
	}
	p.sub = sub
	p.status = nc.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	return p, nil
}

// Close ends the subscription. It does not close the connection.
func (p *Publisher) Close() error {
	p.nc.RemoveStatusListener(p.status)
	return p.sub.Unsubscribe()
}

// Publish publishes at most [MaxPage] messages in order and returns their results in the same order. It waits for all
// acknowledgements, the timeout, ctx, or the loss of the connection. A message without an acknowledgement gets an
// error; it may still be stored. The publisher sets Reply; the caller must not.
func (p *Publisher) Publish(ctx context.Context, msgs []*nats.Msg, timeout time.Duration) []Result {
	p.publishing.Lock()
	defer p.publishing.Unlock()
	results, _ := p.publish(ctx, msgs, timeout, false)
	return results
}

// PublishInOrder is Publish to a stream with one replica, which answers messages in their order. Therefore all messages
// share one reply subject: separate subjects cost the server 2 µs per message. If an acknowledgement is missing, all
// messages of the page get an error.
//
// A stream may refuse a message before it answers an earlier message. So a refusal does not identify its message. If
// the stream has answered all messages but refused some, PublishInOrder returns false and no results.
func (p *Publisher) PublishInOrder(
	ctx context.Context, msgs []*nats.Msg, timeout time.Duration,
) (results []Result, ok bool) {
	p.publishing.Lock()
	defer p.publishing.Unlock()
	results, answers := p.publish(ctx, msgs, timeout, true)
	if !slices.ContainsFunc(answers, func(r Result) bool { return r.Err != nil }) {
		return results, true
	}
	if i := slices.IndexFunc(results, isMissing); i >= 0 {
		return slices.Repeat([]Result{{Err: results[i].Err}}, len(msgs)), true
	}
	return nil, false
}

// isMissing reports whether the answer of a message is missing.
func isMissing(r Result) bool { return errors.Is(r.Err, ErrNoAck) || errors.Is(r.Err, ErrDisconnected) }

// AwaitEarlier waits until the stream has stored or refused all earlier messages of this connection. It also covers
// other connections' messages that the server has already received. It publishes a message that the stream refuses: the
// stream answers in the order in which it receives messages, unless too many wait.
func (p *Publisher) AwaitEarlier(ctx context.Context, timeout time.Duration) error {
	m := nats.NewMsg(PrefixOf(p.nc).subject(prefix + ".barrier"))
	m.Header.Set(nats.ExpectedLastSeqHdr, strconv.FormatInt(math.MaxInt64, 10))
	err := p.Publish(ctx, []*nats.Msg{m}, timeout)[0].Err
	if refused := (*RefusedError)(nil); errors.As(err, &refused) && refused.Code != codeTooManyRequests {
		return nil
	}
	return err
}

// publish publishes messages with one shared reply subject, or with one for each. It also returns the answers to the
// shared subject.
func (p *Publisher) publish(
	ctx context.Context, msgs []*nats.Msg, timeout time.Duration, inOrder bool,
) (results, answers []Result) {
	p.drainStatus()
	now := p.begin(len(msgs), inOrder)
	var replies []string
	if !inOrder {
		replies = p.replies(now.id, len(msgs))
	}
	shared := p.prefix + now.id
	for i, m := range msgs {
		m.Reply = shared
		if !inOrder {
			m.Reply = replies[i]
		}
		err := p.nc.PublishMsg(m)
		if errors.Is(err, nats.ErrMaxPayload) {
			p.settle(now, i, Result{Err: &RefusedError{Code: codeMessageTooLarge, Text: err.Error()}})
		} else if err != nil {
			p.abandon(now, i, fmt.Errorf("%w: %w", ErrDisconnected, err))
			break // the rest must not overtake it on a new connection
		}
	}
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	why := ErrNoAck
	select {
	case <-now.done:
	case <-deadline.C:
	case <-ctx.Done():
		why = fmt.Errorf("%w: %w", ErrNoAck, ctx.Err())
	case <-p.status:
		why = ErrDisconnected
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.page = nil // no answer changes the results any more
	if now.missing == 0 {
		now.assign()
	}
	for i, got := range now.got {
		if !got {
			now.results[i].Err = why
		}
	}
	return now.results, now.answers
}

// replies returns the reply subjects of n messages of a page. They share one string.
func (p *Publisher) replies(page string, n int) []string {
	const digits = 4 // MaxPage has as many
	text := make([]byte, 0, n*(len(p.prefix)+len(page)+1+digits))
	ends := make([]int, n)
	for i := range n {
		text = append(append(append(text, p.prefix...), page...), '.')
		text = strconv.AppendInt(text, int64(i), 10)
		ends[i] = len(text)
	}
	all, start := string(text), 0
	replies := make([]string, n)
	for i, end := range ends {
		replies[i], start = all[start:end], end
	}
	return replies
}

func (p *Publisher) begin(n int, inOrder bool) *page {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pages++
	p.page = &page{id: strconv.FormatUint(p.pages, 36), results: make([]Result, n), got: make([]bool, n), missing: n,
		done: make(chan struct{})}
	if inOrder {
		p.page.answers = make([]Result, 0, n)
	}
	if n == 0 {
		close(p.page.done)
	}
	return p.page
}

// drainStatus discards the status changes of the connection before this page.
func (p *Publisher) drainStatus() {
	for {
		select {
		case _, open := <-p.status:
			if !open {
				return
			}
		default:
			return
		}
	}
}

// acknowledged records one acknowledgement. It ignores acknowledgements of an abandoned page, whose messages are
// published and acknowledged again. It ignores a message that requests an answer: a consumer has delivered it.
func (p *Publisher) acknowledged(m *nats.Msg) {
	if m.Reply != "" {
		return
	}
	id, number, isNumbered := strings.Cut(m.Subject[len(p.prefix):], ".")
	i := 0
	if isNumbered {
		var err error
		if i, err = strconv.Atoi(number); err != nil {
			return
		}
	}
	result := p.acks.parse(m.Header, m.Data)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch now := p.page; {
	case now == nil || now.id != id || i < 0 || i >= len(now.results):
	case isNumbered:
		now.settle(i, result)
	case now.missing > 0:
		now.answers = append(now.answers, result)
		now.answered()
	}
}

// abandon sets the error of message i and of all later messages, which were not sent.
func (p *Publisher) abandon(now *page, i int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for ; i < len(now.results); i++ {
		now.settle(i, Result{Err: err})
	}
}

func (p *Publisher) settle(now *page, i int, r Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now.settle(i, r)
}

func (now *page) settle(i int, r Result) {
	if now.got[i] {
		return
	}
	now.got[i], now.results[i] = true, r
	now.answered()
}

func (now *page) answered() {
	if now.missing--; now.missing == 0 {
		close(now.done)
	}
}

// assign assigns the answers to the whole page to its messages, in their order.
func (now *page) assign() {
	answers := now.answers
	for i, got := range now.got {
		if !got && len(answers) > 0 {
			now.got[i], now.results[i], answers = true, answers[0], answers[1:]
		}
	}
}
