package ledger

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
)

var (
	//go:embed sql/limit_set.sql
	limitSetSQL string
	//go:embed sql/limit_remove.sql
	limitRemoveSQL string
	//go:embed sql/limits.sql
	limitsSQL string
	//go:embed sql/enqueue_discarded.sql
	enqueueDiscardedSQL string
)

// OverloadPolicy says what becomes of a task that is enqueued when too many of its kind wait.
type OverloadPolicy string

// The overload policies.
const (
	// Reject: enqueueing fails with an [*OverloadError], and nothing is written.
	Reject OverloadPolicy = "reject"
	// Discard: the task exists, and is discarded. An operator may release it.
	Discard OverloadPolicy = "discard"
	// DiscardOldest: the task is let in, and those that have waited longest are discarded soon
	// after, until no more than the limit wait. A scheduler does it (workers/scheduler).
	DiscardOldest OverloadPolicy = "discard_oldest"
	// CallerRuns: who enqueues runs the handler, in the same transaction, by workers.Caller.
	// To who does not, it is Reject.
	CallerRuns OverloadPolicy = "caller_runs"
)

var overloadPolicies = []OverloadPolicy{Reject, Discard, DiscardOldest, CallerRuns}

// Limit is how many tasks of a kind may wait: be available, and not run yet. It is kept in the
// database, so that everybody meets it who enqueues, in whatever language.
//
// Who enqueues does not count, but reads the projection's count: one row, however many tasks there
// are. So the limit is passed by what is let in before the projector has seen it, usually within
// some tens of milliseconds, by what open transactions hold, and by what one call enqueues at once.
// Tasks that are due later are always let in, and so are those that are released. While no projector
// works the count stands still.
type Limit struct {
	Kind       Kind           `json:"kind"`
	MaxWaiting int64          `json:"max_waiting"` // 0 or more
	Policy     OverloadPolicy `json:"policy"`      // default: Reject
	RetryAfter time.Duration  `json:"-"`           // what OverloadError hints at; to the millisecond, default 1 s
}

// LimitStatus is a limit, and how near it is.
type LimitStatus struct {
	Limit
	Waiting int64 `json:"waiting"` // as the projector has counted
}

// SetLimit sets the limit of a kind, or changes it; it holds for statements that begin after db's
// transaction has committed. actor is who does it, "" the database's session_user. It returns an
// [*InvalidError] if the limit is none. It never commits.
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
	case l.MaxWaiting < 0:
		err = &InvalidError{Field: "max_waiting", Value: fmt.Sprint(l.MaxWaiting), Rule: "must not be negative"}
	case !slices.Contains(overloadPolicies, l.Policy):
		err = &InvalidError{Field: "policy", Value: string(l.Policy), Rule: "must be reject, discard, discard_oldest or caller_runs"}
	case l.RetryAfter < 0:
		err = &InvalidError{Field: "retry_after", Value: l.RetryAfter.String(), Rule: "must not be negative"}
	default:
		err = checkActor(actor)
	}
	if err != nil {
		return fmt.Errorf("set limit: %w", err)
	}
	_, err = db.Exec(ctx, limitSetSQL, string(l.Kind), l.MaxWaiting, string(l.Policy), l.RetryAfter.Milliseconds(), pgquery.Optional(actor))
	return pgerr.Explain("set limit", err)
}

// RemoveLimit lets any number of tasks of a kind wait. It reports whether there was a limit. It never
// commits.
func RemoveLimit(ctx context.Context, db DB, k Kind) (bool, error) {
	tag, err := db.Exec(ctx, limitRemoveSQL, string(k))
	return tag.RowsAffected() > 0, pgerr.Explain("remove limit", err)
}

// ReadLimits returns all limits, ordered by kind.
func ReadLimits(ctx context.Context, db DB) ([]LimitStatus, error) {
	rows, err := db.Query(ctx, limitsSQL)
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

// enqueueDiscarded inserts rows, order being that of their keys, as discarded tasks, and returns the
// answers for those that were inserted.
func enqueueDiscarded(ctx context.Context, db DB, rows []firstEvent) (map[Key]Enqueued, error) {
	var kinds, ids, shards, actors, args, metas pgarray.Builder
	for _, row := range rows {
		kinds.Add(string(row.key.Kind))
		ids.Add(string(row.key.BizID))
		shards.Add(fmt.Sprint(int(row.shard)))
		actors.AddOptional(row.actor)
		args.AddOptional(string(row.args))
		metas.AddOptional(string(row.meta))
	}
	result, err := db.Query(ctx, enqueueDiscardedSQL, kinds.String(), ids.String(), shards.String(), actors.String(), args.String(), metas.String())
	if err != nil {
		return nil, pgerr.Explain("enqueue", err)
	}
	defer result.Close()
	added := make(map[Key]Enqueued, len(rows))
	for result.Next() {
		var kind, id string
		var position int64
		if err := result.Scan(&kind, &id, &position); err != nil {
			return nil, pgerr.Explain("enqueue", err)
		}
		k := Key{Kind(kind), BizID(id)}
		added[k] = Enqueued{Key: k, New: true, State: StateDiscarded, Version: 2, SameArgs: true, Position: Position(position)}
	}
	return added, pgerr.Explain("enqueue", result.Err())
}
