package projector

import (
	"context"
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/eventrows"
	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/parked_add.sql
	parkedAddSQL string
	//go:embed sql/parked_among.sql
	parkedAmongSQL string
	//go:embed sql/parked_list.sql
	parkedListSQL string
	//go:embed sql/parked_has_retries.sql
	parkedHasRetriesSQL string
	//go:embed sql/parked_retries.sql
	parkedRetriesSQL string
	//go:embed sql/parked_again.sql
	parkedAgainSQL string
	//go:embed sql/parked_remove.sql
	parkedRemoveSQL string
	//go:embed sql/swap_retire_parked.sql
	swapRetireParkedSQL string
	//go:embed sql/swap_parked.sql
	swapParkedSQL string
	//go:embed sql/parked_of_task.sql
	parkedOfTaskSQL string
	//go:embed sql/parked_retry.sql
	parkedRetrySQL string
	//go:embed sql/parked_skip.sql
	parkedSkipSQL string
)

// ParkedEvent is an event that a projection has not applied.
type ParkedEvent struct {
	Position ledger.Position `json:"position"`
	Key      ledger.Key      `json:"key"`
	Version  ledger.Version  `json:"version"`
	State    string          `json:"state"`    // parked; retry: an operator wants it to be tried again; skipped
	Error    string          `json:"error"`    // "": an earlier event of the task is parked
	Failures int             `json:"failures"` // of this event
	ParkedAt time.Time       `json:"parked_at"`
}

// parkedEvent names an event.
type parkedEvent struct {
	ledger.Key

	version ledger.Version
}

// parkedSet contains the events that a page must not apply.
type parkedSet struct {
	keys    map[ledger.Key]bool  // of tasks with a parked event
	skipped map[parkedEvent]bool // events
}

func (s parkedSet) isEmpty() bool { return len(s.keys) == 0 && len(s.skipped) == 0 }

// readParkedAmong returns the tasks among events that have an event parked under name, and the events that are skipped
// under name or skippedAs.
func readParkedAmong(ctx context.Context, tx pgx.Tx, name, skippedAs string, events []ledger.Event) (parkedSet, error) {
	var kinds, ids pgarray.Builder
	for _, e := range events {
		kinds.Add(string(e.Kind))
		ids.Add(string(e.BizID))
	}
	rows, err := tx.Query(ctx, parkedAmongSQL, name, skippedAs, kinds.String(), ids.String())
	if err != nil {
		return parkedSet{}, pgerr.Explain("read parked events", err)
	}
	var p parkedEvent
	var isSkipped bool
	set := parkedSet{keys: map[ledger.Key]bool{}, skipped: map[parkedEvent]bool{}}
	_, err = pgx.ForEachRow(rows, []any{(*string)(&p.Kind), (*string)(&p.BizID), (*int32)(&p.version), &isSkipped},
		func() error {
			if isSkipped {
				set.skipped[p] = true
			} else {
				set.keys[p.Key] = true
			}
			return nil
		})
	return set, pgerr.Explain("read parked events", err)
}

// addParked parks events. If reason is not "", the first of them has failed.
func addParked(ctx context.Context, tx pgx.Tx, name string, events []ledger.Event, reason string) error {
	if len(events) == 0 {
		return nil
	}
	var kinds, ids, versions, positions pgarray.Builder
	for _, e := range events {
		kinds.Add(string(e.Kind))
		ids.Add(string(e.BizID))
		versions.AddInt(int64(e.Version))
		positions.AddInt(int64(e.Position))
	}
	_, err := tx.Exec(ctx, parkedAddSQL, name, kinds.String(), ids.String(), versions.String(), positions.String(),
		reason)
	return pgerr.Explain("park events", err)
}

// hasRetries reports whether an operator wants parked events to be retried.
func hasRetries(ctx context.Context, db ledger.DB, name string) (has bool, err error) {
	_, err = pgquery.Row(ctx, db, parkedHasRetriesSQL, []any{name}, &has)
	return has, pgerr.Explain("read parked events", err)
}

// readRetries returns the parked events of one task that an operator wants to be retried.
func readRetries(ctx context.Context, db ledger.DB, name string) ([]ledger.Event, error) {
	rows, err := db.Query(ctx, parkedRetriesSQL, name)
	if err != nil {
		return nil, pgerr.Explain("read parked events", err)
	}
	var events []ledger.Event
	for e, err := range eventrows.Scan(rows) {
		if err != nil {
			return nil, pgerr.Explain("read parked events", err)
		}
		events = append(events, e)
	}
	return events, nil
}

// removeParked removes the parked events of a task, which have been applied, or with nil all events of a name.
func removeParked(ctx context.Context, tx pgx.Tx, name string, k *ledger.Key) error {
	var kind, id *string
	if k != nil {
		kind, id = (*string)(&k.Kind), (*string)(&k.BizID)
	}
	_, err := pgquery.Texts(ctx, tx, parkedRemoveSQL, name, kind, id)
	return pgerr.Explain("remove parked events", err)
}

// replaceParked replaces the parked events of a projection by those of its build. Skipped ones stay.
func replaceParked(ctx context.Context, tx pgx.Tx, name, build string) error {
	retired := name + "+retired"
	if _, err := tx.Exec(ctx, swapRetireParkedSQL, name, retired); err != nil {
		return err
	}
	if err := removeParked(ctx, tx, retired, nil); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, swapParkedSQL, build, name)
	return err
}

