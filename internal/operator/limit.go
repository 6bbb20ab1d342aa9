package operator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

// Actions of the records of limits.
const (
	limitSet    = "limit.set"
	limitRemove = "limit.remove"
)

// SetLimit sets or replaces a limit of starts, and records the act as a task of kind taskledger.operation. It commits.
// Errors: [*ledger.InvalidError], [ledger.ErrNotMigrated].
func (o *Operator) SetLimit(ctx context.Context, l ledger.StartLimit, audit Audit) error {
	err := pgx.BeginFunc(ctx, o.db, func(tx pgx.Tx) error { return SetStartLimit(ctx, tx, l, audit) })
	return pgerr.Explain("set limit "+l.Name, err)
}

// RemoveLimit removes a limit of starts, and reports whether it existed. It records the removal as a task of kind
// taskledger.operation. It commits. Errors: [*ledger.InvalidError], [ledger.ErrNotMigrated].
func (o *Operator) RemoveLimit(ctx context.Context, name string, audit Audit) (existed bool, err error) {
	if err := ledger.Kind(name).ValidateStored(); err != nil {
		return false, &ledger.InvalidError{Field: "name of a limit", Value: name, Rule: "must have the form of a kind"}
	}
	err = pgx.BeginFunc(ctx, o.db, func(tx pgx.Tx) (err error) {
		existed, err = RemoveStartLimit(ctx, tx, name, audit)
		return err
	})
	return existed && err == nil, pgerr.Explain("remove limit "+name, err)
}

// SetStartLimit sets or replaces a limit of starts, and records the act. It never commits.
func SetStartLimit(ctx context.Context, tx pgx.Tx, l ledger.StartLimit, audit Audit) error {
	if err := audit.validate(); err != nil {
		return err
	}
	if err := ledger.SetStartLimit(ctx, tx, l, audit.Actor); err != nil {
		return err
	}
	detail := map[string]string{"limit": l.Name, "kinds": KindsText(l.Kinds)}
	if l.Per != "" {
		detail["per"] = string(l.Per)
	}
	if l.MaxRunning != nil {
		detail["max_running"] = strconv.Itoa(*l.MaxRunning)
	}
	if l.Rate != nil {
		detail["rate"] = l.Rate.String()
	}
	return audit.record(ctx, tx, limitSet, detail)
}

// RemoveStartLimit removes a limit of starts, reports whether it existed, and records the removal. It never commits.
func RemoveStartLimit(ctx context.Context, tx pgx.Tx, name string, audit Audit) (existed bool, err error) {
	return audit.recordRemoval(ctx, tx, map[string]string{"limit": name}, func() (bool, error) {
		return ledger.RemoveStartLimit(ctx, tx, name)
	})
}

// SetWaitingLimit sets or replaces the limit of a kind's waiting tasks, and records the act. It never commits.
func SetWaitingLimit(ctx context.Context, tx pgx.Tx, l ledger.Limit, audit Audit) error {
	if err := audit.validate(); err != nil {
		return err
	}
	if err := ledger.SetLimit(ctx, tx, l, audit.Actor); err != nil {
		return err
	}
	return audit.record(ctx, tx, limitSet, map[string]string{
		"limit": string(l.Kind), "max_waiting": strconv.FormatInt(l.MaxWaiting, 10), "policy": string(l.Policy)})
}

// RemoveWaitingLimit removes the limit of a kind's waiting tasks, reports whether it existed, and records the removal.
// It never commits.
func RemoveWaitingLimit(ctx context.Context, tx pgx.Tx, kind ledger.Kind, audit Audit) (existed bool, err error) {
	detail := map[string]string{"limit": string(kind), "of": "waiting tasks"}
	return audit.recordRemoval(ctx, tx, detail, func() (bool, error) { return ledger.RemoveLimit(ctx, tx, kind) })
}

// SetWeight sets the weight of a partition, and records the act. It never commits.
func SetWeight(ctx context.Context, tx pgx.Tx, partition string, weight float64, audit Audit) error {
	if err := audit.validate(); err != nil {
		return err
	}
	if err := ledger.SetPartitionWeight(ctx, tx, partition, weight, audit.Actor); err != nil {
		return err
	}
	return audit.record(ctx, tx, limitSet, map[string]string{
		"partition": partition, "weight": strconv.FormatFloat(weight, 'g', -1, 64)})
}

// RemoveWeight removes the weight of a partition, reports whether it existed, and records the removal. It never
// commits.
func RemoveWeight(ctx context.Context, tx pgx.Tx, partition string, audit Audit) (existed bool, err error) {
	return audit.recordRemoval(ctx, tx, map[string]string{"partition": partition}, func() (bool, error) {
		return ledger.RemovePartitionWeight(ctx, tx, partition)
	})
}

// record records an act on limits.
func (a Audit) record(ctx context.Context, tx pgx.Tx, action string, detail map[string]string) error {
	return operation.Record(ctx, tx, operation.Operation{
		Action: action, Reason: a.Reason, Actor: a.Actor, Detail: detail})
}

// recordRemoval calls remove, which reports whether there was something to remove, and records the removal.
func (a Audit) recordRemoval(
	ctx context.Context, tx pgx.Tx, detail map[string]string, remove func() (bool, error),
) (existed bool, err error) {
	if err := a.validate(); err != nil {
		return false, err
	}
	if existed, err = remove(); err != nil || !existed {
		return false, err
	}
	return true, a.record(ctx, tx, limitRemove, detail)
}

// KindsText returns the kinds of a limit with their weights above 1, as in "order.send,order.track:2".
func KindsText(kinds map[ledger.Kind]int) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		text := string(k)
		if kinds[k] > 1 {
			text = fmt.Sprintf("%s:%d", k, kinds[k])
		}
		all = append(all, text)
	}
	return strings.Join(all, ",")
}
