package ledger

import (
	"context"
	"errors"
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
// rolls back; isCallers reports whether it is of a statement of AtCommit, for which this package knows no cure.
func (t *Tx) commitWith(
	ctx context.Context, queue func(*pgx.Batch), read func(pgx.BatchResults) error,
) (isCallers bool, err error) {
	batch := &pgx.Batch{}
	if t.tx == nil {
		batch = t.beginBatch()
	} else if err := t.checkOpen(); err != nil {
		return false, err
	}
	first := batch.Len()
	for _, q := range t.atCommit {
		batch.Queue(q.SQL, q.Arguments...)
	}
	queue(batch)
	batch.Queue("commit")
	results := t.conn.SendBatch(ctx, batch)
	failed, err := t.readBefore(results, first)
	if err == nil {
		err = read(results)
	}
	if err == nil {
		_, err = results.Exec()
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	if n := t.unprepared(batch, first, err); n > 0 {
		failed = n
	}
	if failed > 0 {
		return true, fmt.Errorf("statement %d of AtCommit: %w", failed, err)
	}
	return false, err
}

// readBefore reads the results of the statements that begin the transaction, so many, and of those of AtCommit. failed
// is the number of the latter that failed, or 0.
func (t *Tx) readBefore(results pgx.BatchResults, begin int) (failed int, err error) {
	for range begin {
		if _, err := results.Exec(); err != nil {
			return 0, err
		}
	}
	for i := range t.atCommit {
		tag, err := results.Exec()
		if s := tag.String(); err == nil && (s == "COMMIT" || s == "ROLLBACK") {
			err = ErrTransactionEnded
		}
		if err != nil {
			return i + 1, err
		}
	}
	return 0, nil
}

// unprepared returns the number of the statement of AtCommit that could not be prepared, if that is the error, or 0.
func (t *Tx) unprepared(batch *pgx.Batch, first int, err error) int {
	var unprepared pgx.ErrPreprocessingBatch
	if !errors.As(err, &unprepared) {
		return 0
	}
	for i := range t.atCommit {
		if batch.QueuedQueries[first+i].SQL == unprepared.SQL() {
			return i + 1
		}
	}
	return 0
}

// commitAtCommit executes the statements of AtCommit and commits.
func (t *Tx) commitAtCommit(ctx context.Context) error {
	isCallers, err := t.commitWith(ctx, func(*pgx.Batch) {}, func(pgx.BatchResults) error { return nil })
	switch {
	case isCallers:
		return t.abort(ctx, err)
	case err != nil:
		return pgerr.Explain("commit", t.abort(ctx, err))
	}
	t.end()
	return nil
}
