package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
)

var talkFaults = []fault{
	{
		name: "repeat", what: "old messages of workers and dispatchers are sent again, in any order", on: "nats",
		least: 2 * time.Second, most: 8 * time.Second,
		begin: func(_ context.Context, s *stage, random *rand.Rand) (act, error) { return s.talk.repeat(s.nc, random) },
	},
}

const (
	repeatedHeader = "Repeated"
	// maxTalk is the number of messages that are remembered.
	maxTalk = 10_000
)

// talk is the messages of workers and dispatchers that were recorded.
type talk struct {
	mu       sync.Mutex
	random   *rand.Rand
	messages []*nats.Msg
}

// repeat sends a recorded message again after each message.
func (t *talk) repeat(nc *nats.Conn, random *rand.Rand) (act, error) {
	t.mu.Lock()
	t.random = rand.New(rand.NewPCG(random.Uint64(), 0)) //nolint:gosec // a seed repeats it
	t.mu.Unlock()
	listen := func(m *nats.Msg) {
		if m.Header.Get(repeatedHeader) == "" {
			_ = nc.PublishMsg(t.earlier(m)) // or after the next one
		}
	}
	var all []*nats.Subscription
	end := func(context.Context) (err error) {
		for _, s := range all {
			err = errors.Join(err, s.Unsubscribe())
		}
		return err
	}
	for _, subject := range []string{stream.None.OfferSubject("*"), stream.None.AllReports()} {
		s, err := nc.Subscribe(subject, listen)
		if err != nil {
			return act{}, errors.Join(err, end(context.Background()))
		}
		all = append(all, s)
	}
	return act{"workers and dispatchers", end}, nil
}

// earlier remembers a message and returns it or an earlier one.
func (t *talk) earlier(m *nats.Msg) *nats.Msg {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.messages) < maxTalk {
		t.messages = append(t.messages, m)
	} else {
		t.messages[t.random.IntN(maxTalk)] = m
	}
	old := t.messages[t.random.IntN(len(t.messages))]
	again := nats.NewMsg(old.Subject)
	again.Data = old.Data
	again.Header.Set(repeatedHeader, "true")
	return again
}
