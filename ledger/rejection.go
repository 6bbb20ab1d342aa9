package ledger

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
)

var (
	//go:embed sql/count_rejection.sql
	countRejectionSQL string
	//go:embed sql/rejected.sql
	rejectedSQL string
)

// OverloadError says that a task was not enqueued since too many of its kind wait. Nothing was
// written, and the transaction stays usable.
type OverloadError struct {
	Kind       Kind
	Waiting    int64 // how many wait, as far as projected
	MaxWaiting int64
	RetryAfter time.Duration  // when to try again, says the operator who set the limit
	Policy     OverloadPolicy // Reject; CallerRuns: the kind is to be enqueued by a workers.Caller; Discard: of [EnqueueAndCommit] only
}

func (e *OverloadError) Error() string {
	cure := ""
	switch e.Policy {
	case CallerRuns:
		cure = ", or have it run in your transaction: workers.Caller"
	case Discard:
		cure = ", or enqueue before you commit, not along with it: then it is discarded"
	case Reject, DiscardOldest: // only time helps
	}
	return fmt.Sprintf("too many tasks of kind %s wait: %d, of at most %d; try again after %s%s", e.Kind, e.Waiting, e.MaxWaiting, e.RetryAfter, cure)
}

// countRejection counts err in the database if it is an [*OverloadError], and returns it. If counting
// fails the transaction of db is unusable, and that error is returned instead: callers treat an
// OverloadError as recoverable.
func countRejection(ctx context.Context, db DB, err error) error {
	var overload *OverloadError
	if !errors.As(err, &overload) {
		return err
	}
	if _, err := db.Exec(ctx, countRejectionSQL); err != nil {
		return pgerr.Explain("count that enqueue was rejected", err)
	}
	return err
}

// ReadRejected returns the number of rejected calls since the ledger was made: calls in any process that
// returned an [*OverloadError], and calls of the SQL functions that raised SQLSTATE 53400. The outcome of
// their transactions does not matter. A call counts once, however many tasks it named. A crash of
// PostgreSQL may add up to 32 to the number, and lose the rejections of its last second.
func ReadRejected(ctx context.Context, db DB) (calls int64, err error) {
	_, err = pgquery.Row(ctx, db, rejectedSQL, nil, &calls)
	return calls, pgerr.Explain("read rejected", err)
}
