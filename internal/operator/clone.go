package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/taskledger/taskledger/internal/durably"
	"github.com/taskledger/taskledger/ledger"
)

// metaReason is the member of a cloned task's meta that stores the reason.
const metaReason = "reason"

// defaultCloneReason is the reason of a clone whose audit names none.
const defaultCloneReason = "cloned by an operator"

// Clone enqueues a new task with the kind, args, first priority, tags, retry policy and other meta of an existing task.
// The new task is due now, without deadlines. Its meta names the existing task's first event as causation, and the
// reason. The state of the existing task does not matter, and does not change. The limit of the kind applies.
//
// If a task with the new key and equal args exists, nothing is written, and the result is that task. It commits.
// Errors: [ledger.ErrUnknownTask], [*ledger.InvalidError], [*ledger.OverloadError], [*ledger.OtherArgsError] if the
// task with the new key differs in its args, [*ledger.CorruptError] for args or meta that do not decode.
func (o *Operator) Clone(ctx context.Context, k ledger.Key, as ledger.BizID, audit Audit) (ledger.Enqueued, error) {
	if err := audit.validate(); err != nil {
		return ledger.Enqueued{}, err
	}
	first, err := ledger.ArgsEvent(ctx, o.db, k)
	if err != nil {
		return ledger.Enqueued{}, err
	}
	args, err := first.Payload()
	if err != nil {
		return ledger.Enqueued{}, fmt.Errorf("clone %s: %w", k, err)
	}
	options, err := cloneOptions(first, audit)
	if err != nil {
		return ledger.Enqueued{}, fmt.Errorf("clone %s: %w", k, err)
	}
	var clone ledger.Enqueued
	err = durably.Do(ctx, o.db, func(tx *ledger.Tx) error {
		clone, err = ledger.Enqueue(ctx, tx, ledger.Key{Kind: k.Kind, BizID: as}, args, &options)
		return err
	})
	return clone, err
}

// cloneOptions returns the options of a clone of the task with this first event.
func cloneOptions(first ledger.Event, audit Audit) (ledger.EnqueueOptions, error) {
	old, err := ledger.ParseMeta(first.Meta)
	if err != nil {
		return ledger.EnqueueOptions{}, err
	}
	reason := audit.Reason
	if reason == "" {
		reason = defaultCloneReason
	}
	text, err := json.Marshal(reason)
	if err != nil {
		return ledger.EnqueueOptions{}, err
	}
	extra := map[string]json.RawMessage{}
	maps.Copy(extra, old.Extra)
	delete(extra, "after") // the clone is due now
	extra[metaReason] = text
	return ledger.EnqueueOptions{
		Actor: audit.Actor, Binary: old.Encoding == ledger.EncodingBase64, DataVersion: first.DataVersion,
		Priority: first.Priority, Partition: first.Partition,
		Meta: ledger.Meta{Causation: first.ID(), Tags: old.Tags, Retry: old.Retry, Extra: extra},
	}, nil
}
