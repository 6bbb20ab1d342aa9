package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/ledger"
)

// EventOptions choose the events of a stream.
type EventOptions struct {
	// StartAfter is the position of an event: the stream begins after it. 0 is the beginning of the ledger. Default:
	// the stream begins with the events that are committed after it was opened.
	StartAfter *ledger.Position
	// Kinds are kinds, or the beginnings of kinds as in coupon.*. Default: all.
	Kinds []string
	// Types are types of events. Default: all.
	Types []ledger.EventType
	// Silence is the time without a byte of the server after which the connection is given up. The server sends
	// something every 15 s. Default: 45 s.
	Silence time.Duration
}

// Events returns the events as they are committed, in order for each task, until ctx is done. o may be nil.
//
// It reopens a lost connection with back-off, after the last event that it returned. No event is missed; events of
// about the last second may be repeated. Key and Version identify an event. To continue in another process, store the
// Position of the last event and pass it as StartAfter.
//
// The sequence ends with the error of ctx, or with a [*Problem] that a retry cannot change: "unauthenticated", or
// "invalid" if StartAfter is not the position of an event. Each use of the sequence is a separate stream; several may
// run at once.
func (c *Client) Events(ctx context.Context, o *EventOptions) iter.Seq2[ledger.Event, error] {
	if o == nil {
		o = &EventOptions{}
	}
	return func(yield func(ledger.Event, error) bool) {
		s := eventStream{client: c, options: *o, yield: yield}
		if s.options.Silence <= 0 {
			s.options.Silence = 45 * time.Second
		}
		if o.StartAfter != nil {
			s.last = strconv.FormatInt(int64(*o.StartAfter), 10)
		}
		for failures := 0; ; failures++ {
			s.isAlive = false
			delay, err := s.connect(ctx)
			if errors.Is(err, errStopped) {
				return
			}
			if ctx.Err() != nil {
				err, delay = ctx.Err(), -1
			}
			if delay < 0 {
				yield(ledger.Event{}, err)
				return
			}
			if s.isAlive {
				failures = 0
			}
			backoff := time.Duration(rand.Float64() * float64(100*time.Millisecond<<min(failures, 8)))
			if loop.Sleep(ctx, max(delay, backoff)) != nil {
				yield(ledger.Event{}, ctx.Err())
				return
			}
		}
	}
}

// errStopped means that the caller has ended the sequence.
var errStopped = errors.New("the caller has stopped")

// eventStream is one use of a sequence of events.
type eventStream struct {
	client  *Client
	options EventOptions
	yield   func(ledger.Event, error) bool
	last    string // the id after which the stream continues; "": none was received
	isAlive bool   // whether the connection was accepted
}

// connect opens the stream and passes its events on until it ends. It returns when it may be opened again, see
// [Client.once], and why it has ended.
func (s *eventStream) connect(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silent := time.AfterFunc(s.options.Silence, cancel)
	defer silent.Stop()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.client.config.URL+"/v1/events?"+s.query(), nil)
	if err != nil {
		return -1, err
	}
	r.Header.Set("Accept", "text/event-stream")
	if s.last != "" {
		r.Header.Set("Last-Event-ID", s.last)
	}
	if s.client.config.Token != "" {
		r.Header.Set("Authorization", "Bearer "+s.client.config.Token)
	}
	response, err := s.client.config.HTTP.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
		if err != nil {
			return 0, err
		}
		return failure(response, answer)
	}
	s.isAlive = true
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxAnswer)
	err = s.read(lines, silent)
	if errors.Is(err, errMalformed) || errors.Is(err, bufio.ErrTooLong) {
		return -1, err
	}
	return 0, err
}

func (s *eventStream) query() string {
	values := url.Values{"kind": s.options.Kinds}
	for _, t := range s.options.Types {
		values.Add("type", string(t))
	}
	return values.Encode()
}

var errMalformed = errors.New("malformed event")

// read passes the events of a connection on. It drops an event that is cut off. Time that the caller takes does not
// count as silence of the server.
func (s *eventStream) read(lines *bufio.Scanner, silent *time.Timer) error {
	var id string
	var data []byte
	for lines.Scan() {
		silent.Reset(s.options.Silence)
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case name == "id":
			id = value
		case name == "data":
			data = append(data, value...)
		case lines.Text() != "":
		case len(data) == 0:
			if id != "" {
				s.last = id
			}
		default:
			var e ledger.Event
			if err := json.Unmarshal(data, &e); err != nil {
				return fmt.Errorf("%w %s: %w", errMalformed, id, err)
			}
			data = data[:0]
			silent.Stop()
			if !s.yield(e, nil) {
				return errStopped
			}
			s.last = id
			silent.Reset(s.options.Silence)
		}
	}
	return lines.Err()
}
