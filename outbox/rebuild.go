package outbox

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
)

//go:embed sql/rebuilt.sql
var rebuiltSQL string

// StreamDetail is the state of the stream with its consumers.
type StreamDetail struct {
	StreamStatus
	Ledger  string `json:"ledger"`           // the installation that owns the stream
	IsOwn   bool   `json:"is_own"`           // it is that of the database
	Workers int    `json:"worker_consumers"` // workers create them again
	// Subscribers has the durable consumers of others, by name.
	Subscribers []jetstream.ConsumerConfig `json:"subscribers"`
}

// ReadStream returns the state of the stream, nil if it does not exist. config is the wanted configuration.
func ReadStream(
	ctx context.Context, db ledger.DB, js jetstream.JetStream, config StreamConfig,
) (*StreamDetail, error) {
	var installation string
	if _, err := queryRow(ctx, db, installationSQL, nil, &installation); err != nil {
		return nil, pgerr.Explain("read the installation", err)
	}
	found, err := js.Stream(ctx, stream.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the state of stream %s: %w", stream.Name, explainRequest(js, err))
	}
	d := &StreamDetail{Subscribers: []jetstream.ConsumerConfig{}}
	d.StreamStatus = newStreamStatus(found.CachedInfo(), config, installation)
	d.Server = js.Conn().ConnectedServerVersion()
	d.Ledger = stream.Owner(found.CachedInfo())
	d.IsOwn = stream.CheckOwner(found.CachedInfo(), installation) == nil
	consumers := found.ListConsumers(ctx)
	for c := range consumers.Info() {
		if _, _, ok := stream.ServedBy(c.Config); ok {
			d.Workers++
		} else if c.Config.Durable != "" {
			d.Subscribers = append(d.Subscribers, renewed(c.Config))
		}
	}
	if err := consumers.Err(); err != nil {
		return nil, fmt.Errorf("list consumers of stream %s: %w", stream.Name, explainRequest(js, err))
	}
	slices.SortFunc(d.Subscribers, func(a, b jetstream.ConsumerConfig) int {
		return strings.Compare(a.Durable, b.Durable)
	})
	return d, nil
}

// renewed returns the configuration with which a consumer is made again on a new stream: from its first message on if
// the consumer began at a sequence, which has no meaning there.
func renewed(c jetstream.ConsumerConfig) jetstream.ConsumerConfig {
	if c.OptStartSeq > 0 {
		c.DeliverPolicy, c.OptStartSeq = jetstream.DeliverAllPolicy, 0
	}
	c.Metadata = maps.Clone(c.Metadata)
	maps.DeleteFunc(c.Metadata, func(name, _ string) bool { return strings.HasPrefix(name, "_nats.") }) // the server's
	return c
}

// explainRequest returns the error of a request to JetStream. A server does not answer a request that it does not
// permit: the reason is an error of the connection.
func explainRequest(js jetstream.JetStream, err error) error {
	if last := js.Conn().LastError(); isUnanswered(err) && errors.Is(last, nats.ErrPermissionViolation) {
		return last
	}
	return err
}

// isUnanswered reports whether a request has no answer.
func isUnanswered(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout)
}

// RebuildOptions are the options of [RebuildStream]. Nil is the default of every field.
type RebuildOptions struct {
	Actor   string // Default: the database's session_user.
	Reason  string
	Foreign bool // delete the stream also if it belongs to another ledger. Default: return an error.
}

// RebuildStream deletes the stream. It records the act before, and a failure after it. The relay then creates the
// stream with its configuration, publishes again what was on it and what is unfinished, and records the success:
// [AwaitStream] waits until everything is published. Workers create their consumers again, and tasks that have ended do
// not run. Durable subscribers lose their consumers: [ReadStream] returns the configurations with which to make them
// again.
//
// It does nothing for a relay that would refuse to continue because of its cursor: [*feed.OriginError]. Other errors:
// [*ForeignStreamError], [*ledger.InvalidError], [ledger.ErrNotMigrated].
func RebuildStream(ctx context.Context, db DB, js jetstream.JetStream, o *RebuildOptions) error {
	if o == nil {
		o = &RebuildOptions{}
	}
	if err := feed.CheckOrigin(ctx, db, reader); err != nil {
		return err
	}
	act := operation.Operation{Action: operation.RebuildStream, Actor: o.Actor, Reason: o.Reason}
	var installation string
	if _, err := queryRow(ctx, db, installationSQL, nil, &installation); err != nil {
		return pgerr.Explain("read the installation", err)
	}
	found, err := js.Stream(ctx, stream.Name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
	case err != nil:
		return fmt.Errorf("read the state of stream %s: %w", stream.Name, explainRequest(js, err))
	default:
		if err := stream.CheckOwner(found.CachedInfo(), installation); err != nil && !o.Foreign {
			return err
		}
		act.Detail = map[string]string{
			"ledger": stream.Owner(found.CachedInfo()), "created": createdAt(found.CachedInfo()),
		}
	}
	key, err := operation.Begin(ctx, db, act)
	if err != nil {
		return err
	}
	err = js.DeleteStream(ctx, stream.Name)
	if err == nil || errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	err = fmt.Errorf("delete stream %s: %w", stream.Name, explainRequest(js, err))
	return errors.Join(err, operation.Fail(ctx, db, key, act.Actor, err))
}

