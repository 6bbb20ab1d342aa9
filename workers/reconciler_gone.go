package workers

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/reconcile_mark.sql
	reconcileMarkSQL string
	//go:embed sql/reconcile_bounds.sql
	reconcileBoundsSQL string
)

// reconciled is a kind that has workers: what has gone for its two consumers, which are in the
// order of stream.Consumers. Where it has several pairs, for different shards, the one that is
// furthest behind speaks for all of them: the tasks need to be looked at only once.
type reconciled struct {
	name   ledger.Kind
	shards ledger.ShardSet // those that have workers
	pairs  []ledger.ShardSet
	gone   [2]uint64 // messages up to here will not be delivered any more
	seen   [2]string // of events visible in this snapshot that holds; "": of none
	until  [2]time.Time
}

// look finds out, for each kind with consumers, which messages have gone.
func (r *Reconciler) look(ctx context.Context) (kinds []*reconciled, info *jetstream.StreamInfo, err error) {
	s, err := r.js.Stream(ctx, stream.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("look at stream %s: %w", stream.Name, err)
	}
	info = s.CachedInfo() // before the consumers, so that what it holds can have been acknowledged when they are asked
	consumers := make(map[string]*jetstream.ConsumerInfo)
	byName := make(map[ledger.Kind]*reconciled)
	lister := s.ListConsumers(ctx)
	for c := range lister.Info() {
		consumers[c.Name] = c
		if name, shards, ok := stream.Served(c.Name); ok {
			k := byName[name]
			if k == nil {
				k = &reconciled{name: name, gone: [2]uint64{info.State.LastSeq, info.State.LastSeq}}
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
		if err := k.look(ctx, s, info, consumers); err != nil {
			return nil, nil, err
		}
	}
	return kinds, info, nil
}

// look finds out which messages of the kind have gone.
func (k *reconciled) look(ctx context.Context, s jetstream.Stream, info *jetstream.StreamInfo, consumers map[string]*jetstream.ConsumerInfo) error {
	for _, shards := range k.pairs {
		for i, want := range stream.Consumers(k.name, shards) {
			c := consumers[want.Durable]
			if c == nil {
				k.gone[i] = 0 // its messages wait for it
				continue
			}
			sequence, err := gone(ctx, s, info, c, want.Filters)
			if err != nil {
				return err
			}
			k.gone[i] = min(k.gone[i], sequence)
		}
	}
	return nil
}

// gone returns the sequence up to which a consumer will deliver nothing any more: all there is
// if it has acknowledged the last message that is for it.
func gone(ctx context.Context, s jetstream.Stream, info *jetstream.StreamInfo, c *jetstream.ConsumerInfo, filters []string) (uint64, error) {
	last := uint64(0)
	for _, subject := range filters {
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

// bound finds out of which events the messages have gone. It reports false if the relay does not
// know the stream as it is.
func (r *Reconciler) bound(ctx context.Context, kinds []*reconciled, info *jetstream.StreamInfo) (bool, error) {
	var created string
	var generation int64
	var owed bool
	err := r.config.DB.QueryRow(ctx, reconcileMarkSQL).Scan(&created, &generation, &owed)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && (owed || created != info.Created.UTC().Format(time.RFC3339Nano)) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the relay's mark: %w", err)
	}
	var sequences pgarray.Builder
	for _, k := range kinds {
		for _, gone := range k.gone {
			sequences.AddInt(int64(gone))
		}
	}
	rows, err := r.config.DB.Query(ctx, reconcileBoundsSQL, sequences.String(), created, generation)
	if err != nil {
		return false, fmt.Errorf("find what was published: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var i int
		var seen string
		var at time.Time
		if err := rows.Scan(&i, &seen, &at); err != nil {
			return false, fmt.Errorf("find what was published: %w", err)
		}
		k, n := kinds[(i-1)/2], (i-1)%2
		k.seen[n], k.until[n] = seen, at
	}
	return true, rows.Err()
}
