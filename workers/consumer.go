package workers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"golang.org/x/sync/errgroup"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

const (
	minPause = 50 * time.Millisecond

	// maxConsumerRequests bounds the requests about consumers that a pool has open at a time: a server drops all of
	// them if there are too many.
	maxConsumerRequests = 32

	// expiriesPerSecond bounds the requests of all consumers of a pool that expire.
	expiriesPerSecond = 200

	// minAckPending is the least MaxAckPending of a consumer, for all its workers together. It is above everything
	// that they can have in flight, since delayed naks count too.
	minAckPending = 50_000
)

// serveUnpaused receives the messages of the kind's tasks in these shards until ctx is done. It returns an error only
// if retrying is useless.
func (k *kind) serveUnpaused(ctx context.Context, shards ledger.ShardSet) error {
	k.pairs.Add(1)
	defer k.pairs.Add(-1)
	k.received.Add(shards, 1)
	defer k.received.Add(shards, -1)
	both, ctx := errgroup.WithContext(ctx)
	made := make(chan struct{})
	for i, c := range stream.Consumers(k.Name, shards) {
		both.Go(func() error {
			if i == 0 {
				return k.consume(ctx, shards, c.Durable, func() { close(made) })
			}
			select {
			case <-made: // all consumers
				return k.consume(ctx, shards, c.Durable, nil)
			case <-ctx.Done():
				return nil
			}
		})
	}
	return both.Wait()
}

// consume receives the messages of one consumer until ctx is done. It retries while the consumer or the stream is
// missing, and returns an error only if retrying is useless. It calls made once all consumers exist; nil means that
// they do.
func (k *kind) consume(ctx context.Context, shards ledger.ShardSet, durable string, made func()) error {
	delay := loop.Backoff{Max: maxRetryDelay, Exact: true}
	ensured := made == nil
	for ctx.Err() == nil {
		var err error
		if !ensured {
			err = k.ensureConsumers(ctx, shards)
		}
		ensured = false
		if errors.Is(err, errConsumerRefused) || k.pool.config.NATS.IsClosed() && ctx.Err() == nil {
			return stream.WithRefusal(k.pool.config.NATS, err)
		}
		if err == nil {
			if made != nil {
				made()
				made = nil
			}
			begun := time.Now()
			err = k.receive(ctx, durable)
			if time.Since(begun) > maxRetryDelay {
				delay.Reset()
			}
		}
		if err != nil && ctx.Err() == nil {
			retryIn := delay.Next()
			k.Warn(k.pool.config.Logger, "cannot receive messages",
				"kind", string(k.Name), "error", stream.WithRefusal(k.pool.config.NATS, err), "retry_in", retryIn)
			_ = loop.Sleep(ctx, retryIn)
		}
	}
	return nil
}

// consumerConfig returns the configuration of a consumer that all workers of the kind share. It has no BackOff, which
// would replace AckWait, and no MaxDeliver, which would leave messages behind: the ledger alone limits how often a
// task is tried.
func (k *kind) consumerConfig(c stream.Consumer) jetstream.ConsumerConfig {
	config := jetstream.ConsumerConfig{
		Durable:        c.Durable,
		Description:    "workers of " + string(k.Name),
		FilterSubjects: c.Filters,
		DeliverPolicy:  jetstream.DeliverAllPolicy,
		AckPolicy:      jetstream.AckExplicitPolicy,
		AckWait:        k.pool.config.AckWait,
		MaxDeliver:     -1,
		MaxAckPending:  maxAckPending(k.slots()),
	}
	if len(c.Filters) == 1 { // the server has a cheaper path for this field
		config.FilterSubject, config.FilterSubjects = c.Filters[0], nil
	}
	return config
}

// maxAckPending returns how many unacknowledged messages the kind's consumers may have.
func maxAckPending(slots int) int { return max(minAckPending, 20*slots) }

