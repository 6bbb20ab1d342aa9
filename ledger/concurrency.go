package ledger

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/reserved"
)

var (
	//go:embed sql/concurrency_set.sql
	concurrencySetSQL string
	//go:embed sql/concurrency_remove.sql
	concurrencyRemoveSQL string
	//go:embed sql/concurrency.sql
	concurrencySQL string
)

// MaxConcurrency is the highest [ConcurrencyLimit].
const MaxConcurrency = 10_000

// ErrConcurrencyLimit means that as many tasks of a kind run as its [ConcurrencyLimit] allows. Nothing was written.
var ErrConcurrencyLimit = pgerr.ErrConcurrencyLimit

// ConcurrencyLimit is the maximum number of tasks of a kind that run at a time, over all workers in every language. It
// is stored in the database, which refuses every start above it.
//
// A task counts from its started event to the event that ends the attempt. If its worker is lost, it counts until it is
// continued or ended. Workers record the start of each task of a kind with a limit before its handler runs.
//
// A higher limit takes effect at once. After a lower one, no task starts until fewer tasks run than it allows. A kind's
// first limit takes effect when its workers know of it, within a second. Until they end, it does not count tasks that
// began shortly before that without a recorded start.
type ConcurrencyLimit struct {
	Kind       Kind `json:"kind"`
	MaxRunning int  `json:"max_running"` // 0 to [MaxConcurrency]; 0: no task starts
}

// ConcurrencyStatus is a concurrency limit and its use.
type ConcurrencyStatus struct {
	ConcurrencyLimit
	Running int   `json:"running"` // tasks that count; more than MaxRunning for a while after it was lowered
	Waiting int64 `json:"waiting"` // available tasks, as counted by the projection
}

// SetConcurrency sets or replaces the concurrency limit of a kind. It takes effect when db's transaction commits. actor
// is the operator that sets it; "" means the database's session_user. It returns an [*InvalidError] if l or actor is
// invalid. It never commits.
func SetConcurrency(ctx context.Context, db DB, l ConcurrencyLimit, actor string) error {
	err := l.Kind.Validate()
	switch {
	case err != nil:
	case reserved.IsKind(l.Kind): // a task of a service would wait for those that its limit stops
		err = &InvalidError{Field: "kind", Value: string(l.Kind), Rule: "must not be one of taskledger itself"}
	case l.MaxRunning < 0 || l.MaxRunning > MaxConcurrency:
		err = &InvalidError{
			Field: "max_running", Value: fmt.Sprint(l.MaxRunning),
			Rule: fmt.Sprintf("must be between 0 and %d", MaxConcurrency),
		}
	default:
		err = checkActor(actor)
	}
	if err != nil {
		return fmt.Errorf("set concurrency limit: %w", err)
	}
	_, err = db.Exec(ctx, concurrencySetSQL, string(l.Kind), int64(l.MaxRunning), pgquery.Optional(actor))
	return pgerr.Explain("set concurrency limit", err)
}

// RemoveConcurrency removes the concurrency limit of a kind and reports whether the kind had one. It takes effect when
// db's transaction commits. It never commits.
func RemoveConcurrency(ctx context.Context, db DB, k Kind) (bool, error) {
	tag, err := db.Exec(ctx, concurrencyRemoveSQL, string(k))
	return tag.RowsAffected() > 0, pgerr.Explain("remove concurrency limit", err)
}

// ReadConcurrency returns at most limit concurrency limits, of the first kinds after a kind, ordered by kind; "" is
// before the first. It never commits. Errors: [*InvalidError] if limit is less than 1, [ErrNotMigrated].
func ReadConcurrency(ctx context.Context, db DB, after Kind, limit int) ([]ConcurrencyStatus, error) {
	if err := checkLimit(limit); err != nil {
		return nil, fmt.Errorf("read concurrency limits: %w", err)
	}
	rows, err := db.Query(ctx, concurrencySQL, string(after), int64(limit))
	if err != nil {
		return nil, pgerr.Explain("read concurrency limits", err)
	}
	defer rows.Close()
	var all []ConcurrencyStatus
	for rows.Next() {
		var l ConcurrencyStatus
		if err := rows.Scan((*string)(&l.Kind), &l.MaxRunning, &l.Running, &l.Waiting); err != nil {
			return nil, pgerr.Explain("read concurrency limits", err)
		}
		all = append(all, l)
	}
	return all, pgerr.Explain("read concurrency limits", rows.Err())
}
