package outbox

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
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/state_park.sql
	stateParkSQL string
	//go:embed sql/state_parked_among.sql
	stateParkedAmongSQL string
	//go:embed sql/state_parked_list.sql
	stateParkedListSQL string
	//go:embed sql/state_has_retries.sql
	stateHasRetriesSQL string
	//go:embed sql/state_retries.sql
	stateRetriesSQL string
	//go:embed sql/state_park_again.sql
	stateParkAgainSQL string
	//go:embed sql/state_unpark.sql
	stateUnparkSQL string
	//go:embed sql/state_retire_parked.sql
	stateRetireParkedSQL string
	//go:embed sql/state_swap_parked.sql
	stateSwapParkedSQL string
	//go:embed sql/state_parked_of_task.sql
	stateParkedOfTaskSQL string
	//go:embed sql/state_retry.sql
	stateRetrySQL string
	//go:embed sql/state_discard.sql
	stateDiscardSQL string
)

// SubscriberParked is an event that a subscriber has not handled.
type SubscriberParked struct {
	Position ledger.Position `json:"position"`
	Key      ledger.Key      `json:"key"`
	Version  ledger.Version  `json:"version"`
	State    string          `json:"state"`    // parked; retry: an operator wants it to be handled again; discarded
	Error    string          `json:"error"`    // "": an earlier event of the task is parked
	Failures int             `json:"failures"` // of this event
	ParkedAt time.Time       `json:"parked_at"`
}

// EventName names an event. The zero value is before the first event.
type EventName struct {
	Key     ledger.Key
	Version ledger.Version
}

// eventName names an event.
type eventName struct {
	ledger.Key

	version ledger.Version
}

// parkedSet contains the events that a page must not apply.
type parkedSet struct {
	keys      map[ledger.Key]bool // of tasks with a parked event
	discarded map[eventName]bool  // events
}

func (s parkedSet) isEmpty() bool { return len(s.keys) == 0 && len(s.discarded) == 0 }

