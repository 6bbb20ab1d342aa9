package workers

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/worker_list.sql
var workerListSQL string

// Worker is a worker process, as it told the others by its lease.
type Worker struct {
	ID    string       `json:"id"`
	Since time.Time    `json:"since"`
	Alive bool         `json:"alive"` // false: it ended without saying so, or is cut off
	Kinds []WorkerKind `json:"kinds"` // by name
}

// WorkerKind is a kind that a worker works on.
type WorkerKind struct {
	Kind      ledger.Kind     `json:"kind"`
	Guarantee Guarantee       `json:"guarantee"`
	Shards    ledger.ShardSet `json:"shards"`  // those it takes tasks of now
	Divided   bool            `json:"divided"` // and that changes as workers come and go
	Paused    bool            `json:"paused"`  // by an operator: the worker starts none of its tasks
}

// leaseDetail is what a worker's lease says of it.
type leaseDetail struct {
	Kinds       []string        `json:"kinds"`
	Guarantees  guarantees      `json:"guarantees,omitempty"`
	Shards      ledger.ShardSet `json:"shards"`
	ShardGroups int             `json:"shard_groups,omitempty"`
}

// List returns the workers that live, and those that were lost within a day or so. It reads one
// small statement and never commits.
func List(ctx context.Context, db ledger.DB) ([]Worker, error) {
	rows, err := db.Query(ctx, workerListSQL)
	if err != nil {
		return nil, pgerr.Explain("list workers", err)
	}
	defer rows.Close()
	var all []Worker
	for rows.Next() {
		var w Worker
		var left int64
		var detailText, dividedText, pausedText string
		if err := rows.Scan(&w.ID, &w.Since, &left, &detailText, &dividedText, &pausedText); err != nil {
			return nil, pgerr.Explain("list workers", err)
		}
		w.Alive = left > 0
		if w.Kinds, err = workerKinds(detailText, dividedText, pausedText); err != nil {
			return nil, fmt.Errorf("list workers: lease of %s: %w", w.ID, err)
		}
		all = append(all, w)
	}
	if err := rows.Err(); err != nil {
		return nil, pgerr.Explain("list workers", err)
	}
	return all, nil
}

func workerKinds(detailText, dividedText, pausedText string) ([]WorkerKind, error) {
	var divided []struct {
		Kind   ledger.Kind     `json:"kind"`
		Shards ledger.ShardSet `json:"shards"`
	}
	var detail leaseDetail
	var paused []ledger.Kind
	err := errors.Join(json.Unmarshal([]byte(detailText), &detail), json.Unmarshal([]byte(dividedText), &divided), json.Unmarshal([]byte(pausedText), &paused))
	if err != nil {
		return nil, err
	}
	guarantee := detail.Guarantees.byKind()
	kinds := make([]WorkerKind, len(detail.Kinds))
	for i, name := range detail.Kinds {
		k := WorkerKind{Kind: ledger.Kind(name), Guarantee: cmp.Or(guarantee[name], ExactlyOnce), Shards: detail.Shards, Divided: detail.ShardGroups > 0, Paused: slices.Contains(paused, ledger.Kind(name))}
		for _, d := range divided {
			if d.Kind == k.Kind {
				k.Shards |= d.Shards
			}
		}
		kinds[i] = k
	}
	return kinds, nil
}

// InUseError says that a live worker takes tasks of shards that were to be retired.
type InUseError struct {
	Kind   ledger.Kind
	Shards ledger.ShardSet
	Worker string
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("kind %s: worker %s is at work on shards %s: stop it first", e.Kind, e.Worker, e.Shards)
}

// ErrUnknownConsumer: a kind has no consumers for just these shards.
var ErrUnknownConsumer = errors.New("no such consumers")

// Retire removes the consumers of a kind for exactly these shards, after the last worker on them has
// ended, so that workers may have other sets of shards. No task is lost: whoever works on the
// shards next hears of all their tasks that the stream still has, and passes over the finished
// ones. It returns an [*InUseError] if a live worker is at work there, or [ErrUnknownConsumer].
func Retire(ctx context.Context, db ledger.DB, nc *nats.Conn, kind ledger.Kind, shards ledger.ShardSet) error {
	if err := kind.Validate(); err != nil {
		return fmt.Errorf("retire: %w", err)
	}
	live, err := List(ctx, db)
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
