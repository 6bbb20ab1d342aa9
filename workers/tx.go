package workers

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// handlerTx is what a handler gets: a transaction that it cannot end. Begin still opens a
// savepoint with a Commit and Rollback of its own. Whoever ends it all the same, by COMMIT in
// SQL, is found out by the guard, see [ledger.AppendAndCommit].
//
// It begins with its first statement, in the same round trip: a quick task, of one statement and
// the commit, takes two round trips instead of three, which is most of what it costs. If it
// cannot begin, the connection is closed, so that nothing is ever run on it outside of the
// transaction, and failed says why.
type handlerTx struct {
	holder handlerConn
	conn   *pgx.Conn       // of holder
	ctx    context.Context // of the attempt, for Conn and LargeObjects
	guard  string
	idle   time.Duration // how long the server leaves it idle; 0: as the server is set
	tx     pgx.Tx        // nil until it has begun
	failed error
}

// setTx sets the guard $1, and $2 for how many milliseconds the transaction may be idle.
const setTx = "select set_config('taskledger.attempt', $1::text, true), set_config('idle_in_transaction_session_timeout', " +
	"coalesce(nullif($2::text, ''), current_setting('idle_in_transaction_session_timeout')), true)"

// Commit returns [ErrNotYours].
func (*handlerTx) Commit(context.Context) error { return ErrNotYours }

// Rollback returns [ErrNotYours].
func (*handlerTx) Rollback(context.Context) error { return ErrNotYours }

// begin returns a batch that begins the transaction.
func (t *handlerTx) begin() *pgx.Batch {
	idle := ""
	if t.idle > 0 {
		idle = strconv.FormatInt(t.idle.Milliseconds(), 10)
	}
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	b.Queue(setTx, t.guard, idle)
	return b
}

// open returns the transaction, begun.
func (t *handlerTx) open(ctx context.Context) pgx.Tx {
	if t.tx == nil {
		results := t.conn.SendBatch(ctx, t.begin())
		t.tx = results.Tx()
		err := results.Close()
		if err != nil {
			err = errors.Join(t.failed, err)
			_ = t.conn.Close(ctx)
		}
		t.failed = err
	}
	return t.tx
}

// first sends the first statement along with the begin; nil if it has to be sent by itself: it is
// not the first, or not for batches (without arguments it may be several, and arguments may begin
// with options), or it cannot be prepared, which has to fail in the transaction.
func (t *handlerTx) first(ctx context.Context, sql string, args []any) pgx.BatchResults {
	if t.tx != nil || len(args) == 0 {
		return nil
	}
	switch args[0].(type) {
	case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
		return nil
	}
	b := t.begin()
	begins := b.Len()
	b.Queue(sql, args...)
	results := t.conn.SendBatch(ctx, b)
	for range begins {
		if _, t.failed = results.Exec(); t.failed != nil {
			_ = results.Close()
			return nil
		}
	}
	t.tx = results.Tx()
	return results
}

// Exec sends the begin along, if it is not done.
func (t *handlerTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	results := t.first(ctx, sql, args)
	if results == nil {
		return t.open(ctx).Exec(ctx, sql, args...)
	}
	tag, err := results.Exec()
	if closing := results.Close(); err == nil {
		err = closing
	}
	return tag, err
}

// Query sends the begin along, if it is not done.
func (t *handlerTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	results := t.first(ctx, sql, args)
	if results == nil {
		return t.open(ctx).Query(ctx, sql, args...)
	}
	rows, err := results.Query()
	r := &firstRows{Rows: rows, results: results}
	if err != nil {
		r.Close()
	}
	return r, err
}

// QueryRow sends the begin along, if it is not done.
func (t *handlerTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, _ := t.Query(ctx, sql, args...)
	return firstRow{rows}
}

// SendBatch begins, if that is not done, and sends the batch.
func (t *handlerTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return t.open(ctx).SendBatch(ctx, b)
}

// CopyFrom begins, if that is not done, and copies.
func (t *handlerTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	return t.open(ctx).CopyFrom(ctx, table, columns, source)
}

// Prepare begins, if that is not done, and prepares.
func (t *handlerTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	return t.open(ctx).Prepare(ctx, name, sql)
}

// Begin opens a savepoint.
func (t *handlerTx) Begin(ctx context.Context) (pgx.Tx, error) { return t.open(ctx).Begin(ctx) }

// LargeObjects returns those of the transaction.
func (t *handlerTx) LargeObjects() pgx.LargeObjects { return t.open(t.ctx).LargeObjects() }

// Conn returns the connection, with the transaction open on it.
func (t *handlerTx) Conn() *pgx.Conn { return t.open(t.ctx).Conn() }

// firstRows are the rows of a statement that was sent along with the begin. The connection is
// free again once they are closed.
type firstRows struct {
	pgx.Rows
	results pgx.BatchResults
}

// Next closes the rows after the last one.
func (r *firstRows) Next() bool {
	next := r.Rows.Next()
	if !next {
		r.Close()
	}
	return next
}

// Scan closes the rows upon an error.
func (r *firstRows) Scan(dest ...any) error {
	err := r.Rows.Scan(dest...)
	if err != nil {
		r.Close()
	}
	return err
}

// Close closes the rows and the batch.
func (r *firstRows) Close() {
	r.Rows.Close()
	_ = r.results.Close()
}

// firstRow is the first of some rows.
type firstRow struct{ rows pgx.Rows }

// Scan scans and closes.
func (r firstRow) Scan(dest ...any) error {
	defer r.rows.Close()
	if r.rows.Next() {
		_ = r.rows.Scan(dest...)
		r.rows.Close()
		return r.rows.Err()
	}
	if err := r.rows.Err(); err != nil {
		return err
	}
	return pgx.ErrNoRows
}
