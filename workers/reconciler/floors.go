package reconciler

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/relay.sql
	relaySQL string
	//go:embed sql/published.sql
	publishedSQL string
)

// The two consumers of a kind, in the order of stream.Consumers.
const (
	ofReleased = iota // of tasks that were made available again
	ofEnqueued        // of new tasks
)

// servedKind is a kind with consumers. It may have several pairs of consumers, for different shards; then the pair
// that is furthest behind counts for all, since one walk covers all tasks. One goroutine uses it.
type servedKind struct {
	name   ledger.Kind
	shards ledger.ShardSet   // those with consumers
	pairs  []ledger.ShardSet // the shards of each pair

	// By consumer:
	floors    [2]uint64    // messages up to this sequence are not delivered any more
	published [2]published // events whose messages are at or below the floor
}

// published is a set of events: those visible in a snapshot, all of which were recorded before a moment.
type published struct {
	snapshot string // "": no events
	before   time.Time
}

// readFloors returns the kinds with consumers and their floors, and the state of the stream.
func (r *Reconciler) readFloors(ctx context.Context) (kinds []*servedKind, info *jetstream.StreamInfo, err error) {
	s, err := r.js.Stream(ctx, stream.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read stream %s: %w", stream.Name, err)
	}
	info = s.CachedInfo() // older than the state of the consumers: a floor may count all that it holds as acknowledged
	consumers := make(map[string]*jetstream.ConsumerInfo)
	byName := make(map[ledger.Kind]*servedKind)
	lister := s.ListConsumers(ctx)
	for c := range lister.Info() {
		consumers[c.Name] = c
		if name, shards, ok := stream.ServedBy(c.Config); ok && stream.Durable(name, shards) == c.Name {
			k := byName[name]
			if k == nil {
				k = &servedKind{name: name, floors: [2]uint64{info.State.LastSeq, info.State.LastSeq}}
				byName[name], kinds = k, append(kinds, k)
			}
			k.shards |= shards
			k.pairs = append(k.pairs, shards)
		}
	}
	if err := lister.Err(); err != nil {
		return nil, nil, fmt.Errorf("list consumers: %w", err)
	}
	for _, k := range kinds {
		if err := k.readFloors(ctx, s, info, consumers); err != nil {
			return nil, nil, err
		}
	}
	return kinds, info, nil
}

// readFloors sets the floors of the kind.
func (k *servedKind) readFloors(
	ctx context.Context, s jetstream.Stream, info *jetstream.StreamInfo, consumers map[string]*jetstream.ConsumerInfo,
) error {
	for _, shards := range k.pairs {
		for i, want := range stream.Consumers(k.name, shards) {
			c := consumers[want.Durable]
			if c == nil {
				k.floors[i] = 0 // its messages wait until the consumer exists
				continue
			}
			sequence, err := floor(ctx, s, info, c, want.Filters)
			if err != nil {
				return err
			}
			k.floors[i] = min(k.floors[i], sequence)
		}
	}
	return nil
}

// floor returns the sequence up to which a consumer delivers nothing any more: the last one of the stream if it
// has acknowledged the last message on its subjects.
func floor(
	ctx context.Context, s jetstream.Stream, info *jetstream.StreamInfo, c *jetstream.ConsumerInfo, subjects []string,
) (uint64, error) {
	last := uint64(0)
	for _, subject := range subjects {
		m, err := s.GetLastMsgForSubject(ctx, subject)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("find the last message on %s: %w", subject, err)
		}
		last = max(last, m.Sequence)
	}
	if last <= c.AckFloor.Stream {
		return info.State.LastSeq, nil
	}
	return max(c.AckFloor.Stream, info.State.FirstSeq-1), nil
}

// readPublished sets, for each kind, which events were published at or below its floors. It reports false if
// the relay's cursor does not describe the stream as it is.
func (r *Reconciler) readPublished(ctx context.Context, kinds []*servedKind, info *jetstream.StreamInfo) (bool, error) {
	var created string
	var generation int64
	var isRepublishing bool
	err := r.config.DB.QueryRow(ctx, relaySQL).Scan(&created, &generation, &isRepublishing)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read the relay's cursor: %w", err)
	case isRepublishing, created != info.Created.UTC().Format(time.RFC3339Nano):
		return false, nil
	}
	var sequences, names, masks pgarray.Builder
	for _, k := range kinds {
		for _, sequence := range k.floors {
			sequences.AddInt(int64(sequence))
			names.Add(string(k.name))
			masks.AddInt(int64(k.shards))
		}
	}
	rows, err := r.config.DB.Query(ctx, publishedSQL, sequences.String(), names.String(), masks.String(), created,
		generation)
	if err != nil {
		return false, fmt.Errorf("find published events: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var i int
		var p published
		if err := rows.Scan(&i, &p.snapshot, pgquery.Micros(&p.before)); err != nil {
			return false, fmt.Errorf("find published events: %w", err)
		}
		kinds[(i-1)/2].published[(i-1)%2] = p
	}
	return true, rows.Err()
}
