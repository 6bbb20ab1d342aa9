package projector

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/list_between.sql
	listBetweenSQL string
	//go:embed sql/list_newest.sql
	listNewestSQL string
	//go:embed sql/list_exceptional.sql
	listExceptionalSQL string
	//go:embed sql/list_tagged.sql
	listTaggedSQL string
)

// TaskFilter selects tasks for [ReadTasks]. The zero value selects all.
type TaskFilter struct {
	Kind       ledger.Kind     // Default: all kinds.
	State      ledger.State    // Default: all states.
	Limit      int             // Default: 50. At most MaxList.
	StartAfter ledger.Position // continues after an earlier call: its result next

	Prefix string    // the beginning of the biz_id. Default: all.
	Actor  string    // of the first event. Default: all.
	Tag    string    // one of the first maxTags tags of the first event's meta, at most maxTag bytes. Default: all.
	Error  string    // a part of the error. Default: all.
	From   time.Time // only tasks enqueued at this time or later, by the database's clock. Default: all.
	To     time.Time // only tasks enqueued before this time. Default: all.
	// Walk is the maximum number of events that the call reads; with Tag, of tasks with the tag. It is ignored for
	// exceptional states without Tag, for which there is an index. Default: 100,000, the maximum; with Tag or OrderKey,
	// a tenth of it.
	Walk int
	// Partition of the task, as of its last event. Default: all.
	Partition string
	// OrderKey of the task. The tasks of the line are listed by their places, the last lined up or scheduled first.
	// Default: all.
	OrderKey string
	// Worker is the beginning of the name of the worker that recorded the last event. A running task is found by the
	// worker that runs it. Default: all.
	Worker string
	// IsWithoutOwn leaves out the tasks of taskledger itself, whose kinds begin with "taskledger.".
	IsWithoutOwn bool
}

// MaxList is the largest Limit of a [TaskFilter].
const MaxList = projection.MaxList

// maxWalk is the maximum number of events that one call of ReadTasks reads. For tasks with a tag it is a tenth of this.
var maxWalk = 100_000

// maxMinutes is the maximum number of kinds and minutes that one call of ReadTasks reads to find a range of time.
var maxMinutes = 20_000

func (f TaskFilter) validate() error {
	if err := projection.CheckList(f.Kind, f.State, f.Limit); err != nil {
		return err
	}
	switch {
	case f.Walk < 0 || f.Walk > maxWalk:
		return &ledger.InvalidError{Field: "walk", Value: fmt.Sprint(f.Walk),
			Rule: fmt.Sprintf("must be between 1 and %d", maxWalk)}
	case len(f.Tag) > maxTag || !utf8.ValidString(f.Tag) || strings.ContainsRune(f.Tag, 0):
		return &ledger.InvalidError{Field: "tag", Value: f.Tag,
			Rule: fmt.Sprintf("must be UTF-8 without NUL, at most %d bytes", maxTag)}
	case !f.From.IsZero() && !f.To.IsZero() && f.From.After(f.To):
		return &ledger.InvalidError{Field: "from", Value: f.From.Format(time.RFC3339Nano),
			Rule: "must not be after " + f.To.Format(time.RFC3339Nano) + ", where the range ends"}
	case ledger.CheckPartition(f.Partition) != nil:
		return ledger.CheckPartition(f.Partition)
	case len(f.OrderKey) > maxTag || !utf8.ValidString(f.OrderKey) || strings.ContainsRune(f.OrderKey, 0):
		return &ledger.InvalidError{Field: "order_key", Value: f.OrderKey,
			Rule: fmt.Sprintf("must be UTF-8 without NUL, at most %d bytes", maxTag)}
	case f.StartAfter < 0:
		return &ledger.InvalidError{Field: "after", Value: fmt.Sprint(int64(f.StartAfter)), Rule: "must be a position"}
	}
	return nil
}

// tagPattern returns a regular expression of PostgreSQL for a meta with the tag, "" without one. Not every meta that
// JSON admits can be decoded in SQL, so it is compared as a text.
func (f TaskFilter) tagPattern() string {
	if f.Tag == "" {
		return ""
	}
	text, err := json.Marshal(f.Tag)
	if err != nil { // a string always marshals
		panic(err)
	}
	return `"tags"\s*:\s*\[[^]]*` + regexp.QuoteMeta(string(text))
}

// optionalTime returns a time as a parameter: "" for the zero time.
func optionalTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return pgquery.Time(t)
}

