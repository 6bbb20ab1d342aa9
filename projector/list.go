package projector

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/list_newest.sql
	listNewestSQL string
	//go:embed sql/list_aside.sql
	listAsideSQL string
	//go:embed sql/walked_to.sql
	walkedToSQL string
)

// Task is a task as the projection has it.
type Task struct {
	ledger.Key
	Position   ledger.Position `json:"position"` // of its first event
	Shard      ledger.Shard    `json:"shard"`
	State      ledger.State    `json:"state"`
	Version    ledger.Version  `json:"version"`
	Attempt    ledger.Attempt  `json:"attempt"`
	Failures   int             `json:"failures"`
	EnqueuedAt time.Time       `json:"enqueued_at"`
	UpdatedAt  time.Time       `json:"updated_at"`
	Error      string          `json:"error,omitempty"` // of its last failed or buried event

	// Fingerprint of the error that a dead task is dead of, see [ledger.ErrorFingerprint]; else "".
	Fingerprint string `json:"fingerprint,omitempty"`

	// DueAt is when it is released, if it is scheduled or retrying.
	DueAt time.Time `json:"due_at,omitzero"`
}

// Filter says which tasks to list. The zero value lists the newest of all.
type Filter struct {
	Kind  ledger.Kind     // empty: all
	State ledger.State    // empty: all
	Limit int             // 0: 50; at most MaxList
	After ledger.Position // the next that ReadTasks returned; 0: from the newest
}

// MaxList is the largest limit of a [Filter].
const MaxList = 1000

// maxWalk is how many events one call of ReadTasks reads.
var maxWalk = 100_000

func (f Filter) validate() error {
	switch {
	case f.Kind != "" && f.Kind.Validate() != nil:
		return f.Kind.Validate()
	case f.State != "" && !slices.Contains(states(), string(f.State)):
		return &ledger.InvalidError{Field: "state", Value: string(f.State), Rule: "must be one of " + strings.Join(states(), ", ")}
	case f.Limit < 0 || f.Limit > MaxList:
		return &ledger.InvalidError{Field: "limit", Value: fmt.Sprint(f.Limit), Rule: fmt.Sprintf("must be 1 to %d", MaxList)}
	case f.After < 0:
		return &ledger.InvalidError{Field: "after", Value: fmt.Sprint(int64(f.After)), Rule: "must be a position"}
	}
	return nil
}

// states are all that a task may be in.
func states() (all []string) {
	for _, t := range ledger.Transitions() {
		all = append(all, string(t.To))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// ReadTasks returns tasks of the projection, those enqueued last first, and next, the Filter.After with which to
// continue; it is 0 at the end. A call reads a bounded part of the ledger, so it may return fewer tasks than the
// limit, even none, although there are more. Tasks that are not projected yet are left out, see [ReadLag].
//
// Errors: [*ledger.InvalidError], [ledger.ErrNotMigrated].
func ReadTasks(ctx context.Context, db ledger.DB, f Filter) (found []Task, next ledger.Position, err error) {
	if err := f.validate(); err != nil {
		return nil, 0, fmt.Errorf("read tasks: %w", err)
	}
	if f.Limit == 0 {
		f.Limit = 50
	}
	if f.After == 0 {
		f.After = math.MaxInt64
	}
	aside := f.State != "" && f.State.Exceptional()
	sql, args := listNewestSQL, []any{string(f.Kind), string(f.State), int64(f.After), int64(maxWalk), int64(f.Limit)}
	if aside {
		sql, args = listAsideSQL, []any{string(f.Kind), string(f.State), int64(f.After), int64(f.Limit)}
	}
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, 0, pgerr.Explain("read tasks", err)
	}
	if found, err = pgx.CollectRows(rows, scanTask); err != nil {
		return nil, 0, pgerr.Explain("read tasks", err)
	}
	switch {
	case len(found) == f.Limit:
		return found, found[f.Limit-1].Position, nil
	case aside:
		return found, 0, nil
	}
	next, err = walkedTo(ctx, db, f.After)
	return found, next, err
}

func walkedTo(ctx context.Context, db ledger.DB, after ledger.Position) (ledger.Position, error) {
	rows, err := db.Query(ctx, walkedToSQL, int64(after), int64(maxWalk))
	if err != nil {
		return 0, pgerr.Explain("read tasks", err)
	}
	next, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return ledger.Position(next), pgerr.Explain("read tasks", err)
}

func scanTask(row pgx.CollectableRow) (t Task, err error) {
	err = row.Scan((*int64)(&t.Position), (*string)(&t.Kind), (*string)(&t.BizID), (*int)(&t.Shard), (*string)(&t.State),
		(*int32)(&t.Version), (*int32)(&t.Attempt), &t.Failures, pgquery.Micros(&t.EnqueuedAt),
		pgquery.Micros(&t.UpdatedAt), &t.Error, &t.Fingerprint, pgquery.Micros(&t.DueAt))
	return t, err
}
