package ledger

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/unexported"
)

var (
	//go:embed sql/append.sql
	appendSQL string
	//go:embed sql/appended.sql
	appendedSQL string
	//go:embed sql/conflict.sql
	conflictSQL string
)

// AppendRequest is one event to append to an existing task.
type AppendRequest struct {
	// Key of the task. [Key.ValidateStored] applies to it.
	Key Key
	// Expected is the version of the task's last event. The new event gets Expected+1.
	Expected Version
	Type     EventType
	// Actor is the author of the event. Default: the database's session_user.
	Actor string
	// Data is JSON, see [EventType]. Default: no data.
	Data json.RawMessage
	// Meta is JSON, see [Meta]. Default: no meta.
	Meta json.RawMessage

	// In is the delay until the task is released again, counted from the append by the database's
	// clock, in microseconds, rounded up. Default: no release.
	//
	// scheduled and snoozed need In or At. failed takes one of them; without it the task stays
	// retrying until an operator releases it. Other types take neither.
	// The database writes the time into Data as run_at, or retry_at for failed.
	// So Data must then be an object without that member, or nil.
	In time.Duration
	// At is the time at which the task is released again, in place of In: microseconds, before the last microsecond
	// of the year 9998. A time in the past means now. Default: no release.
	At time.Time
	// Priority is the task's priority from this event on, only with type scheduled. Default: it keeps its priority.
	Priority Priority

	resent bool                 // see unexported.SetResent
	last   unexported.LastEvent // see unexported.SetLastEvent
}

func init() {
	unexported.SetLastEvent = func(request any, last unexported.LastEvent) { request.(*AppendRequest).last = last }
	unexported.SetResent = func(request any) { request.(*AppendRequest).resent = true }
	unexported.ScanEvents, unexported.LoadFinished = scanEvents, loadFinishedTasks
}

// hasRead reports whether last describes the event at Expected.
func (r *AppendRequest) hasRead() bool {
	return r.last.Incarnation != "" && r.last.Position > 0 && Version(r.last.Version) == r.Expected && !r.resent
}

// attemptAfterRead returns the attempt of the new event, computed from last. It returns false if last was not read, or
// if [Transitions] does not allow the new event after it.
func (r *AppendRequest) attemptAfterRead() (Attempt, bool) {
	last := State(r.last.State)
	switch {
	case !r.hasRead() || !r.Type.canBeAppended(last):
		return 0, false
	case r.Type.beginsAttempt(last):
		return Attempt(r.last.Attempt) + 1, true
	}
	return Attempt(r.last.Attempt), true
}

// validate returns an [*InvalidError] for the first rule that r breaks.
func (r AppendRequest) validate() error {
	if err := r.Key.ValidateStored(); err != nil {
		return err
	}
	if _, ok := transition(r.Type); !ok {
		return &InvalidError{Field: "type", Value: string(r.Type), Rule: "must be an event type"}
	}
	if r.Type.isFirstOnly() {
		rule := "begins a task and cannot be appended: use Enqueue"
		return &InvalidError{Field: "type", Value: string(r.Type), Rule: rule}
	}
	if r.Type == EventLinedUp {
		rule := "cannot be appended: append released, which lines up a task with an order key"
		return &InvalidError{Field: "type", Value: string(r.Type), Rule: rule}
	}
	if r.Expected < 1 {
		version := strconv.Itoa(int(r.Expected))
		return &InvalidError{Field: "expected version", Value: version, Rule: "must be at least 1"}
	}
	if err := checkActor(r.Actor); err != nil {
		return err
	}
	if err := checkJSON("data", r.Data); err != nil {
		return err
	}
	if err := checkMeta(r.Meta); err != nil {
		return err
	}
	if r.Priority != 0 && r.Type != EventScheduled {
		rule := "must be set with type scheduled alone"
		return &InvalidError{Field: "priority", Value: strconv.Itoa(int(r.Priority)), Rule: rule}
	}
	if err := r.Priority.Validate(); err != nil {
		return err
	}
	return r.checkDue()
}

// Append appends one event if the task's last event has the expected version and [Transitions] allows the new event: a
// compare-and-set on the primary key. The database counts the attempt and copies the shard. Append takes one statement
// and waits until a concurrent append to the same task commits or rolls back. It never commits.
//
// It returns an [*InvalidError] before anything is sent. After [ErrUnknownTask], a [*ConflictError] or a
// [*TransitionError] nothing was written, and the transaction stays usable. A REPEATABLE READ or SERIALIZABLE
// transaction that lost a race gets [ErrRetryTransaction].
func Append(ctx context.Context, db DB, r AppendRequest) (Event, error) {
	if err := r.validate(); err != nil {
		return Event{}, fmt.Errorf("append to %s: %w", r.Key, err)
	}
	e := r.newEvent()
	var data *string
	after, at := dueTime{r.In, r.At}.params()
	args := append(r.args(), pgquery.Optional(after), pgquery.Optional(at), r.priority())
	ok, err := pgquery.Row(ctx, db, appendSQL, args, append(e.scanTargets(), &data)...)
	if err != nil {
		return Event{}, pgerr.Explain("append to "+r.Key.String(), err)
	}
	if !ok {
		return resolveAppend(ctx, db, r)
	}
	e.setStored(data)
	return e, nil
}