// ReadTasks returns tasks of the projection, the last enqueued first. It also returns next, the StartAfter of f with
// which to continue, or 0 at the end. A call reads a bounded part of the ledger; with From or To, the part between the
// tasks of their minutes. So it may return fewer tasks than the limit, even an empty slice, although there are more.
// Tasks that are not projected yet are left out, see [WaitFor].
//
// Errors: [*ledger.InvalidError], [ledger.ErrNotMigrated].
func ReadTasks(ctx context.Context, db ledger.DB, f TaskFilter) (
	found []ledger.ListedTask, next ledger.Position, err error,
) {
	if err := f.validate(); err != nil {
		return nil, 0, fmt.Errorf("read tasks: %w", err)
	}
	if f.Limit == 0 {
		f.Limit = 50
	}
	if f.StartAfter == 0 {
		f.StartAfter = math.MaxInt64
	}
	if f.Walk == 0 {
		f.Walk = maxWalk
	}
	if f.OrderKey != "" {
		return f.readLine(ctx, db)
	}
	sql, tag, walks := listNewestSQL, f.tagPattern(), true
	var after ledger.Position
	switch isTagged, err := f.isTagged(ctx, db); {
	case err != nil:
		return nil, 0, err
	case isTagged:
		f.Walk = min(f.Walk, max(1, maxWalk/10))
		sql, tag = listTaggedSQL, f.Tag
	case f.State != "" && f.State.Exceptional():
		sql, walks = listExceptionalSQL, false
	}
	if walks && !(f.From.IsZero() && f.To.IsZero()) {
		if after, err = f.narrow(ctx, db); err != nil {
			return nil, 0, err
		}
	}
	args := f.args(tag)
	if walks {
		args = append(args, int64(f.Walk), int64(after))
	}
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, 0, pgerr.Explain("read tasks", err)
	}
	if found, err = pgx.CollectRows(rows, scanTask); err != nil {
		return nil, 0, pgerr.Explain("read tasks", err)
	}
	if n := len(found); n > 0 && found[n-1].Version == 0 { // the place that the walk reached
		found, next = found[:n-1], found[n-1].Position
	} else if n == f.Limit {
		next = found[n-1].Position
	}
	return found, next, projection.AddOrderKeys(ctx, db, found)
}

// args returns the parameters that all statements have.
func (f TaskFilter) args(tag string) []any {
	return []any{string(f.Kind), string(f.State), int64(f.StartAfter), int64(f.Limit), f.Prefix, f.Actor, tag, f.Error,
		optionalTime(f.From), optionalTime(f.To), strconv.FormatBool(f.IsWithoutOwn), f.Partition, f.Worker}
}

// narrow makes f begin where its range of time ends in the ledger, and returns the position after which the range
// begins.
func (f *TaskFilter) narrow(ctx context.Context, db ledger.DB) (after ledger.Position, err error) {
	var before int64
	args := []any{optionalTime(f.From.Truncate(time.Minute)), optionalTime(f.To), int64(maxMinutes)}
	_, err = pgquery.Row(ctx, db, listBetweenSQL, args, (*int64)(&after), &before)
	f.StartAfter = min(f.StartAfter, ledger.Position(before))
	return after, pgerr.Explain("read tasks", err)
}

// isTagged reports whether the tasks are found by their tag. While the tags of earlier tasks are not added, they are
// not, and f is for a walk of events.
func (f TaskFilter) isTagged(ctx context.Context, db ledger.DB) (bool, error) {
	if f.Tag == "" {
		return false, nil
	}
	return tagsAreWhole(ctx, db)
}

func scanTask(row pgx.CollectableRow) (t ledger.ListedTask, err error) {
	err = row.Scan(columnsOf(&t)...)
	return t, err
}

// columnsOf returns where the columns of a listed task are scanned to.
func columnsOf(t *ledger.ListedTask) []any {
	return []any{(*int64)(&t.Position), (*string)(&t.Kind), (*string)(&t.BizID), (*int)(&t.Shard),
		(*string)(&t.State), (*int32)(&t.Version), (*int32)(&t.Attempt), &t.Failures, pgquery.Micros(&t.EnqueuedAt),
		pgquery.Micros(&t.UpdatedAt), &t.Error, &t.Fingerprint, pgquery.Micros(&t.DueAt),
		(*int)(&t.Priority), &t.Partition}
}
