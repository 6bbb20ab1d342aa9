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
)

var (
	//go:embed sql/append.sql
	appendSQL string
	//go:embed sql/appended.sql
	appendedSQL string
	//go:embed sql/head.sql
	headSQL string
)

// AppendRequest is one event to append to a task that exists.
type AppendRequest struct {
	Key      Key
	Expected Version // of the task's last event; the new one gets Expected+1
	Type     EventType
	Actor    string          // empty: the database's session_user
	Data     json.RawMessage // nil: none
	Meta     json.RawMessage // nil: none

	// After or At, at most one of them, is when the task is released again: some time after the
	// database appends the event, by its clock, or at a moment; one that is past is now. Only for
	// scheduled and snoozed, which need it, and for failed, whose task otherwise waits until
	// somebody releases it. The database writes the moment it decided on into the data, which
	// must be an object or nil: run_at, or retry_at of failed.
	After time.Duration // to the microsecond, rounded up; 0: none
	At    time.Time     // to the microsecond, before the year 9999; zero: none

	// Resent says that this request was sent before and that its answer was lost. If the event at
	// Expected+1 is the one asked for (type, actor, data and meta are the same), it is returned,
	// and there is no conflict. Only for requests that nobody else could have sent: the data names
	// the sender and the occasion. One with After or At is not recognized.
	Resent bool
}

func (r AppendRequest) validate() error {
	if err := r.Key.Validate(); err != nil {
		return err
	}
	if _, ok := transition(r.Type); !ok {
		return &InvalidError{Field: "type", Value: string(r.Type), Rule: "must be an event type"}
	}
	if r.Type.beginsOnly() {
		return &InvalidError{Field: "type", Value: string(r.Type), Rule: "begins a task: use Enqueue"}
	}
	if r.Expected < 1 {
		return &InvalidError{Field: "expected version", Value: strconv.Itoa(int(r.Expected)), Rule: "must be at least 1"}
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
	return r.checkDue()
}

// Append appends one event if the task's last event has the expected version and the
// transition table allows it (compare-and-set on the primary key). The attempt is counted and
// the shard copied by the database. It takes one statement, never commits, and waits for a
// concurrent append to the same task to end.
//
// Errors: [*InvalidError] before anything is sent; [ErrUnknownTask], [*ConflictError] with the
// version found, [*TransitionError]: nothing was written and the transaction stays usable;
// [ErrRetryTransaction] in a REPEATABLE READ or SERIALIZABLE transaction that lost a race.
func Append(ctx context.Context, db DB, r AppendRequest) (Event, error) {
	if err := r.validate(); err != nil {
		return Event{}, fmt.Errorf("append to %s: %w", r.Key, err)
	}
	e := r.event()
	var data *string
	after, at := due{r.After, r.At}.texts()
	found, err := pgquery.Row(ctx, db, appendSQL, append(r.args(), pgquery.Optional(after), pgquery.Optional(at)), append(e.returned(), &data)...)
	if err != nil {
		return Event{}, pgerr.Explain("append to "+r.Key.String(), err)
	}
	if !found {
		return notAppended(ctx, db, r)
	}
	e.stored(data)
	return e, nil
}

// rollbackTimeout bounds a rollback, which may not be cut short by the end of the caller's time.
const rollbackTimeout = 5 * time.Second

// rollback ends the transaction on conn, if it still can, and returns cause.
func rollback(ctx context.Context, conn *pgx.Conn, cause error) error {
	if !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		if _, err := conn.Exec(ctx, "rollback"); err != nil {
			return fmt.Errorf("%w (and rollback: %w)", cause, err)
		}
	}
	return cause
}

// event is what will be stored, but for what the database decides.
func (r AppendRequest) event() Event {
	return Event{Key: r.Key, Type: r.Type, Data: r.Data, Meta: r.Meta}
}

// returned is where the columns that the database decides are scanned to.
func (e *Event) returned() []any {
	return []any{(*int64)(&e.Position), (*int32)(&e.Version), (*int32)(&e.Attempt), (*int)(&e.Shard), &e.RecordedAt, &e.Actor}
}

// stored completes an event that was appended: data as it stands in the database, if it may
// differ from what was sent.
func (e *Event) stored(data *string) {
	e.RecordedAt = e.RecordedAt.UTC()
	if data != nil {
		e.Data = json.RawMessage(*data)
	}
}

func (r AppendRequest) args() []any {
	follows, begins := r.Type.follows()
	return []any{
		string(r.Key.Kind), string(r.Key.BizID), int64(r.Expected), string(r.Type), pgquery.Optional(r.Actor), pgquery.JSON(r.Data),
		pgarray.Of(follows...), pgarray.Of(begins...), pgquery.JSON(r.Meta),
	}
}

// follows returns the types of the events that t may follow, and of those after which it
// belongs to a new attempt.
func (t EventType) follows() (may, begins []string) {
	for _, last := range transitions {
		if t.allowedAfter(last.To) {
			may = append(may, string(last.Type))
			if t.beginsAttempt(last.To) {
				begins = append(begins, string(last.Type))
			}
		}
	}
	return may, begins
}

// notAppended answers for an append that inserted nothing: by the event that the request had
// inserted before, or by why not.
func notAppended(ctx context.Context, db DB, r AppendRequest) (Event, error) {
	if r.Resent {
		e := r.event()
		found, err := pgquery.Row(ctx, db, appendedSQL, []any{string(r.Key.Kind), string(r.Key.BizID), int64(r.Expected),
			string(r.Type), pgquery.Optional(r.Actor), pgquery.JSON(r.Data), pgquery.JSON(r.Meta)}, e.returned()...)
		if err != nil {
			return Event{}, pgerr.Explain("append to "+r.Key.String(), err)
		}
		if found {
			e.stored(nil)
			return e, nil
		}
	}
	why := whyNot(ctx, db, r)
	if why == nil {
		why = ErrRetryTransaction // the winner of the race rolled back after all
	}
	return Event{}, fmt.Errorf("append to %s: %w", r.Key, why)
}

// whyNot explains, by a statement of its own, an append that inserted nothing; nil if the task
// is as the request expected it.
func whyNot(ctx context.Context, db DB, r AppendRequest) error {
	var version int64
	var last string
	found, err := pgquery.Row(ctx, db, headSQL, []any{string(r.Key.Kind), string(r.Key.BizID)}, &version, &last)
	state := EventType(last).State()
	switch {
	case err != nil:
		return pgerr.Explain("read head", err)
	case !found:
		return ErrUnknownTask
	case Version(version) != r.Expected:
		return &ConflictError{Key: r.Key, Expected: r.Expected, Found: Version(version), State: state}
	case !r.Type.allowedAfter(state):
		return &TransitionError{Key: r.Key, Type: r.Type, State: state}
	}
	return nil
}
