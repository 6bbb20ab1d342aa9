package ledger

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
)

//go:embed sql/append_required.sql
var appendRequiredSQL string

// AppendAndCommit appends events and commits, in one round trip: all of it happens or nothing. It
// needs [TxOptions].Guard. If code in the transaction has ended it by COMMIT or ROLLBACK in SQL,
// nothing is appended or committed, also where another transaction is open by then. It sets no timer:
// requests with After or At are invalid.
//
// After an error the transaction is rolled back. If the connection was lost its outcome is unknown.
// Errors: [ErrTransactionEnded] or [ErrTransactionAborted] if the transaction was not open and healthy,
// and those of [Append] for the first event that was not appended.
func (t *Tx) AppendAndCommit(ctx context.Context, requests ...AppendRequest) ([]Event, error) {
	if t.ended {
		return nil, pgx.ErrTxClosed
	}
	if err := t.checkAppend(requests); err != nil {
		return nil, t.abort(ctx, err)
	}
	batch := &pgx.Batch{}
	if t.tx == nil {
		batch = t.begin()
	} else if err := t.healthy(); err != nil {
		return nil, t.abort(ctx, err)
	}
	begins := batch.Len()
	for _, r := range requests {
		batch.Queue(appendRequiredSQL, append(r.args(), t.guard)...)
	}
	batch.Queue("commit")
	results := t.conn.SendBatch(ctx, batch)
	var err error
	for i := 0; i < begins && err == nil; i++ {
		_, err = results.Exec()
	}
	events := make([]Event, len(requests))
	failed := 0 // the request that was not appended, if one was not
	for i := 0; i < len(requests) && err == nil; i++ {
		events[i], failed = requests[i].event(), i
		err = results.QueryRow().Scan(events[i].returned()...)
		events[i].RecordedAt = events[i].RecordedAt.UTC()
	}
	if err == nil {
		_, err = results.Exec()
	}
	if closing := results.Close(); err == nil {
		err = closing
	}
	if err == nil {
		t.end()
		return events, nil
	}
	return nil, t.notAppended(ctx, requests[failed], err)
}

// checkAppend returns an [*InvalidError] for what [Tx.AppendAndCommit] cannot carry out.
func (t *Tx) checkAppend(requests []AppendRequest) error {
	switch {
	case t.guard == "":
		return &InvalidError{Field: "guard", Rule: "must be set: TxOptions.Guard"}
	case len(requests) == 0:
		return &InvalidError{Field: "requests", Rule: "must be at least one"}
	}
	for _, r := range requests {
		if err := r.validate(); err != nil {
			return fmt.Errorf("append to %s: %w", r.Key, err)
		}
		if !(due{r.After, r.At}).isZero() {
			return &InvalidError{Field: "at", Rule: "cannot be carried out with a commit: use Append"}
		}
	}
	return nil
}

// notAppended ends the transaction because of the error of a request, and returns what the error means.
func (t *Tx) notAppended(ctx context.Context, r AppendRequest, err error) error {
	err = pgerr.Explain("append to "+r.Key.String(), rollback(ctx, t.conn, err))
	defer t.end()
	if !isNotAppended(err) {
		return err
	}
	// The transaction is gone. Why it appended nothing is read outside of it.
	if why := whyNot(ctx, t.conn, r); why != nil {
		return fmt.Errorf("append to %s: %w", r.Key, why)
	}
	return ErrTransactionEnded // the task is as expected, so the guard was not
}
