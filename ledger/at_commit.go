package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
)

// AtCommit adds a statement to the end of the transaction: [Tx.EnqueueAndCommit], [Tx.AppendAndCommit] or
// [Tx.Commit] executes it in the round trip of the commit, after all statements that were sent before, in the
// order of the calls. So a business row whose result is not needed, its task and the commit take one round trip.
//
// AtCommit itself sends nothing, and Rollback drops the statement. If the statement fails, the method that commits
// returns its error and nothing of the transaction is committed. Number and rows of its result are not available: a
// transaction that decides by them uses [Tx.Exec] or [Tx.Query].
//
// sql is one statement. It is prepared before the statements of the same round trip are executed, so it cannot use a
// table that one of them creates. It must not end the transaction: [ErrTransactionEnded] is returned then, and what
// followed in the round trip may be committed.
func (t *Tx) AtCommit(sql string, args ...any) {
	t.atCommit = append(t.atCommit, pgx.QueuedQuery{SQL: sql, Arguments: args})
}

// commitWith begins the transaction if it has not begun, executes the statements of AtCommit and those that queue
// adds, and commits, in one round trip. read reads the results of those that queue added. After an error the caller
// rolls back.
func (t *Tx) commitWith(
	ctx context.Context, queue func(*pgx.Batch), read func(pgx.BatchResults) error,
) error {
	batch := &pgx.Batch{}
	if t.tx == nil {
		batch = t.beginBatch()
	} else if err := t.checkOpen(); err != nil {
		return err
	}
	beginLen := batch.Len()
	for _, q := range t.atCommit {
		batch.Queue(q.SQL, q.Arguments...)
	}
	queue(batch)
	batch.Queue("commit")
	results := t.conn.SendBatch(ctx, batch)
	err := t.readBefore(results, beginLen)
	if err == nil {
		err = read(results)
	}
	if err == nil {
		_, err = results.Exec()
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	return err
}

// readBefore reads the results of beginLen statements that begin the transaction and of those of AtCommit.
func (t *Tx) readBefore(results pgx.BatchResults, beginLen int) error {
	for range beginLen {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	for i := range t.atCommit {
		tag, err := results.Exec()
		if s := tag.String(); err == nil && (s == "COMMIT" || s == "ROLLBACK") {
			err = ErrTransactionEnded
		}
		if err != nil {
			return fmt.Errorf("statement %d of AtCommit: %w", i+1, err)
		}
	}
	return nil
}

// commitAtCommit executes the statements of AtCommit and commits.
func (t *Tx) commitAtCommit(ctx context.Context) error {
	err := t.commitWith(ctx, func(*pgx.Batch) {}, func(pgx.BatchResults) error { return nil })
	if err != nil {
		return pgerr.Explain("commit", t.abort(ctx, err))
	}
	t.end()
	return nil
}
