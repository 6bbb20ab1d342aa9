package ledger

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/internal/pgerr"
)

//go:embed sql/enqueue_required.sql
var enqueueRequiredSQL string

// EnqueueAndCommit enqueues a task as [Enqueue] does and commits the transaction in the same round trip. It takes two
// round trips for a task with a due time, a deadline or an order key, of a kind [TypedKind.WithSameArgs],
// or that may run again. It also commits the transaction if the task exists with the same args.
//
// It returns the errors of [Enqueue], and [ErrTransactionAborted] or [ErrTransactionEnded] if the
// transaction cannot be committed. After an error the transaction is rolled back. If the connection was
// lost, the outcome is unknown: run the transaction again, since the task exists if and only if the first
// run was committed.
//
// If a [Limit] with the policy Discard is reached, it returns an [*OverloadError]: to discard the task, call [Enqueue]
// and [Tx.Commit].
func (t *Tx) EnqueueAndCommit(ctx context.Context, k Key, args json.RawMessage, o *EnqueueOptions) (Enqueued, error) {
	return t.finish(ctx, Entry{Key: k, Args: args, Options: o})
}

// EnqueueAndCommit enqueues a task of this kind and commits t in the same round trip: see
// [Tx.EnqueueAndCommit]. If args do not encode as JSON, it rolls back and returns an [*InvalidError].
func (k TypedKind[A]) EnqueueAndCommit(
	ctx context.Context, t *Tx, id BizID, args A, o *EnqueueOptions,
) (Enqueued, error) {
	entry, err := k.Entry(id, args, o)
	if err != nil {
		return Enqueued{}, t.abort(ctx, fmt.Errorf("enqueue %s: %w", Key{k.name, id}, err))
	}
	return t.finish(ctx, entry)
}

// finish enqueues an entry, commits, and calls the entry's hooks.
func (t *Tx) finish(ctx context.Context, e Entry) (Enqueued, error) {
	if t.isEnded {
		return Enqueued{}, pgx.ErrTxClosed
	}
	answer, err := t.finishOne(ctx, e)
	if err != nil {
		answer = Enqueued{}
	}
	e.callAfter(ctx, answer, err)
	return answer, err
}

// finishOne enqueues an entry and commits.
func (t *Tx) finishOne(ctx context.Context, e Entry) (Enqueued, error) {
	row, err := e.firstEvent(ctx)
	if err != nil {
		return Enqueued{}, t.abort(ctx, fmt.Errorf("enqueue %s: %w", e.Key, err))
	}
	if row.canRun {
		return Enqueued{}, t.abort(ctx, fmt.Errorf("enqueue %s: %w", e.Key, errCanRun))
	}
	if !row.needsAll() && row.isSame == nil && !row.again() {
		return t.enqueueAndCommit(ctx, row)
	}
	answer, err := enqueueRow(ctx, t, row, false)
	if err == nil {
		err = row.checkArgs(answer)
	}
	if err != nil {
		return Enqueued{}, t.abort(ctx, countRejection(ctx, t, err))
	}
	return answer, t.Commit(ctx)
}

// enqueueAndCommit inserts a row without times and commits, in one round trip with the statements of
// AtCommit.
func (t *Tx) enqueueAndCommit(ctx context.Context, row firstEvent) (Enqueued, error) {
	var position *int64 // null: the task exists
	isCallers, err := t.commitWith(ctx,
		func(b *pgx.Batch) { b.Queue(enqueueRequiredSQL, row.enqueueRequiredArgs()...) },
		func(r pgx.BatchResults) error { return r.QueryRow().Scan(&position) })
	if isCallers {
		return Enqueued{}, t.abort(ctx, err)
	}
	if err != nil {
		return Enqueued{}, t.failEnqueue(ctx, row, err)
	}
	defer t.end()
	if position != nil {
		return newEnqueued(row.key, Position(*position), EventEnqueued), nil
	}
	answers, err := resolveExisting(ctx, t.conn, []firstEvent{row}) // outside of the transaction, which has committed
	if err != nil {
		return Enqueued{}, err
	}
	return answers[0], nil
}

// errRowsOpen is the error of a commit before the rows of a query are closed.
var errRowsOpen = errors.New("the rows of a query are open: close them before the commit")

// checkOpen returns the reason why the transaction, which has begun, cannot be committed, or nil.
func (t *Tx) checkOpen() error {
	if t.conn.PgConn().IsBusy() {
		return errRowsOpen
	}
	switch t.conn.PgConn().TxStatus() {
	case 'I':
		return errors.Join(ErrTransactionEnded, t.beginErr)
	case 'E':
		return ErrTransactionAborted
	}
	return nil
}

// abort rolls back the transaction and returns cause.
func (t *Tx) abort(ctx context.Context, cause error) error {
	if t.isEnded {
		return cause
	}
	defer t.end()
	return t.rollBack(ctx, cause)
}

// failEnqueue rolls back the transaction because of err, the error of the batch that inserts row and commits.
// It returns what err means.
func (t *Tx) failEnqueue(ctx context.Context, row firstEvent, err error) error {
	err = t.rollBack(ctx, err)
	defer t.end()
	var pg *pgconn.PgError
	if !errors.As(err, &pg) ||
		pg.Code != pgerr.NotNullViolation || pg.SchemaName != "taskledger" || pg.ColumnName != "version" {
		return pgerr.Explain("enqueue "+row.key.String(), err)
	}
	answers, discard, err := readExisting(ctx, t.conn, []firstEvent{row})
	switch {
	case err != nil:
	case len(discard) == 0 && row.checkArgs(answers[0]) != nil:
		err = row.checkArgs(answers[0])
	case len(discard) > 0:
		err = fmt.Errorf("enqueue %s: %w", row.key, discard[0].err)
	default: // the limit is no longer reached, or the task exists by now
		err = fmt.Errorf("enqueue %s: %w", row.key, ErrRetryTransaction)
	}
	return countRejection(ctx, t.conn, err)
}

// enqueueRequiredArgs returns the parameters of enqueue_required.sql.
func (r firstEvent) enqueueRequiredArgs() []any {
	accept := int64(0)
	if r.ifExists == IfExistsIgnore {
		accept = 1
	}
	return append(r.enqueueArgs(), accept)
}
