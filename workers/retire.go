package workers

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// InUseError reports that shards cannot be retired because a live worker receives their tasks.
type InUseError struct {
	Kind   ledger.Kind
	Shards ledger.ShardSet
	Worker string
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("kind %s: worker %s receives tasks of shards %s: stop it first", e.Kind, e.Worker, e.Shards)
}

// ErrUnknownConsumer reports that a kind has no consumers for exactly these shards.
var ErrUnknownConsumer = errors.New("no such consumers")

// Retire removes the consumers of a kind for exactly these shards, after their last worker has ended, so that later
// workers may have other sets of shards. No task is lost: the next worker on the shards receives all their tasks that
// are in the stream, and skips the finished ones. It returns an [*InUseError] if a live worker is on the shards, or
// [ErrUnknownConsumer].
func Retire(ctx context.Context, db ledger.DB, nc *nats.Conn, kind ledger.Kind, shards ledger.ShardSet) error {
	if err := kind.Validate(); err != nil {
		return fmt.Errorf("retire: %w", err)
	}
	live, err := ReadWorkers(ctx, db)
	if err != nil {
		return fmt.Errorf("retire: %w", err)
	}
	for _, w := range live {
		for _, k := range w.Kinds {
			if w.Alive && k.Kind == kind && (k.Shards == shards || k.Divided && k.Shards.Overlaps(shards)) {
				return &InUseError{Kind: kind, Shards: shards, Worker: w.ID}
			}
		}
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("retire: %w", err)
	}
	removed := 0
	for _, c := range stream.Consumers(kind, shards) {
		found, err := js.Consumer(ctx, stream.Name, c.Durable)
		if err == nil {
			if _, _, ok := stream.ServedBy(found.CachedInfo().Config); !ok {
				return fmt.Errorf("retire: %w", &foreignConsumerError{durable: c.Durable})
			}
		}
		switch err := js.DeleteConsumer(ctx, stream.Name, c.Durable); {
		case err == nil:
			removed++
		case !errors.Is(err, jetstream.ErrConsumerNotFound) && !errors.Is(err, jetstream.ErrStreamNotFound):
			return fmt.Errorf("retire: delete consumer %s: %w", c.Durable, err)
		}
	}
	if removed == 0 {
		return fmt.Errorf("retire shards %s of kind %s: %w", shards, kind, ErrUnknownConsumer)
	}
	return nil
}
