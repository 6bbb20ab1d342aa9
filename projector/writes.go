package projector

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/internal/pgerr"
)

// writes are statements that are sent in one round trip. On a busy machine, each one waits for a turn of a processor.
type writes struct {
	batch pgx.Batch
	names []string // of the statements
	done  int      // how many have succeeded
}

// add adds a statement. name begins its error. checked is called with its result, which may be an error; nil: not.
func (w *writes) add(name, sql string, args []any, checked func(pgconn.CommandTag) error) {
	w.names = append(w.names, name)
	w.batch.Queue(sql, args...).Exec(func(tag pgconn.CommandTag) error {
		if checked != nil {
			if err := checked(tag); err != nil {
				return err
			}
		}
		w.done++
		return nil
	})
}

// addQuery adds a statement, whose rows are given to read.
func (w *writes) addQuery(name, sql string, args []any, read func(pgx.Rows) error) {
	w.names = append(w.names, name)
	w.batch.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		err := read(rows)
		if err == nil {
			w.done++
		}
		return err
	})
}

// failed returns the name of the first statement that has not succeeded.
func (w *writes) failed() string { return w.names[min(w.done, len(w.names)-1)] }

// send executes the statements in their order, up to the first failure.
func (w *writes) send(ctx context.Context, tx pgx.Tx) error {
	if len(w.names) == 0 {
		return nil
	}
	err := tx.SendBatch(ctx, &w.batch).Close()
	return pgerr.Explain(w.failed(), err)
}
