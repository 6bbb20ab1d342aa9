package ledger

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
)

var (
	//go:embed sql/append_required.sql
	appendRequiredSQL string
	//go:embed sql/append_required_read.sql
	appendRequiredReadSQL string
	//go:embed sql/incarnation_is.sql
	incarnationIsSQL string
)

// errOtherRun is the error of an append after an event that the database may have lost. The transaction is rolled
// back.
var errOtherRun = errors.New("the database has crashed or was replaced since the task was read")

// The statements for each type of event.
var appendRequired, appendRequiredRead = appendRequiredByType()

func appendRequiredByType() (required, read map[EventType]string) {
	required, read = make(map[EventType]string, len(transitions)), make(map[EventType]string, len(transitions))
	for _, t := range transitions {
		predecessors, attemptEnds := t.Type.predecessors()
		required[t.Type] = strings.NewReplacer(
			"$8::pg_catalog.text", "'"+string(t.Type)+"'", "$9::pg_catalog.text", "'"+pgarray.Of(predecessors...)+"'",
			"$10::pg_catalog.text", "'"+pgarray.Of(attemptEnds...)+"'",
		).Replace(appendRequiredSQL)
		read[t.Type] = strings.ReplaceAll(appendRequiredReadSQL, "$14::pg_catalog.text", "'"+string(t.Type)+"'")
	}
	return required, read
}

// queue adds the append to a batch.
func (r *AppendRequest) queue(batch *pgx.Batch, guard string) {
	args := make([]any, 0, 13)
	args = append(args, string(r.Key.Kind), string(r.Key.BizID), int64(r.Expected), pgquery.Optional(r.Actor),
		pgquery.JSON(r.Data), pgquery.JSON(r.Meta), guard)
	if attempt, ok := r.attemptAfterRead(); ok && r.last.OrderKey == "" {
		args = append(args, int64(attempt), int64(r.last.Shard), r.last.Incarnation,
			int64(r.last.Priority), pgquery.Optional(r.last.Partition), r.last.Position)
		batch.Queue(appendRequiredRead[r.Type], args...)
		return
	}
	batch.Queue(appendRequired[r.Type], args...)
}

// AppendAndCommit appends events and commits, in one round trip: either all of it happens or nothing.
// It needs [TxOptions].Guard. If code in the transaction has ended it by COMMIT or ROLLBACK in SQL,
// nothing is appended or committed, even if another transaction has been begun since. It sets no timer:
// requests with In or At are invalid.
//
// After an error the transaction is rolled back. If the connection was lost, the outcome is unknown.
// It returns [ErrTransactionEnded] or [ErrTransactionAborted] if the transaction cannot be committed.
// Otherwise it returns the error of [Append] for the first event that was not appended.
func (t *Tx) AppendAndCommit(ctx context.Context, requests ...AppendRequest) ([]Event, error) {
	if t.isEnded {
		return nil, pgx.ErrTxClosed
	}
	if err := t.checkAppend(requests); err != nil {
		return nil, t.abort(ctx, err)
	}
	events := make([]Event, len(requests))
	last := 0 // the last request whose result was read: if err is set, the failed request
	isCallers, err := t.commitWith(ctx, func(b *pgx.Batch) {
		for i := range requests {
			requests[i].queue(b, t.guard)
		}
	}, func(results pgx.BatchResults) error {
		for i, r := range requests {
			e := &events[i]
			*e, last = r.newEvent(), i
			if err := results.QueryRow().Scan((*int64)(&e.Position), (*int32)(&e.Attempt), (*int)(&e.Shard),
				(*eventType)(&e.Type), (*int)(&e.Priority), (*pgquery.Repeated)(&e.Partition),
				(*pgquery.Repeated)(&e.OrderKey), pgquery.Micros(&e.RecordedAt), (*pgquery.Repeated)(&e.Login),
				nil); err != nil {
				return err
			}
			e.Version, e.Actor = r.Expected+1, cmp.Or(r.Actor, e.Login)
		}
		return nil
	})
	switch {
	case isCallers:
		return nil, t.abort(ctx, err)
	case err == nil:
		t.end()
		return events, nil
	}
	return nil, t.failAppend(ctx, requests[last], err)
}

// checkAppend returns an [*InvalidError] if [Tx.AppendAndCommit] does not accept the requests.
func (t *Tx) checkAppend(requests []AppendRequest) error {
	switch {
	case t.guard == "":
		return &InvalidError{Field: "guard", Rule: "must be set: begin with TxOptions.Guard"}
	case len(requests) == 0:
		return &InvalidError{Field: "requests", Rule: "must not be empty"}
	}
	for _, r := range requests {
		if err := r.validate(); err != nil {
			return fmt.Errorf("append to %s: %w", r.Key, err)
		}
		if !(dueTime{r.In, r.At}).isZero() {
			return &InvalidError{Field: "at", Rule: "must not be set here: use Append"}
		}
	}
	return nil
}

// failAppend rolls back the transaction because of err, the error of request r, and returns what err means.
func (t *Tx) failAppend(ctx context.Context, r AppendRequest, err error) error {
	err = pgerr.Explain("append to "+r.Key.String(), t.rollBack(ctx, err))
	defer t.end()
	if !isNotAppended(err) {
		return err
	}
	// The transaction is rolled back, so the head is read outside of it.
	if conflict := readConflict(ctx, t.conn, r); conflict != nil {
		return fmt.Errorf("append to %s: %w", r.Key, conflict)
	}
	if r.hasRead() {
		var isSame bool
		_, err := pgquery.Row(ctx, t.conn, incarnationIsSQL, []any{r.last.Incarnation}, &isSame)
		if err == nil && !isSame {
			err = errOtherRun
		}
		if err != nil {
			return pgerr.Explain("append to "+r.Key.String(), err)
		}
	}
	return ErrTransactionEnded // the head is as expected, so the guard was not set
}
