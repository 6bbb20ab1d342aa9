package ledger

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"sync"
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
	}
	return fmt.Sprintf("too many tasks of kind %s wait: %d, of at most %d; try again after %s%s", e.Kind, e.Waiting, e.MaxWaiting, e.RetryAfter, cure)
}

// rejections counts what Rejected returns.
var rejections struct {
	mu     sync.Mutex
	byKind map[Kind]int64
}

// countRejection returns the error of a call. If that is an OverloadError it is counted before: in the
// database, and in this process. Where it cannot be counted, db's transaction is lost as well, so that is
// the error then: who is told of an overload goes on.
func countRejection(ctx context.Context, db DB, err error) error {
	var overload *OverloadError
	if !errors.As(err, &overload) {
		return err
	}
	if _, err := db.Exec(ctx, countRejectionSQL); err != nil {
		return pgerr.Explain("count that enqueue was rejected", err)
	}
	rejections.mu.Lock()
	defer rejections.mu.Unlock()
	if rejections.byKind == nil {
		rejections.byKind = make(map[Kind]int64)
	}
	rejections.byKind[overload.Kind]++
	return err
}

// Rejected returns how many calls have returned an [*OverloadError] in this process since it began, by
// kind.
func Rejected() map[Kind]int64 {
	rejections.mu.Lock()
	defer rejections.mu.Unlock()
	return maps.Clone(rejections.byKind)
}

// ReadRejected returns how many calls were rejected since the ledger was made: all that have returned an
// [*OverloadError], in any process, and those of the SQL functions that have raised SQLSTATE 53400. What
// became of their transactions does not matter. A call is counted once, however many tasks it named.
// A crash of PostgreSQL may add up to 32, and take back what was rejected within its last second.
func ReadRejected(ctx context.Context, db DB) (calls int64, err error) {
	_, err = pgquery.Row(ctx, db, rejectedSQL, nil, &calls)
	return calls, pgerr.Explain("read how many were rejected", err)
}