// rollbackTimeout bounds a rollback, which runs to its end even if the caller's context is cancelled.
const rollbackTimeout = 5 * time.Second

// rollback rolls back the transaction on conn, if one is open, and returns cause.
func rollback(ctx context.Context, conn *pgx.Conn, cause error) error {
	if !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		if _, err := conn.Exec(ctx, "rollback"); err != nil {
			return joinRollback(cause, err)
		}
	}
	return cause
}

func joinRollback(cause, err error) error {
	if cause == nil {
		return err
	}
	return fmt.Errorf("%w (and rollback: %w)", cause, err)
}

// newEvent returns the event to append, without the columns that the database sets.
func (r AppendRequest) newEvent() Event {
	return Event{Key: r.Key, Type: r.Type, DataVersion: 1, Data: r.Data, Meta: r.Meta}
}

// scanTargets returns pointers to the fields that the database sets, in the order of append.sql.
func (e *Event) scanTargets() []any {
	return []any{
		(*int64)(&e.Position), (*int32)(&e.Version), (*int32)(&e.Attempt), (*int)(&e.Shard), (*eventType)(&e.Type),
		(*int)(&e.Priority), (*pgquery.Repeated)(&e.Partition), (*pgquery.Repeated)(&e.OrderKey),
		pgquery.Micros(&e.RecordedAt), (*pgquery.Repeated)(&e.Actor), (*pgquery.Repeated)(&e.Login),
	}
}

// setStored completes an event after the scan. data is nil unless the stored data may differ from the data sent.
func (e *Event) setStored(data *string) {
	if data != nil {
		e.Data = json.RawMessage(*data)
	}
}

// args returns the first nine parameters of append.sql.
func (r AppendRequest) args() []any {
	predecessors, attemptEnds := r.Type.predecessors()
	return []any{
		string(r.Key.Kind), string(r.Key.BizID), int64(r.Expected), string(r.Type), pgquery.Optional(r.Actor),
		pgquery.JSON(r.Data), pgarray.Of(predecessors...), pgarray.Of(attemptEnds...), pgquery.JSON(r.Meta),
	}
}

// priority returns the twelfth parameter of append.sql.
func (r AppendRequest) priority() any {
	if r.Priority == 0 {
		return nil
	}
	return int64(r.Priority)
}

// predecessors returns the types of the events that t may follow, and the types among them after which t begins a new
// attempt.
func (t EventType) predecessors() (all, attemptEnds []string) {
	for _, last := range transitions {
		if t.canBeAppended(last.To) {
			all = append(all, string(last.Type))
			if t.beginsAttempt(last.To) {
				attemptEnds = append(attemptEnds, string(last.Type))
			}
		}
	}
	return all, attemptEnds
}

// resolveAppend returns the result of an append that inserted nothing: the event that a resent request
// inserted before, or the error.
func resolveAppend(ctx context.Context, db DB, r AppendRequest) (Event, error) {
	if r.resent {
		e := r.newEvent()
		args := []any{
			string(r.Key.Kind), string(r.Key.BizID), int64(r.Expected), string(r.Type), pgquery.Optional(r.Actor),
			pgquery.JSON(r.Data), pgquery.JSON(r.Meta),
		}
		ok, err := pgquery.Row(ctx, db, appendedSQL, args, e.scanTargets()...)
		if err != nil {
			return Event{}, pgerr.Explain("append to "+r.Key.String(), err)
		}
		if ok {
			e.setStored(nil)
			return e, nil
		}
	}
	err := readConflict(ctx, db, r)
	if err == nil {
		err = ErrRetryTransaction // the winner of the race has rolled back
	}
	return Event{}, fmt.Errorf("append to %s: %w", r.Key, err)
}

// readConflict reads the task's head and returns the error that it implies for r, nil if the head is as r expects.
func readConflict(ctx context.Context, db DB, r AppendRequest) error {
	var version int64
	var last string
	ok, err := pgquery.Row(ctx, db, conflictSQL, []any{string(r.Key.Kind), string(r.Key.BizID)}, &version, &last)
	state := EventType(last).State()
	switch {
	case err != nil:
		return pgerr.Explain("read head", err)
	case !ok:
		return ErrUnknownTask
	case Version(version) != r.Expected:
		return &ConflictError{Key: r.Key, Expected: r.Expected, Found: Version(version), State: state}
	case !r.Type.canBeAppended(state):
		return &TransitionError{Key: r.Key, Type: r.Type, State: state}
	}
	return nil
}
