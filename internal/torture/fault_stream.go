package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/stream"
)

var streamFaults = []fault{
	{
		name: "wipe", what: "the stream is deleted", on: "nats", most: time.Second,
		begin: func(ctx context.Context, s *stage, _ *rand.Rand) (act, error) {
			err := s.js.DeleteStream(ctx, stream.Name)
			if errors.Is(err, jetstream.ErrStreamNotFound) { // the answer to an earlier try was lost
				err = nil
			}
			return act{target: stream.Name}, err
		},
	},
	{
		name: "wipe-disks", what: "all NATS servers lose their disks", on: "nats",
		least: 100 * time.Millisecond, most: 2 * time.Second,
		begin: func(_ context.Context, s *stage, _ *rand.Rand) (act, error) {
			for _, p := range s.nodes {
				if err := p.kill(); err != nil {
					return act{}, err
				}
				if err := os.RemoveAll(p.config.Node.Store); err != nil {
					return act{}, err
				}
			}
			return act{"all nodes", func(ctx context.Context) error {
				for _, p := range s.nodes {
					if err := p.start(); err != nil {
						return err
					}
				}
				return s.awaitNATS(ctx)
			}}, nil
		},
	},
	{
		name: "truncate", what: "the older half of the stream, or all of it, is purged by hand", on: "nats",
		most: time.Second, cost: losesSubscriptions, begin: truncate,
	},
	{
		name: "fill", what: "the limit of the stream is lowered to its size: it is full", on: "nats",
		least: 2 * time.Second, most: 8 * time.Second, cost: losesSubscriptions,
		begin: func(ctx context.Context, s *stage, _ *rand.Rand) (act, error) {
			var full *jetstream.StreamInfo
			err := s.limit(ctx, func(i *jetstream.StreamInfo) int64 {
				full = i
				return int64(i.State.Bytes)*21/20 + 50_000
			})
			if err != nil {
				return act{}, err // it is tried again
			}
			return act{stream.Name, func(ctx context.Context) error { return s.unlimit(ctx, full) }}, nil
		},
	},
	{
		name: "stepdown", what: "the leader of the stream steps down every 200 ms", on: "nats",
		least: time.Second, most: 5 * time.Second,
		begin: func(ctx context.Context, s *stage, _ *rand.Rand) (act, error) {
			return act{stream.Name, repeat(ctx, 200*time.Millisecond, func(ctx context.Context) {
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				const request = "$JS.API.STREAM.LEADER.STEPDOWN." + stream.Name
				_, _ = s.nc.RequestWithContext(ctx, request, nil) // or the next one
			})}, nil
		},
	},
}

func truncate(ctx context.Context, s *stage, random *rand.Rand) (act, error) {
	st, err := s.js.Stream(ctx, stream.Name)
	if err != nil {
		return act{}, err
	}
	state := st.CachedInfo().State
	upTo := state.LastSeq + 1
	if random.IntN(2) == 0 {
		upTo = (state.FirstSeq + state.LastSeq) / 2
	}
	return act{target: stream.Name}, st.Purge(ctx, jetstream.WithPurgeSequence(max(upTo, 2)))
}

// limit changes the limit of the stream, if it exists.
func (s *stage) limit(ctx context.Context, bytes func(*jetstream.StreamInfo) int64) error {
	st, err := s.js.Stream(ctx, stream.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil // the relay makes it again
	}
	if err != nil {
		return err
	}
	c := st.CachedInfo().Config
	c.MaxBytes = bytes(st.CachedInfo())
	_, err = s.js.UpdateStream(ctx, c)
	return err
}

// unlimit ends the fault fill. full is the stream before its limit was lowered, nil if there was none. If another
// process has raised the limit since then, the fault had no effect: the stream was not full.
func (s *stage) unlimit(ctx context.Context, full *jetstream.StreamInfo) error {
	isRead, isRaised := false, false
	err := persist(ctx, func(ctx context.Context) error {
		return s.limit(ctx, func(i *jetstream.StreamInfo) int64 {
			if !isRead && full != nil && i.Created.Equal(full.Created) {
				isRaised = i.Config.MaxBytes >= streamBytes
			}
			isRead = true
			return streamBytes
		})
	})
	if isRaised {
		err = errors.Join(err, errors.New("the limit of the stream was raised meanwhile, so the stream was not full"))
	}
	return err
}
