// Package operation records the acts of operators that concern more than one task. The record of an act is a task of a
// reserved kind, enqueued and succeeded in the act's transaction: it commits if and only if the act does. An act
// outside of the database is recorded at its beginning; the record succeeds or is buried when the act has ended.
package operation

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/durably.sql
	durablySQL string
	//go:embed sql/now.sql
	nowSQL string
	//go:embed sql/open.sql
	openSQL string
)

// Kind is the kind of the tasks that record operations. The biz_id is <action>/<time of the act in UTC>.
const Kind ledger.Kind = "taskledger.operation"

// Actions. The command taskledger uses the same names.
const (
	RetryParked    = "parked.retry"
	DiscardParked  = "parked.discard"
	DismissIllegal = "illegal.dismiss"
	RebuildStream  = "stream.rebuild"
	Rebase         = "rebase"
	ImportArchive  = "archive.import"
	EraseTasks     = "erase"

	RebuildProjection = "projection.rebuild"
	ReplayEvents      = "events.replay"

	PauseKind  = "kind.pause"
	ResumeKind = "kind.resume"

	SeekSubscriber   = "subscriber.seek"
	PauseSubscriber  = "subscriber.pause"
	ResumeSubscriber = "subscriber.resume"
	DeleteSubscriber = "subscriber.delete"
	GiveSubscriber   = "subscriber.give"

	RebuildSubscriber = "subscriber.rebuild"
	RetrySubscriber   = "subscriber.retry"
	DiscardSubscriber = "subscriber.discard"
)

// MaxReasonBytes is the maximum length of a reason.
const MaxReasonBytes = 4 << 10

// DB is a pgxpool.Pool or pgx.Conn, or a pgx.Tx, whose transactions are savepoints.
type DB interface {
	ledger.DB
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Operation is an act. Its JSON is the args of its task.
type Operation struct {
	Action string `json:"action"`
	Reason string `json:"reason,omitempty"` // at most MaxReasonBytes
	Actor  string `json:"-"`                // default: the database's session_user

	Positions []ledger.Position `json:"positions,omitempty"` // of events that the act is about
	Events    []string          `json:"events,omitempty"`    // the same as <kind>/<biz_id>/<version>
	Detail    map[string]string `json:"detail,omitempty"`

	// Same are members of Detail. A record of this action with the same members belongs to the same act, for example to
	// an earlier call that was killed; it ends with this act. Default: every record of the action.
	Same map[string]string `json:"-"`
}

// Validate returns an [*ledger.InvalidError] if the reason is invalid.
func (o Operation) Validate() error { return CheckReason(o.Reason) }

// CheckReason returns an [*ledger.InvalidError] if a reason is too long, or cannot be stored as it is.
func CheckReason(reason string) error {
	rule := ""
	switch {
	case len(reason) > MaxReasonBytes:
		rule = fmt.Sprintf("must have at most %d bytes, got %d", MaxReasonBytes, len(reason))
	case !utf8.ValidString(reason):
		rule = "must be valid UTF-8"
	case strings.Contains(reason, "\x00"):
		rule = "must not contain the character NUL"
	default:
		return nil
	}
	return &ledger.InvalidError{Field: "reason", Rule: rule}
}

// Record records an operation in the transaction of the act. It does not commit.
func Record(ctx context.Context, tx pgx.Tx, o Operation) error {
	key, err := enqueue(ctx, tx, o)
	if err != nil {
		return err
	}
	return succeed(ctx, tx, key, o.Actor)
}

// endTimeout bounds the record of the end of an act, which is written although the caller's context is cancelled.
const endTimeout = 10 * time.Second

// Around records the beginning of an operation, calls act, and records whether it succeeded or failed. A failed
// operation is dead, with its error. If the process ends in between, the record stays available until the act is done
// again. Around commits, and returns the errors.
func Around(ctx context.Context, db DB, o Operation, act func(context.Context) error) error {
	key, err := Begin(ctx, db, o)
	if err != nil {
		return err
	}
	if err := act(ctx); err != nil {
		return errors.Join(err, Fail(ctx, db, key, o.Actor, err))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return End(ctx, db, o, nil)
}

// Begin records the beginning of an operation, and returns the key of the record. It commits, unless db is a
// transaction.
func Begin(ctx context.Context, db DB, o Operation) (key ledger.Key, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) (err error) {
		key, err = enqueue(ctx, tx, o)
		return err
	})
	return key, pgerr.Explain("record "+o.Action, err)
}

// Fail records that an operation has failed, unless its record has ended. It does so even if ctx is done.
func Fail(ctx context.Context, db ledger.DB, key ledger.Key, actor string, failure error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return end(ctx, db, key, actor, failure)
}

