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

// EnqueueAndCommit is [Enqueue], and the end of its transaction: it commits in the same round
// trip. A task that is due later, or has deadlines, takes two. That the task existed already is no
// error, and the transaction is committed.
//
// If it returns an error, that is of [Enqueue]'s or what kept the transaction from being committed
// ([ErrTransactionAborted], [ErrTransactionEnded]), and the transaction has been rolled back;
// unless the connection was lost, when its outcome is unknown: running it again finds out, since
// the task of this key exists if and only if it was committed. A kind whose [Limit] says Discard
// is rejected, like one whose limit says Reject: discarding takes Enqueue and Commit.
func (t *Tx) EnqueueAndCommit(ctx context.Context, k Key, args json.RawMessage, o *EnqueueOptions) (Enqueued, error) {
	return t.finish(ctx, Entry{Key: k, Args: args, Options: o})
}

// EnqueueAndCommit is [Tx.EnqueueAndCommit] for this kind.
func (k TypedKind[A]) EnqueueAndCommit(ctx context.Context, t *Tx, id BizID, args A, o *EnqueueOptions) (Enqueued, error) {
	entry, err := k.Entry(id, args, o)
	if err != nil {
		return Enqueued{}, t.abort(ctx, fmt.Errorf("enqueue %s: %w", Key{k.name, id}, err))
	}
	return t.finish(ctx, entry)
}

// finish enqueues an entry, between its hooks, and commits.
func (t *Tx) finish(ctx context.Context, e Entry) (Enqueued, error) {
	if t.ended {
		return Enqueued{}, pgx.ErrTxClosed
	}
	answer, err := t.finishOne(ctx, e)
	if err != nil {
		answer = Enqueued{}
	}
	e.enqueued(ctx, answer, err)
	return answer, err
}

func (t *Tx) finishOne(ctx context.Context, e Entry) (Enqueued, error) {
	row, err := e.row(ctx)
	if err != nil {
		return Enqueued{}, t.abort(ctx, fmt.Errorf("enqueue %s: %w", e.Key, err))
	}
	if row.canRun {
		return Enqueued{}, t.abort(ctx, fmt.Errorf("enqueue %s: %w", e.Key, errCanRun))
	}
	if !row.timed() {
		return t.enqueueAndCommit(ctx, row)
	}
	answer, err := enqueueRow(ctx, t, row, false)
	if err != nil {
		return Enqueued{}, t.abort(ctx, countRejection(ctx, t, err))
	}
	return answer, t.Commit(ctx)
}

func (t *Tx) enqueueAndCommit(ctx context.Context, row firstEvent) (Enqueued, error) {
	batch := &pgx.Batch{}
	if t.tx == nil {
		batch = t.begin()
	} else if err := t.healthy(); err != nil {
		return Enqueued{}, t.abort(ctx, err)
	}
	begins := batch.Len()
	batch.Queue(enqueueRequiredSQL, row.enqueueArgs()...)
	batch.Queue("commit")
	results := t.conn.SendBatch(ctx, batch)
	var err error
	for i := 0; i < begins && err == nil; i++ {
		_, err = results.Exec()
	}
	var position Position
	isNew := true
	if err == nil {
		err = results.QueryRow().Scan((*int64)(&position))
		if isNew = !errors.Is(err, pgx.ErrNoRows); !isNew {
			err = nil
		}
	}
	if err == nil {
		_, err = results.Exec()
	}
	if closing := results.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return Enqueued{}, t.refused(ctx, row, err)
	}
	defer t.end()
	if isNew {
		return newlyEnqueued(row.key, position, EventEnqueued), nil
	}
	answers, err := existing(ctx, t.conn, []firstEvent{row}) // after the commit
	if err != nil {
		return Enqueued{}, err
	}
	return answers[0], nil
}

// healthy says why the transaction that has begun cannot be committed.
func (t *Tx) healthy() error {
	switch t.conn.PgConn().TxStatus() {
	case 'I':
		return errors.Join(ErrTransactionEnded, t.failed)
	case 'E':
		return ErrTransactionAborted
	}
	return nil
}

// abort ends the transaction because of cause.
func (t *Tx) abort(ctx context.Context, cause error) error {
	if t.ended {
		return cause
	}
	defer t.end()
	return rollback(ctx, t.conn, cause)
}

// refused ends the transaction because of an error of the batch that should have committed it,
// and returns what that means.
func (t *Tx) refused(ctx context.Context, row firstEvent, err error) error {
	err = rollback(ctx, t.conn, err)
	defer t.end()
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != pgerr.NotNullViolation || pg.SchemaName != "taskledger" || pg.ColumnName != "version" {
		return pgerr.Explain("enqueue "+row.key.String(), err)
	}
	_, discard, err := readExisting(ctx, t.conn, []firstEvent{row}) // nothing hinders it now, perhaps, or it exists
	switch {
	case err != nil:
	case len(discard) > 0:
		err = fmt.Errorf("enqueue %s: %w", row.key, discard[0].why)
	default:
		err = fmt.Errorf("enqueue %s: %w", row.key, ErrRetryTransaction)
	}
	return countRejection(ctx, t.conn, err)
}
