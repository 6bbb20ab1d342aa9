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
	if err := audit.validate(); err != nil {
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
	err := pgx.BeginFunc(ctx, o.db, func(tx pgx.Tx) error {
		if err := ledger.SetStartLimit(ctx, tx, l, audit.Actor); err != nil {
			return err
		}
		return operation.Record(ctx, tx, operation.Operation{
			Action: limitSet, Reason: audit.Reason, Actor: audit.Actor, Detail: detail})
	})
	return pgerr.Explain("set limit "+l.Name, err)
}

// RemoveLimit removes a limit of starts, and reports whether it existed. It records the removal as a task of kind
// taskledger.operation. It commits. Errors: [*ledger.InvalidError], [ledger.ErrNotMigrated].
func (o *Operator) RemoveLimit(ctx context.Context, name string, audit Audit) (existed bool, err error) {
	if err := ledger.Kind(name).ValidateStored(); err != nil {
		return false, &ledger.InvalidError{Field: "name of a limit", Value: name, Rule: "must have the form of a kind"}
	}
	if err := audit.validate(); err != nil {
		return false, err
	}
	err = pgx.BeginFunc(ctx, o.db, func(tx pgx.Tx) (err error) {
		if existed, err = ledger.RemoveStartLimit(ctx, tx, name); err != nil || !existed {
			return err
		}
		return operation.Record(ctx, tx, operation.Operation{
			Action: limitRemove, Reason: audit.Reason, Actor: audit.Actor, Detail: map[string]string{"limit": name}})
	})
	return existed && err == nil, pgerr.Explain("remove limit "+name, err)
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