// End ends the open records of an operation: they succeed, or are dead with the error. It commits, unless db is a
// transaction.
func End(ctx context.Context, db ledger.DB, o Operation, failure error) error {
	open, err := ReadOpen(ctx, db, o.Action)
	if err != nil {
		return err
	}
	for _, one := range open {
		if !one.has(o.Same) {
			continue
		}
		if err := end(ctx, db, one.Key, o.Actor, failure); err != nil {
			return err
		}
	}
	return nil
}

// Succeed records that an operation has succeeded, unless its record has ended. It commits, unless db is a transaction.
func (o Open) Succeed(ctx context.Context, db ledger.DB, actor string) error {
	return end(ctx, db, o.Key, actor, nil)
}

// end ends a record, unless another process has.
func end(ctx context.Context, db ledger.DB, key ledger.Key, actor string, failure error) error {
	r := ledger.AppendRequest{Key: key, Expected: 1, Type: ledger.EventSucceeded, Actor: actor}
	if failure != nil {
		data, err := json.Marshal(map[string]string{"reason": printable.Storable(failure.Error(), MaxReasonBytes)})
		if err != nil {
			return err
		}
		r.Type, r.Data = ledger.EventBuried, data
	}
	_, err := ledger.Append(ctx, db, r)
	if ledger.IsConflict(err) {
		return nil
	}
	return err
}

// Open is the record of an operation that has begun and not ended.
type Open struct {
	Operation

	Key      ledger.Key
	Begun    time.Time
	Position ledger.Position // of the beginning
}

func (o Open) has(members map[string]string) bool {
	for name, value := range members {
		if o.Detail[name] != value {
			return false
		}
	}
	return true
}

// ReadOpen returns the open records of an action, among its newest 1,000, oldest first. It never commits.
func ReadOpen(ctx context.Context, db ledger.DB, action string) ([]Open, error) {
	rows, err := db.Query(ctx, openSQL, action)
	if err != nil {
		return nil, pgerr.Explain("read the records of "+action, err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (o Open, err error) {
		var args string
		o.Key.Kind = Kind
		err = row.Scan((*string)(&o.Key.BizID), &o.Actor, pgquery.Micros(&o.Begun), &args,
			(*int64)(&o.Position))
		if err != nil {
			return o, err
		}
		return o, json.Unmarshal([]byte(args), &o.Operation)
	})
	return all, pgerr.Explain("read the records of "+action, err)
}

// enqueue records that an operation begins. It does not commit.
func enqueue(ctx context.Context, tx pgx.Tx, o Operation) (ledger.Key, error) {
	if err := o.Validate(); err != nil {
		return ledger.Key{}, err
	}
	args, err := json.Marshal(o)
	if err != nil {
		return ledger.Key{}, err
	}
	var now time.Time
	if _, err := pgquery.Row(ctx, tx, nowSQL, nil, pgquery.Micros(&now)); err != nil {
		return ledger.Key{}, pgerr.Explain("record "+o.Action, err)
	}
	return begin(ctx, tx, Kind, o.Action, args, o.Actor, now)
}

func succeed(ctx context.Context, db ledger.DB, key ledger.Key, actor string) error {
	_, err := ledger.Append(ctx, db, ledger.AppendRequest{
		Key: key, Expected: 1, Type: ledger.EventSucceeded, Actor: actor,
	})
	return err
}

// Append records an act as a task of a reserved kind, whose biz_id is <subject>/<time>. It does not commit.
func Append(
	ctx context.Context, tx pgx.Tx, kind ledger.Kind, subject string, args json.RawMessage, actor string, now time.Time,
) error {
	key, err := begin(ctx, tx, kind, subject, args, actor, now)
	if err != nil {
		return err
	}
	return succeed(ctx, tx, key, actor)
}

// begin enqueues the task of an act. The transaction is on disk when it has committed: an act is acknowledged.
func begin(
	ctx context.Context, tx pgx.Tx, kind ledger.Kind, subject string, args json.RawMessage, actor string, now time.Time,
) (ledger.Key, error) {
	if _, err := tx.Exec(ctx, durablySQL); err != nil {
		return ledger.Key{}, pgerr.Explain("record "+subject, err)
	}
	// If the clock was set back, an earlier act may have this time.
	for at := now; ; at = at.Add(time.Microsecond) {
		id := subject + "/" + at.UTC().Format("2006-01-02T15:04:05.000000Z")
		key := ledger.Key{Kind: kind, BizID: ledger.BizID(id)}
		answer, err := ledger.Enqueue(reserved.Allow(ctx), tx, key, args, &ledger.EnqueueOptions{
			Actor: actor, IfExists: ledger.IfExistsIgnore,
		})
		if err != nil {
			return ledger.Key{}, fmt.Errorf("record %s: %w", subject, err)
		}
		if answer.New {
			return key, nil
		}
	}
}