// endRebuilds ends the records of rebuilds of the stream that this session has done: it owes nothing, the stream is
// another one than was to be deleted, and everything before the record is published.
func (s *session) endRebuilds(ctx context.Context) error {
	if !s.relay.mayEndRebuilds || s.mark.Owed != nil {
		return nil
	}
	db := s.relay.config.DB
	open, err := operation.ReadOpen(ctx, db, operation.RebuildStream)
	if err != nil {
		return err
	}
	s.relay.mayEndRebuilds = false
	reached := max(s.published.Seen.Top, s.published.After)
	for _, o := range open {
		switch {
		case o.Detail["created"] == s.mark.Created: // it is not deleted
		case o.Position > reached:
			s.relay.mayEndRebuilds = true
		default:
			if err := o.Succeed(ctx, db, reader); err != nil {
				return err
			}
		}
	}
	return nil
}

// NoRelayError is the error of a stream that no relay publishes on.
type NoRelayError struct {
	Note string // why the last relay cannot work; "": unknown
}

func (e *NoRelayError) Error() string {
	if e.Note != "" {
		return "no relay works: " + e.Note
	}
	return "no relay works: start one: taskledger serve"
}

const (
	// relayPatience is how long AwaitStream waits for a relay. serve starts one that has refused every 5 s.
	relayPatience = 20 * time.Second
	// streamPollEvery is the time between two looks of AwaitStream.
	streamPollEvery = 100 * time.Millisecond
)

// AwaitStream waits until a relay has published on the present stream all events that are committed now, except those
// of withheld kinds. It calls progress, unless it is nil, with the position that the relay has reached and the last
// one. It returns a [*NoRelayError] if no relay works for 20 s.
func AwaitStream(
	ctx context.Context, db ledger.DB, js jetstream.JetStream, progress func(done, total ledger.Position),
) error {
	var last ledger.Position
	seen := time.Now() // when a relay was last seen at work
	for {
		at, err := readRebuilt(ctx, db, js)
		if err != nil {
			return err
		}
		if last == 0 {
			last = at.last
		}
		if at.isReady && at.reached >= last {
			return nil
		}
		var s Status
		if err := s.readLease(ctx, db); err != nil {
			return err
		}
		switch {
		case s.Relay != nil && s.Relay.Alive:
			seen = time.Now()
		case time.Since(seen) > relayPatience && s.Relay != nil:
			return &NoRelayError{Note: s.Relay.Note}
		case time.Since(seen) > relayPatience:
			return &NoRelayError{}
		}
		if progress != nil && at.isOnStream {
			progress(min(at.reached, last), last)
		}
		if err := loop.Sleep(ctx, streamPollEvery); err != nil {
			return err
		}
	}
}

// rebuilt is how far a relay has published on the present stream.
type rebuilt struct {
	isOnStream bool            // the relay publishes on the present stream
	isReady    bool            // and owes no messages
	reached    ledger.Position // the position up to which it has published
	last       ledger.Position // of the ledger
}

func readRebuilt(ctx context.Context, db ledger.DB, js jetstream.JetStream) (r rebuilt, err error) {
	var text *string
	var top *int64
	if _, err := queryRow(ctx, db, rebuiltSQL, nil, &r.last, &text, &top); err != nil {
		return r, pgerr.Explain("read the relay's cursor", err)
	}
	found, err := js.Stream(ctx, stream.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("read the state of stream %s: %w", stream.Name, err)
	}
	if text == nil || top == nil {
		return r, nil
	}
	m, _, err := parseMark([]byte(*text))
	if err != nil {
		return r, err
	}
	r.isOnStream = m.Created == createdAt(found.CachedInfo())
	r.isReady, r.reached = r.isOnStream && m.Owed == nil, ledger.Position(*top)
	if m.Owed != nil {
		r.reached = max(m.Owed.Events.Seen.Top, m.Owed.Events.After)
	}
	return r, nil
}
