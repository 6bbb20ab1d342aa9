package rebuild

import (
	"context"
	_ "embed"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/work_want.sql
	workWantSQL string
	//go:embed sql/work_progress.sql
	workProgressSQL string
	//go:embed sql/work_end.sql
	workEndSQL string
)

// The work that an operator may ask the program of a reader for.
const (
	WorkRebuild = "rebuild"
	WorkVerify  = "verify"
)

// Ask asks the program of a subscriber for work, in a transaction that has recorded a rebuild. It reports false if the
// subscriber is not registered. It does not commit.
func Ask(ctx context.Context, tx pgx.Tx, subscriber, work string) (bool, error) {
	var version int
	found, err := pgquery.Row(ctx, tx, workWantSQL, []any{subscriber, work}, &version)
	return found, pgerr.Explain("ask for "+work+" of subscriber "+subscriber, err)
}

// Failure returns the error with which work has ended, "" if it has succeeded or not ended.
func (w Work) Failure() string {
	var failure workError
	_ = json.Unmarshal(w.Result, &failure) // a report lacks this member
	return failure.Error
}

// RecordProgress records the progress of work.
func RecordProgress(ctx context.Context, db ledger.DB, reader, work string, done, total int64) error {
	_, err := db.Exec(ctx, workProgressSQL, reader, work, done, total)
	return pgerr.Explain("record the progress of "+reader, err)
}

// RecordEnd records the result of work, or its failure, and that the request for it is done. The records of a failed
// rebuild end with it; the swap has ended the records of a successful one.
func RecordEnd(
	ctx context.Context, db operation.DB, reader, work string, result any, failure error, o operation.Operation,
) error {
	if failure != nil {
		result = workError{DescribeFailure(failure)}
	}
	text, err := json.Marshal(result)
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, workEndSQL, reader, work, string(text)); err != nil {
			return err
		}
		if work != WorkRebuild || failure == nil || o.Action == "" {
			return nil
		}
		return operation.End(ctx, tx, o, failure)
	})
	return pgerr.Explain("record the result of "+reader, err)
}

// workError is the result of work that has failed.
type workError struct {
	Error string `json:"error"`
}

// ShowProgress returns a function that records progress now and then.
func ShowProgress(
	ctx context.Context, db ledger.DB, reader, work string, log *slog.Logger,
) func(done, total int64) {
	var last time.Time
	return func(done, total int64) {
		if time.Since(last) < progressEvery {
			return
		}
		last = time.Now()
		if err := RecordProgress(ctx, db, reader, work, done, total); err != nil {
			log.DebugContext(ctx, "progress is not recorded", "error", err)
		}
	}
}

const progressEvery = 500 * time.Millisecond
