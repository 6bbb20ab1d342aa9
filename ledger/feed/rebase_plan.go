package feed

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/rebase_guard.sql
	rebaseGuardSQL string
	//go:embed sql/rebase_needed.sql
	rebaseNeededSQL string
	//go:embed sql/rebase_count.sql
	rebaseCountSQL string
)

// RebasePlan is what [Rebase] would do.
type RebasePlan struct {
	// Needed: a cursor, or an event, has transaction ids of another database.
	Needed  bool            `json:"needed"`
	Readers []string        `json:"readers"` // whose cursors are of another database
	Events  int64           `json:"events"`  // of another database
	Last    ledger.Position `json:"last_position"`
}

// SubscribedError is the error of a database whose events a subscription still writes.
type SubscribedError struct{ Subscription string }

func (e *SubscribedError) Error() string {
	return fmt.Sprintf("subscription %q still replicates events into this database: disable it or drop it first",
		e.Subscription)
}

// PlanRebase returns what [Rebase] would do, and changes nothing. If a rebase is needed it reads all events.
// Errors are those of Rebase.
func PlanRebase(ctx context.Context, db ledger.DB, o *RebaseOptions) (RebasePlan, error) {
	options := o.withDefaults()
	plan, err := readRebasePlan(ctx, db)
	if err != nil || !plan.Needed {
		return plan, err
	}
	for at := ledger.Position(0); ; {
		var next, foreign int64
		_, err := pgquery.Row(ctx, db, rebaseCountSQL, []any{int64(at), int64(options.pageSize)}, &next, &foreign)
		if err != nil {
			return plan, pgerr.Explain("count events of another database", err)
		}
		if next == 0 {
			return plan, nil
		}
		plan.Events += foreign
		at = ledger.Position(next)
		options.Progress(at, max(at, plan.Last))
	}
}

func readRebasePlan(ctx context.Context, db ledger.DB) (plan RebasePlan, err error) {
	var standby, isAhead bool
	var subscription, readers string
	if _, err := pgquery.Row(ctx, db, rebaseGuardSQL, nil, &standby, &subscription); err != nil {
		return plan, pgerr.Explain("look for subscriptions", err)
	}
	switch {
	case standby:
		return plan, ErrNotPrimary
	case subscription != "":
		return plan, &SubscribedError{Subscription: subscription}
	}
	if _, err := pgquery.Row(ctx, db, rebaseNeededSQL, nil, &readers, &isAhead, (*int64)(&plan.Last)); err != nil {
		return plan, pgerr.Explain("look for cursors of another database", err)
	}
	if err := json.Unmarshal([]byte(readers), &plan.Readers); err != nil {
		return plan, err
	}
	plan.Needed = isAhead || len(plan.Readers) > 0
	return plan, nil
}
