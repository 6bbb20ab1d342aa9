package projector

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/abandon"
	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
)

// TasksName is the name of the built-in projection: the tables task, task_count, kind_stats, kind_hour,
// illegal_event and task_tag.
const TasksName = "tasks"

// transact calls apply in the transaction of a page, after advance.
func (p *tasks) transact(
	ctx context.Context, db *pgxpool.Pool, advance func(pgx.Tx) error, apply func(pgx.Tx) error,
) error {
	return p.inPage(ctx, db, func(tx pgx.Tx) error {
		if err := advance(tx); err != nil {
			return err
		}
		if err := apply(tx); err != nil {
			return err
		}
		fault.Point("projector.applied")
		return nil
	})
}

// inPage calls f in the transaction of a page, and commits it.
func (p *tasks) inPage(ctx context.Context, db *pgxpool.Pool, f func(pgx.Tx) error) error {
	return abandon.WithConn(ctx, db, func(conn *pgx.Conn) error {
		tx, err := p.begin(ctx, conn)
		if err != nil {
			return pgerr.Explain("begin", err)
		}
		defer pgquery.Rollback(ctx, tx) // no effect after the commit
		if err := f(tx); err != nil {
			return err
		}
		return pgerr.Explain("commit", tx.Commit(ctx))
	})
}

// logger returns a logger that is not nil.
func logger(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.Default()
	}
	return log
}