// readParkedAmong returns the tasks among events that have an event parked under name, and the events that are
// discarded under name or discardedAs.
func readParkedAmong(
	ctx context.Context, tx pgx.Tx, name, discardedAs string, events []ledger.Event,
) (parkedSet, error) {
	var kinds, ids pgarray.Builder
	for _, e := range events {
		kinds.Add(string(e.Kind))
		ids.Add(string(e.BizID))
	}
	rows, err := tx.Query(ctx, stateParkedAmongSQL, name, discardedAs, kinds.String(), ids.String())
	if err != nil {
		return parkedSet{}, pgerr.Explain("read parked events", err)
	}
	var p eventName
	var isDiscarded bool
	set := parkedSet{keys: map[ledger.Key]bool{}, discarded: map[eventName]bool{}}
	_, err = pgx.ForEachRow(rows, []any{(*string)(&p.Kind), (*string)(&p.BizID), (*int32)(&p.version), &isDiscarded},
		func() error {
			if isDiscarded {
				set.discarded[p] = true
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
	_, err := tx.Exec(ctx, stateParkSQL, name, kinds.String(), ids.String(), versions.String(), positions.String(),
		reason)
	return pgerr.Explain("park events", err)
}

// hasRetries reports whether an operator wants parked events to be retried.
func hasRetries(ctx context.Context, db ledger.DB, name string) (has bool, err error) {
	_, err = pgquery.Row(ctx, db, stateHasRetriesSQL, []any{name}, &has)
	return has, pgerr.Explain("read parked events", err)
}

// readRetries returns the parked events of one task that an operator wants to be retried.
func readRetries(ctx context.Context, db ledger.DB, name string) ([]ledger.Event, error) {
	rows, err := db.Query(ctx, stateRetriesSQL, name)
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
	_, err := pgquery.Texts(ctx, tx, stateUnparkSQL, name, kind, id)
	return pgerr.Explain("remove parked events", err)
}

// replaceParked replaces the parked events of a reader by those of its build. Discarded ones stay.
func replaceParked(ctx context.Context, tx pgx.Tx, name, build string) error {
	retired := "retired/" + name
	if _, err := tx.Exec(ctx, stateRetireParkedSQL, name, retired); err != nil {
		return err
	}
	if err := removeParked(ctx, tx, retired, nil); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, stateSwapParkedSQL, build, name)
	return err
}

// parkAgain records that a parked event has failed again.
func parkAgain(ctx context.Context, tx pgx.Tx, name string, e ledger.Event, reason string) error {
	_, err := tx.Exec(ctx, stateParkAgainSQL, name, string(e.Kind), string(e.BizID), int64(e.Version), reason)
	return pgerr.Explain("park events", err)
}

// ReadSubscriberParked returns at most limit events that a subscriber has not handled, after an event, by key and
// version. It never commits.
//
// Errors: [*ledger.InvalidError] if limit is less than 1, [ErrUnknownSubscriber], [ledger.ErrNotMigrated].
func ReadSubscriberParked(
	ctx context.Context, db ledger.DB, name string, after EventName, limit int,
) ([]SubscriberParked, error) {
	if err := lists.CheckLimit(limit); err != nil {
		return nil, fmt.Errorf("read parked events: %w", err)
	}
	return readSubscriberParked(ctx, db, name, after, limit, false)
}

// ReadSubscriberParkedTask returns all events of a task that a subscriber has not handled, by version. It never
// commits.
//
// Errors: [ErrUnknownSubscriber], [ledger.ErrNotMigrated].
func ReadSubscriberParkedTask(
	ctx context.Context, db ledger.DB, name string, k ledger.Key,
) ([]SubscriberParked, error) {
	return readSubscriberParked(ctx, db, name, EventName{Key: k}, math.MaxInt64, true)
}

// readSubscriberParked returns the events after an event; with ofTask, only events of its task.
func readSubscriberParked(
	ctx context.Context, db ledger.DB, name string, after EventName, limit int, ofTask bool,
) ([]SubscriberParked, error) {
	reader, err := existingReader(ctx, db, name)
	if err != nil {
		return nil, err
	}
	rows, err := db.Query(ctx, stateParkedListSQL, reader, string(after.Key.Kind), string(after.Key.BizID),
		int64(after.Version), int64(limit), strconv.FormatBool(ofTask))
	if err != nil {
		return nil, pgerr.Explain("list parked events", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p SubscriberParked, err error) {
		err = row.Scan((*int64)(&p.Position), (*string)(&p.Key.Kind), (*string)(&p.Key.BizID), (*int32)(&p.Version),
			&p.State, &p.Error, &p.Failures, pgquery.Micros(&p.ParkedAt))
		return p, err
	})
	return all, pgerr.Explain("list parked events", err)
}

// existingReader returns the reader of a subscriber that exists.
func existingReader(ctx context.Context, db ledger.DB, name string) (string, error) {
	if _, err := ReadSubscriber(ctx, db, name); err != nil {
		return "", err
	}
	return feed.SubscriberReader(name)
}

// RetrySubscriberParked makes the program of a subscriber handle the parked events of a task again, and returns their
// number. If one fails, they stay parked. The act is recorded. It commits. Default of actor: the database's
// session_user.
//
// Errors: [ErrUnknownSubscriber], [ErrNotParked], [*ledger.InvalidError], [ledger.ErrNotMigrated],
// [ledger.ErrRetryTransaction].
func RetrySubscriberParked(
	ctx context.Context, db DB, name string, k ledger.Key, actor, reason string,
) (int, error) {
	o := operation.Operation{Action: operation.RetrySubscriber, Actor: actor, Reason: reason}
	return actOnParked(ctx, db, name, k, o, stateRetrySQL)
}

// DiscardSubscriberParked makes a subscriber leave out the failed event of a task, whether it is parked or stops the
// subscriber, and returns the number of such events. Events that wait for it, and later events, are handled. A rebuild
// leaves it out as well. The act is recorded. It commits. Default of actor and errors: as in [RetrySubscriberParked].
func DiscardSubscriberParked(
	ctx context.Context, db DB, name string, k ledger.Key, actor, reason string,
) (int, error) {
	o := operation.Operation{Action: operation.DiscardSubscriber, Actor: actor, Reason: reason}
	return actOnParked(ctx, db, name, k, o, stateDiscardSQL)
}

func actOnParked(
	ctx context.Context, db DB, name string, k ledger.Key, o operation.Operation, sql string,
) (int, error) {
	o.Detail = map[string]string{"subscriber": name}
	tx, err := db.Begin(ctx)
	if err != nil {
		return 0, pgerr.Explain(o.Action, err)
	}
	defer pgquery.Rollback(ctx, tx) // after the commit it does nothing
	reader, err := existingReader(ctx, tx, name)
	if err != nil {
		return 0, err
	}
	isDiscard := int64(0)
	if o.Action == operation.DiscardSubscriber {
		isDiscard = 1
	}
	versions, err := pgquery.Texts(ctx, tx, stateParkedOfTaskSQL, reader, string(k.Kind), string(k.BizID), isDiscard)
	if err != nil {
		return 0, pgerr.Explain(o.Action, err)
	}
	if len(versions) == 0 {
		return 0, fmt.Errorf("subscriber %s: no event of %s has failed: %w", name, k, ErrNotParked)
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
		err = fmt.Errorf("subscriber %s: %s: its parked events have changed meanwhile: %w", name, k,
			ledger.ErrRetryTransaction)
	}
	if err != nil {
		return 0, pgerr.Explain(o.Action, err)
	}
	return len(versions), pgerr.Explain(o.Action, tx.Commit(ctx))
}

// maxRecorded is the number of events that the record of an act names.
const maxRecorded = 100
