package relays

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// StreamDetail is the state of the stream with its consumers.
type StreamDetail struct {
	StreamStatus
	Ledger string `json:"ledger"` // the installation that owns the stream
	IsOwn  bool   `json:"is_own"` // it is the database's own
	// Subscribers lists the durable consumers, by name.
	Subscribers []jetstream.ConsumerConfig `json:"subscribers"`
}

// ReadStream returns the state of the stream, nil if it does not exist. config is the wanted configuration. It returns
// [ErrStreamOff], [ledger.ErrNotMigrated], or the error of the request.
func ReadStream(
	ctx context.Context, db ledger.DB, js jetstream.JetStream, config stream.Config,
) (*StreamDetail, error) {
	if err := checkOn(ctx, db); err != nil {
		return nil, err
	}
	installation, err := Installation(ctx, db)
	if err != nil {
		return nil, err
	}
	name := stream.PrefixOf(js.Conn()).Stream()
	found, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the state of stream %s: %w", name, ExplainRequest(js, err))
	}
	d := &StreamDetail{Subscribers: []jetstream.ConsumerConfig{}}
	d.StreamStatus = newStreamStatus(js, found.CachedInfo(), config, installation)
	d.Server = js.Conn().ConnectedServerVersion()
	d.Ledger = stream.Owner(found.CachedInfo())
	d.IsOwn = stream.CheckOwner(found.CachedInfo(), installation) == nil
	consumers := found.ListConsumers(ctx)
	for c := range consumers.Info() {
		if c.Config.Durable != "" {
			d.Subscribers = append(d.Subscribers, renewed(c.Config))
		}
	}
	if err := consumers.Err(); err != nil {
		return nil, fmt.Errorf("list consumers of stream %s: %w", name, ExplainRequest(js, err))
	}
	slices.SortFunc(d.Subscribers, func(a, b jetstream.ConsumerConfig) int {
		return strings.Compare(a.Durable, b.Durable)
	})
	return d, nil
}

// renewed returns the configuration with which a consumer is recreated on a new stream. A sequence is meaningless
// there, so a consumer that began at a sequence begins at the first message.
func renewed(c jetstream.ConsumerConfig) jetstream.ConsumerConfig {
	if c.OptStartSeq > 0 {
		c.DeliverPolicy, c.OptStartSeq = jetstream.DeliverAllPolicy, 0
	}
	c.Metadata = maps.Clone(c.Metadata)
	maps.DeleteFunc(c.Metadata, func(name, _ string) bool { return strings.HasPrefix(name, "_nats.") }) // the server's
	return c
}

// ExplainRequest returns the error of a request to JetStream. A server does not answer a request that it does not
// permit: the reason is an error of the connection.
func ExplainRequest(js jetstream.JetStream, err error) error {
	if last := js.Conn().LastError(); IsUnanswered(err) && errors.Is(last, nats.ErrPermissionViolation) {
		return last
	}
	return err
}

// IsUnanswered reports whether a request was not answered.
func IsUnanswered(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout)
}

// RebuildOptions are the options of [RebuildStream]. Nil is the default of every field.
type RebuildOptions struct {
	Actor   string // Default: the database's session_user.
	Reason  string
	Foreign bool // delete the stream even if it belongs to another ledger. Default: return an error.
}

// RebuildStream deletes the stream, and records the act. The relay then creates the stream with its configuration, and
// publishes the last events on it again, see package outbox. Durable consumers are lost: [ReadStream] returns the
// configurations with which to make them again. Tasks do not change.
//
// It does nothing if the relay would refuse to continue because of its cursor, and returns an error for which IsRefusal
// of package ledger/feed is true. Other errors: [ErrStreamOff], [*stream.ForeignError], [*ledger.InvalidError],
// [ledger.ErrNotMigrated].
func RebuildStream(ctx context.Context, db DB, js jetstream.JetStream, o *RebuildOptions) error {
	if o == nil {
		o = &RebuildOptions{}
	}
	if err := checkOn(ctx, db); err != nil {
		return err
	}
	if err := feed.CheckOrigin(ctx, db, cursor); err != nil {
		return err
	}
	act := operation.Operation{Action: operation.RebuildStream, Actor: o.Actor, Reason: o.Reason}
	installation, err := Installation(ctx, db)
	if err != nil {
		return err
	}
	name := stream.PrefixOf(js.Conn()).Stream()
	found, err := js.Stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
	case err != nil:
		return fmt.Errorf("read the state of stream %s: %w", name, ExplainRequest(js, err))
	default:
		if err := stream.CheckOwner(found.CachedInfo(), installation); err != nil && !o.Foreign {
			return err
		}
		act.Detail = map[string]string{
			"ledger":  stream.Owner(found.CachedInfo()),
			"created": found.CachedInfo().Created.UTC().Format(time.RFC3339Nano),
		}
	}
	return operation.Around(ctx, db, act, func(ctx context.Context) error {
		err := js.DeleteStream(ctx, name)
		if err == nil || errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		return fmt.Errorf("delete stream %s: %w", name, ExplainRequest(js, err))
	})
}
