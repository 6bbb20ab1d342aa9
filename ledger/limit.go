package ledger

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/reserved"
)

var (
	//go:embed sql/limit_set.sql
	limitSetSQL string
	//go:embed sql/limit_remove.sql
	limitRemoveSQL string
	//go:embed sql/limits.sql
	limitsSQL string
)

// OverloadPolicy determines how a task is enqueued while the [Limit] of its kind is reached.
type OverloadPolicy string

// The overload policies.
const (
	// Reject returns an [*OverloadError] and writes nothing.
	Reject OverloadPolicy = "reject"
	// Discard enqueues the task and discards it. An operator may release it.
	Discard OverloadPolicy = "discard"
	// DiscardOldest enqueues the task. Soon after, the scheduler of taskledger serve discards the tasks of the kind
	// that have waited longest, until the limit is met.
	DiscardOldest OverloadPolicy = "discard_oldest"
	// CallerRuns enqueues the task if the caller sets [EnqueueOptions].CanRun and runs it in the same transaction, as
	// the type Caller of package workers does. For other callers it means Reject.
	CallerRuns OverloadPolicy = "caller_runs"
)

var overloadPolicies = []OverloadPolicy{Reject, Discard, DiscardOldest, CallerRuns}

// Limit is the maximum number of waiting tasks of a kind, tasks in state available. It is stored in the database, which
// applies it to each insert by a producer in every language.
//
// A task that is due later, waits for predecessors or has an order key is enqueued while fewer tasks than the limit are
// available, scheduled or in line. So such tasks do not keep a task that is due now from being enqueued, and once they
// are all due, at most twice as many tasks as the limit wait. Tasks that an operator releases are not limited.
//
// An enqueue does not count tasks: it reads the counts of the projection. So more tasks than the limit may wait: tasks
// of open transactions, of one call, and of the last tens of milliseconds, which the projector has not counted. While
// no projector runs, the counts do not change.
type Limit struct {
	Kind       Kind           `json:"kind"`
	MaxWaiting int64          `json:"max_waiting"` // at least 0
	Policy     OverloadPolicy `json:"policy"`      // default: Reject
	RetryAfter time.Duration  `json:"-"`           // see [OverloadError]; in milliseconds; default: 1 s
}

// LimitStatus is a limit with the number of waiting tasks.
type LimitStatus struct {
	Limit
	Waiting int64 `json:"waiting"` // the count of the projection
}

// SetLimit sets or replaces the limit of a kind. It takes effect when db's transaction commits. actor is the
// operator that sets it; "" means the database's session_user. It returns an [*InvalidError] if l or actor is
// invalid. It never commits.
func SetLimit(ctx context.Context, db DB, l Limit, actor string) error {
	if l.Policy == "" {
		l.Policy = Reject
	}
	if l.RetryAfter == 0 {
		l.RetryAfter = time.Second
	}
	err := l.Kind.Validate()
	switch {
	case err != nil:
	case reserved.IsKind(l.Kind): // an alarm that a limit rejects or discards is never delivered
		err = &InvalidError{Field: "kind", Value: string(l.Kind), Rule: "must not be one of taskledger itself"}
	case l.MaxWaiting < 0:
		err = &InvalidError{Field: "max_waiting", Value: fmt.Sprint(l.MaxWaiting), Rule: "must not be negative"}
	case !slices.Contains(overloadPolicies, l.Policy):
		rule := "must be reject, discard, discard_oldest or caller_runs"
		err = &InvalidError{Field: "policy", Value: string(l.Policy), Rule: rule}
	case l.RetryAfter < 0:
		err = &InvalidError{Field: "retry_after", Value: l.RetryAfter.String(), Rule: "must not be negative"}
	default:
		err = checkActor(actor)
	}
	if err != nil {
		return fmt.Errorf("set limit: %w", err)
	}
	_, err = db.Exec(ctx, limitSetSQL,
		string(l.Kind), l.MaxWaiting, string(l.Policy), l.RetryAfter.Milliseconds(), pgquery.Optional(actor))
	return pgerr.Explain("set limit", err)
}

// RemoveLimit removes the limit of a kind and reports whether the kind had a limit. It takes effect when db's
// transaction commits. It never commits.
func RemoveLimit(ctx context.Context, db DB, k Kind) (bool, error) {
	tag, err := db.Exec(ctx, limitRemoveSQL, string(k))
	return tag.RowsAffected() > 0, pgerr.Explain("remove limit", err)
}

// ReadLimits returns at most limit limits, of the first kinds after a kind, ordered by kind; "" is before the first. It
// never commits. Errors: [*InvalidError] if limit is less than 1, [ErrNotMigrated].
func ReadLimits(ctx context.Context, db DB, after Kind, limit int) ([]LimitStatus, error) {
	if err := checkLimit(limit); err != nil {
		return nil, fmt.Errorf("read limits: %w", err)
	}
	rows, err := db.Query(ctx, limitsSQL, string(after), int64(limit))
	if err != nil {
		return nil, pgerr.Explain("read limits", err)
	}
	defer rows.Close()
	var all []LimitStatus
	for rows.Next() {
		var l LimitStatus
		var ms int64
		if err := rows.Scan((*string)(&l.Kind), &l.MaxWaiting, (*string)(&l.Policy), &ms, &l.Waiting); err != nil {
			return nil, pgerr.Explain("read limits", err)
		}
		l.RetryAfter = time.Duration(ms) * time.Millisecond
		all = append(all, l)
	}
	return all, pgerr.Explain("read limits", rows.Err())
}
