package ledger

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
)

var (
	//go:embed sql/count_rejection.sql
	countRejectionSQL string
	//go:embed sql/rejected.sql
	rejectedSQL string
)

// OverloadError is the error of an enqueue while the [Limit] of the kind is reached. Nothing was written, and
// the transaction stays usable. [Tx.EnqueueAndCommit] rolls back.
type OverloadError struct {
	Kind Kind
	// Waiting is the number of tasks of the kind that wait, as the projector has counted them. For a task that is due
	// later, it includes the scheduled ones.
	Waiting    int64
	MaxWaiting int64 // of the limit
	// RetryAfter is the delay after which the caller should try again, set by the operator in the limit.
	RetryAfter time.Duration
	// Policy is the policy of the limit: Reject, CallerRuns without [EnqueueOptions].CanRun, or Discard
	// from [Tx.EnqueueAndCommit].
	Policy OverloadPolicy
}

// Error returns the numbers and the cure.
func (e *OverloadError) Error() string {
	cure := ""
	switch e.Policy {
	case CallerRuns:
		cure = ", or run it in your transaction by workers.Caller"
	case Discard:
		cure = ", or call Enqueue and Commit, which discard the task"
	case Reject, DiscardOldest: // later, room may come
	}
	return fmt.Sprintf("too many tasks of kind %s wait: %d, of at most %d; try again after %s%s",
		e.Kind, e.Waiting, e.MaxWaiting, e.RetryAfter, cure)
}

// raisedOverload returns the [*OverloadError] that a statement has raised as err, which aborts the transaction; else
// nil.
func raisedOverload(err error) *OverloadError {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != pgerr.ConfigurationLimitReached {
		return nil
	}
	var detail struct {
		Kind         Kind           `json:"kind"`
		Waiting      int64          `json:"waiting"`
		MaxWaiting   int64          `json:"max_waiting"`
		RetryAfterMS int64          `json:"retry_after_ms"`
		Policy       OverloadPolicy `json:"policy"`
	}
	if json.Unmarshal([]byte(pg.Detail), &detail) != nil || detail.Kind == "" {
		return nil // the error of another limit of PostgreSQL
	}
	return &OverloadError{
		Kind: detail.Kind, Waiting: detail.Waiting, MaxWaiting: detail.MaxWaiting,
		RetryAfter: time.Duration(detail.RetryAfterMS) * time.Millisecond, Policy: detail.Policy,
	}
}

// countRejection counts err in the database if it is an [*OverloadError], and returns err. If counting fails,
// it returns that error instead: the transaction is unusable then, and callers continue after an OverloadError.
func countRejection(ctx context.Context, db DB, err error) error {
	var overload *OverloadError
	if !errors.As(err, &overload) || raisedOverload(err) != nil { // the database has counted an error that it raised
		return err
	}
	if _, err := db.Exec(ctx, countRejectionSQL); err != nil {
		return pgerr.Explain("count a rejected enqueue", err)
	}
	return err
}

// ReadRejected returns the number of rejected calls in all processes since the ledger was created: calls that returned
// an [*OverloadError], and calls of the SQL functions that raised SQLSTATE 53400.
//
// A call counts once, however many tasks it names, even if its transaction rolls back. A crash of PostgreSQL may add
// up to 32 to the number, and may lose the rejections of the last second.
func ReadRejected(ctx context.Context, db DB) (calls int64, err error) {
	_, err = pgquery.Row(ctx, db, rejectedSQL, nil, &calls)
	return calls, pgerr.Explain("read rejected", err)
}