// ensureConsumers creates the kind's missing durable consumers for these shards, in their order, unless they would
// overlap others.
func (k *kind) ensureConsumers(ctx context.Context, shards ledger.ShardSet) error {
	if !k.pool.config.NATS.IsConnected() {
		return nats.ErrDisconnected
	}
	ctx, cancel := stream.WhileConnected(ctx, k.pool.config.NATS)
	defer cancel()
	if err := k.checkOverlap(ctx, shards); err != nil {
		return err
	}
	var made []string
	for _, c := range stream.Consumers(k.Name, shards) {
		isNew, err := k.ensureConsumer(ctx, k.consumerConfig(c))
		if err != nil {
			return err
		}
		if isNew {
			made = append(made, c.Durable)
		}
	}
	if made == nil {
		return nil
	}
	err := k.checkOverlap(ctx, shards) // including consumers created meanwhile
	if errors.Is(err, errConsumerRefused) {
		k.deleteConsumers(made)
	}
	return err
}

// deleteConsumers deletes consumers that this worker has just created.
func (k *kind) deleteConsumers(durables []string) {
	ctx, cancel := k.Operation()
	defer cancel()
	for _, durable := range durables {
		if err := k.pool.js.DeleteConsumer(ctx, stream.Name, durable); err != nil {
			k.Logger.WarnContext(ctx, "cannot delete the refused consumer", "consumer", durable, "error", err)
		}
	}
}

// ensureConsumer creates a durable consumer if it is missing, and reports whether it did. It updates the AckWait and
// MaxAckPending of one that exists, and nothing else.
func (k *kind) ensureConsumer(ctx context.Context, want jetstream.ConsumerConfig) (isNew bool, err error) {
	select {
	case k.pool.consumerRequests <- struct{}{}:
		defer func() { <-k.pool.consumerRequests }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	c, err := k.pool.js.Consumer(ctx, stream.Name, want.Durable)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		_, err = k.pool.js.CreateConsumer(ctx, stream.Name, want)
		if errors.Is(err, jetstream.ErrConsumerExists) {
			return false, fmt.Errorf(
				"create consumer %s: %w", want.Durable, err,
			) // another worker just created it: retry
		}
		isNew = err == nil
	case err == nil:
		found := c.CachedInfo().Config
		if _, _, ok := stream.ServedBy(found); !ok {
			return false, &foreignConsumerError{durable: want.Durable}
		}
		if found.AckWait == want.AckWait && found.MaxAckPending >= want.MaxAckPending {
			break
		}
		want.MaxAckPending = max(want.MaxAckPending, found.MaxAckPending)
		k.Logger.InfoContext(ctx, "consumer changed",
			"consumer", want.Durable, "ack_wait", want.AckWait, "max_ack_pending", want.MaxAckPending)
		_, err = k.pool.js.UpdateConsumer(ctx, stream.Name, want)
	}
	if stream.TooManyConsumers(err) {
		return false, fmt.Errorf(
			"%w: consumer %s: %w: nats stream edit %s --max-consumers 1000000, or raise the account's limit",
			errConsumerRefused, want.Durable, err, stream.Name)
	}
	var api jetstream.JetStreamError
	if errors.As(err, &api) && api.APIError() != nil && api.APIError().Code == 400 {
		return false, fmt.Errorf("%w: consumer %s: %w", errConsumerRefused, want.Durable, err)
	}
	if err != nil {
		return false, fmt.Errorf("consumer %s: %w", want.Durable, err)
	}
	return isNew, nil
}

// foreignConsumerError is the error of a consumer with the name of one of workers and other filters. The worker leaves
// it as it is, and tries again.
type foreignConsumerError struct{ durable string }

func (e *foreignConsumerError) Error() string {
	return fmt.Sprintf("consumer %s has filters that are not of workers, so it belongs to a subscriber: "+
		"give the subscriber's consumer another name, then: nats consumer rm %s %s", e.durable, stream.Name, e.durable)
}

// pullExpiry returns after which time the request to each consumer of the pool expires. The more consumers there are
// the longer it is, and the later a missing consumer is noticed.
func (p *Pool) pullExpiry() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	consumers := 2 * len(p.kinds) * max(1, p.config.ShardGroups)
	return max(stream.PullExpiry, time.Duration(consumers)*time.Second/expiriesPerSecond)
}