// parkAgain records that a parked event has failed again.
func parkAgain(ctx context.Context, tx pgx.Tx, name string, e ledger.Event, reason string) error {
	_, err := tx.Exec(ctx, parkedAgainSQL, name, string(e.Kind), string(e.BizID), int64(e.Version), reason)
	return pgerr.Explain("park events", err)
}

// ReadProjectionParked returns at most limit events that a projection has not applied, after an event, by key and
// version. The zero EventName is before the first event. It never commits.
//
// Errors: [*ledger.InvalidError] if limit is less than 1, [ErrUnknownProjection], [ledger.ErrNotMigrated].
func ReadProjectionParked(
	ctx context.Context, db ledger.DB, name string, after EventName, limit int,
) ([]ParkedEvent, error) {
	if err := lists.CheckLimit(limit); err != nil {
		return nil, fmt.Errorf("read parked events: %w", err)
	}
	return readParked(ctx, db, name, after, limit, false)
}

// ReadParkedTask returns all events of a task that a projection has not applied, by version. It never commits.
//
// Errors: [ErrUnknownProjection], [ledger.ErrNotMigrated].
func ReadParkedTask(ctx context.Context, db ledger.DB, name string, k ledger.Key) ([]ParkedEvent, error) {
	return readParked(ctx, db, name, EventName{Key: k}, math.MaxInt64, true)
}

// readParked returns the events after an event; with ofTask, only events of its task.
func readParked(
	ctx context.Context, db ledger.DB, name string, after EventName, limit int, ofTask bool,
) ([]ParkedEvent, error) {
	if err := mustExist(ctx, db, name); err != nil {
		return nil, err
	}
	rows, err := db.Query(ctx, parkedListSQL, name, string(after.Key.Kind), string(after.Key.BizID),
		int64(after.Version), int64(limit), strconv.FormatBool(ofTask))
	if err != nil {
		return nil, pgerr.Explain("list parked events", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p ParkedEvent, err error) {
		err = row.Scan((*int64)(&p.Position), (*string)(&p.Key.Kind), (*string)(&p.Key.BizID), (*int32)(&p.Version),
			&p.State, &p.Error, &p.Failures, pgquery.Micros(&p.ParkedAt))
		return p, err
	})
	return all, pgerr.Explain("list parked events", err)
}

func mustExist(ctx context.Context, db ledger.DB, name string) error {
	_, err := ReadProjection(ctx, db, name)
	return err
}

// DB is a pgxpool.Pool or pgx.Conn, or a pgx.Tx, whose transactions are savepoints.
type DB = operation.DB

// Act is the author and the reason of an act of an operator.
type Act struct {
	Actor  string // Default: the database's session_user.
	Reason string // Default: none.
}

// RetryParkedTask makes the program that runs a projection apply the parked events of a task again, and returns their
// number. If one fails, they stay parked. The act is recorded. It commits.
//
// Errors: [ErrUnknownProjection], [ErrNotParked], [*ledger.InvalidError], [ledger.ErrNotMigrated],
// [ledger.ErrRetryTransaction].
func RetryParkedTask(ctx context.Context, db DB, name string, k ledger.Key, a Act) (int, error) {
	return actOnParked(ctx, db, name, k, a, operation.RetryProjection, parkedRetrySQL)
}

// SkipParkedTask makes a projection skip the failed event of a task, whether it is parked or stops the projection, and
// returns the number of such events. Events that wait for it, and later events, are applied. A rebuild skips it as
// well. The act is recorded. It commits.
//
// Errors: [ErrUnknownProjection], [ErrNotParked], [*ledger.InvalidError], [ledger.ErrNotMigrated],
// [ledger.ErrRetryTransaction].
func SkipParkedTask(ctx context.Context, db DB, name string, k ledger.Key, a Act) (int, error) {
	return actOnParked(ctx, db, name, k, a, operation.SkipProjection, parkedSkipSQL)
}

func actOnParked(ctx context.Context, db DB, name string, k ledger.Key, a Act, action, sql string,
) (int, error) {
	o := operation.Operation{
		Action: action, Actor: a.Actor, Reason: a.Reason, Detail: map[string]string{"projection": name},
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		return 0, pgerr.Explain(action, err)
	}
	defer pgquery.Rollback(ctx, tx) // after the commit it does nothing
	if err := mustExist(ctx, tx, name); err != nil {
		return 0, err
	}
	versions, err := pgquery.Texts(ctx, tx, parkedOfTaskSQL, name, string(k.Kind), string(k.BizID),
		number(action == operation.SkipProjection))
	if err != nil {
		return 0, pgerr.Explain(action, err)
	}
	if len(versions) == 0 {
		return 0, fmt.Errorf("projection %s: %s: %w", name, k, ErrNotParked)
	}
	for _, v := range versions[:min(len(versions), maxRecorded)] {
		o.Events = append(o.Events, k.String()+"/"+v)
	}
	o.Detail["events"] = strconv.Itoa(len(versions))
	if err := operation.Record(ctx, tx, o); err != nil {
		return 0, err
	}
	done, err := pgquery.Texts(ctx, tx, sql, name, string(k.Kind), string(k.BizID))
	if err == nil && !slices.Equal(done, versions) {
		err = fmt.Errorf("projection %s: %s: its parked events have changed meanwhile: %w", name, k,
			ledger.ErrRetryTransaction)
	}
	if err != nil {
		return 0, pgerr.Explain(action, err)
	}
	return len(versions), pgerr.Explain(action, tx.Commit(ctx))
}

// number returns 1 for true and 0 for false.
func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// maxRecorded is the number of events that the record of an act names.
const maxRecorded = 100
