package subscribers

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/state_parked_list.sql
	stateParkedListSQL string
	//go:embed sql/state_parked_of_task.sql
	stateParkedOfTaskSQL string
	//go:embed sql/state_retry.sql
	stateRetrySQL string
	//go:embed sql/state_discard.sql
	stateDiscardSQL string
)

// ErrNotParked is the error of a retry or a discard of an event that is not parked.
var ErrNotParked = errors.New("the event is not parked")

// Parked is an event that a subscriber has not handled.
type Parked struct {
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

// ReadParked returns at most limit events that a subscriber has not handled, after an event, by key and
// version. It never commits.
//
// Errors: [*ledger.InvalidError] if limit is less than 1, [ErrUnknown], [ledger.ErrNotMigrated].
func ReadParked(
	ctx context.Context, db ledger.DB, name string, after EventName, limit int,
) ([]Parked, error) {
	if err := lists.CheckLimit(limit); err != nil {
		return nil, fmt.Errorf("read parked events: %w", err)
	}
	return readSubscriberParked(ctx, db, name, after, limit, false)
}

// ReadParkedOf returns all events of a task that a subscriber has not handled, by version. It never
// commits.
//
// Errors: [ErrUnknown], [ledger.ErrNotMigrated].
func ReadParkedOf(
	ctx context.Context, db ledger.DB, name string, k ledger.Key,
) ([]Parked, error) {
	return readSubscriberParked(ctx, db, name, EventName{Key: k}, math.MaxInt64, true)
}

// readSubscriberParked returns the events after an event; with ofTask, only events of its task.
func readSubscriberParked(
	ctx context.Context, db ledger.DB, name string, after EventName, limit int, ofTask bool,
) ([]Parked, error) {
	reader, err := Reader(ctx, db, name)
	if err != nil {
		return nil, err
	}
	rows, err := db.Query(ctx, stateParkedListSQL, reader, string(after.Key.Kind), string(after.Key.BizID),
		int64(after.Version), int64(limit), strconv.FormatBool(ofTask))
	if err != nil {
		return nil, pgerr.Explain("list parked events", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p Parked, err error) {
		err = row.Scan((*int64)(&p.Position), (*string)(&p.Key.Kind), (*string)(&p.Key.BizID), (*int32)(&p.Version),
			&p.State, &p.Error, &p.Failures, pgquery.Micros(&p.ParkedAt))
		return p, err
	})
	return all, pgerr.Explain("list parked events", err)
}

// Reader returns the reader of a subscriber that exists.
func Reader(ctx context.Context, db ledger.DB, name string) (string, error) {
	if _, err := Read(ctx, db, name); err != nil {
		return "", err
	}
	return feed.SubscriberReader(name)
}

// RetryParked makes the program of a subscriber handle the parked events of a task again, and returns their
// number. If one fails, they stay parked. The act is recorded. It commits. Default of actor: the database's
// session_user.
//
// Errors: [ErrUnknown], [ErrNotParked], [*ledger.InvalidError], [ledger.ErrNotMigrated],
// [ledger.ErrRetryTransaction].
func RetryParked(
	ctx context.Context, db DB, name string, k ledger.Key, actor, reason string,
) (int, error) {
	o := operation.Operation{Action: operation.RetrySubscriber, Actor: actor, Reason: reason}
	return actOnParked(ctx, db, name, k, o, stateRetrySQL)
}

// DiscardParked makes a subscriber leave out the failed event of a task, whether it is parked or stops the
// subscriber, and returns the number of such events. Events that wait for it, and later events, are handled. A rebuild
// leaves it out as well. The act is recorded. It commits. Default of actor and errors: as in [RetryParked].
func DiscardParked(
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
	reader, err := Reader(ctx, tx, name)
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
