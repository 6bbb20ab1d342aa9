package ledger

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
)

var (
	//go:embed sql/guard_holds.sql
	guardHoldsSQL string
	//go:embed sql/commit_durably.sql
	commitDurablySQL string
)

// TxOptions are the options of [Begin] and [BeginOn]. Nil means all defaults.
type TxOptions struct {
	// Isolation is the isolation level. Default: READ COMMITTED, even if the server's default differs.
	Isolation pgx.TxIsoLevel
	// Settings are server settings for the transaction, by name: statement_timeout, or a setting that
	// row-level security reads. They are sent together with the begin. Default: no settings.
	Settings map[string]string
	// Durable makes the commit wait for the server's disk even if synchronous_commit is off, for a commit that is
	// acknowledged to others. This is sent together with the commit. Default: synchronous_commit decides.
	Durable bool
	// Guard marks the transaction, so that [Tx.AppendAndCommit] and [Tx.IsOpen] detect that code in it has ended it by
	// COMMIT or ROLLBACK in SQL. The mark is sent together with the begin. Default: no mark.
	Guard bool
	// ResetSession undoes everything that code in the transaction sets for the session: settings, the role, advisory
	// locks, LISTEN and temporary tables. This happens at the end of the transaction, in the same round trip. The
	// session is then as it was before the first such transaction on the connection, which takes a few more round trips
	// to read it. Events of [Tx.AppendAndCommit] are inserted with the role of that time. If [Tx.AtCommit] sends a
	// transaction's only statements, its events are inserted first.
	//
	// Prepared statements and cursors WITH HOLD remain. Advisory locks, channels and temporary tables that the session
	// had before are dropped, too. Custom settings (with a dot in their name) are reset to their values in the address,
	// the login or the database. A connection that cannot be reset is closed. Default: false.
	ResetSession bool
}

// Tx is a transaction that saves round trips: it begins together with its first statement, and [Tx.EnqueueAndCommit]
// or [Tx.AppendAndCommit] commits together with the last. One statement and an enqueue take two round trips instead of
// four, and one if the statement is sent by [Tx.AtCommit].
//
// Use Exec or Query for a statement whose result decides whether to go on, and AtCommit for a statement whose result
// is not needed. A transaction that enqueues several tasks calls [Enqueue] or [EnqueueMany] for all but the last.
//
// It is a pgx.Tx and supports all of its methods. The begin is sent separately before a statement without
// arguments, which may be several statements, and before a batch or a copy. If the transaction cannot begin,
// the connection is closed, so that no statement runs outside of the transaction.
//
// A Tx is not safe for concurrent use. End it by Commit, Rollback, EnqueueAndCommit or AppendAndCommit. After
// the end Rollback does nothing, so it can be deferred.
type Tx struct {
	ctx      context.Context // for Conn and LargeObjects
	conn     *pgx.Conn
	release  func() // returns the connection to its pool; nil: the connection is the caller's
	options  pgx.TxOptions
	settings pgx.QueuedQuery
	durable  bool
	guard    string   // value of the setting taskledger.attempt; "": no guard
	resets   bool     // TxOptions.ResetSession
	session  *session // set before it begins, if resets
	atCommit []pgx.QueuedQuery

	tx       pgx.Tx // nil until it has begun; it belongs to the connection, so its state does not change at the end
	beginErr error  // the error of a failed begin
	isEnded  bool
}

// Begin returns a transaction on a connection of the pool, which is returned to the pool when the transaction ends. It
// acquires the connection and sends nothing. ctx is used by the methods of pgx.Tx that take no context. It returns an
// error if it cannot acquire a connection.
func Begin(ctx context.Context, pool *pgxpool.Pool, o *TxOptions) (*Tx, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, pgerr.Explain("begin", err)
	}
	t := BeginOn(ctx, conn.Conn(), o)
	t.release = conn.Release
	return t, nil
}

// BeginOn is [Begin] on the caller's connection, which must not be in a transaction and stays the caller's.
func BeginOn(ctx context.Context, conn *pgx.Conn, o *TxOptions) *Tx {
	if o == nil {
		o = &TxOptions{}
	}
	t := &Tx{
		ctx: ctx, conn: conn, options: pgx.TxOptions{IsoLevel: cmp.Or(o.Isolation, pgx.ReadCommitted)},
		durable: o.Durable, resets: o.ResetSession,
	}
	arguments := make([]any, 0, 2*len(o.Settings)+2)
	for _, name := range slices.Sorted(maps.Keys(o.Settings)) {
		arguments = append(arguments, name, o.Settings[name])
	}
	if o.Guard {
		t.guard = newGuard()
		arguments = append(arguments, "taskledger.attempt", t.guard)
	}
	if len(arguments) > 0 {
		t.settings.SQL, t.settings.Arguments = setSQL(len(arguments)/2), arguments
	}
	return t
}

// setOne and setTwo are the statements that workers use.
var setOne, setTwo = newSetSQL(1), newSetSQL(2)

// setSQL returns a statement that sets n settings for the transaction: $1 name, $2 value, and so on.
func setSQL(n int) string {
	switch n {
	case 1:
		return setOne
	case 2:
		return setTwo
	}
	return newSetSQL(n)
}

func newSetSQL(n int) string {
	var set strings.Builder
	set.WriteString("select ")
	for i := range n {
		if i > 0 {
			set.WriteString(", ")
		}
		fmt.Fprintf(&set, "pg_catalog.set_config($%d::pg_catalog.text, $%d::pg_catalog.text, true)", 2*i+1, 2*i+2)
	}
	return set.String()
}

// beginBatch returns a batch that begins the transaction.
func (t *Tx) beginBatch() *pgx.Batch {
	b := &pgx.Batch{}
	b.BeginTx(t.options)
	if t.settings.SQL != "" {
		b.Queue(t.settings.SQL, t.settings.Arguments...)
	}
	return b
}

// Open begins the transaction, unless a statement has begun it. A failure closes the connection; later calls
// return the same error.
func (t *Tx) Open(ctx context.Context) error {
	t.open(ctx)
	return t.beginErr
}

// open returns the transaction, which it begins if necessary.
func (t *Tx) open(ctx context.Context) pgx.Tx {
	switch {
	case t.tx != nil:
	case t.isEnded:
		t.beginErr = pgx.ErrTxClosed
		t.tx = pgx.FailedBatchResults(t.beginBatch(), t.beginErr).Tx()
	default:
		batch := t.beginBatch()
		err := t.readSession(ctx)
		if err != nil {
			t.tx = pgx.FailedBatchResults(batch, err).Tx()
		} else {
			results := t.conn.SendBatch(ctx, batch)
			t.tx = results.Tx()
			err = results.Close()
		}
		if err != nil {
			t.beginErr = errors.Join(t.beginErr, err)
			_ = t.conn.Close(ctx)
		} else {
			t.beginErr = nil
		}
	}
	return t.tx
}

// readSession reads the session before the transaction begins, if it is to be reset.
func (t *Tx) readSession(ctx context.Context) (err error) {
	if t.resets && t.session == nil {
		t.session, err = readSession(ctx, t.conn)
	}
	return err
}

// guards contains the random prefix of this process and the number of its last guard.
var guards = struct {
	prefix string
	number atomic.Uint64
}{prefix: strings.ToLower(rand.Text()[:10]) + "."}

// newGuard returns a guard that is unique.
func newGuard() string { return guards.prefix + strconv.FormatUint(guards.number.Add(1), 36) }

// IsOpen reports whether the transaction is open and can be committed. It reports false if code ended it by
// COMMIT or ROLLBACK in SQL, even if another transaction has been begun since, or if an error aborted it.
// It needs [TxOptions].Guard and takes at most one round trip.
func (t *Tx) IsOpen(ctx context.Context) (bool, error) {
	if t.isEnded || t.tx == nil || t.conn.IsClosed() || t.conn.PgConn().TxStatus() != 'T' {
		return false, nil
	}
	var same *bool
	if _, err := pgquery.Row(ctx, t.conn, guardHoldsSQL, []any{t.guard}, &same); err != nil {
		return false, pgerr.Explain("read the guard of the transaction", err)
	}
	return same != nil && *same, nil
}

// end marks the transaction as ended and releases the connection.
func (t *Tx) end() {
	t.isEnded, t.tx, t.atCommit = true, nil, nil
	if t.release != nil {
		t.release() // closes the connection if it is broken or still in a transaction
		t.release = nil
	}
}

// Commit commits. It sends nothing for a transaction without statements. After the end it returns pgx.ErrTxClosed.
func (t *Tx) Commit(ctx context.Context) error {
	if t.isEnded {
		return pgx.ErrTxClosed
	}
	if len(t.atCommit) > 0 || t.tx != nil && (t.session != nil || t.durable) {
		return t.commitWithAll(ctx)
	}
	defer t.end()
	if t.tx == nil {
		return nil
	}
	return pgerr.Explain("commit", t.tx.Commit(ctx))
}

// Rollback rolls back. It sends nothing if the transaction has not begun. After the end it returns
// pgx.ErrTxClosed.
func (t *Tx) Rollback(ctx context.Context) error {
	if t.isEnded {
		return pgx.ErrTxClosed
	}
	defer t.end()
	if t.tx == nil {
		return nil
	}
	if t.session != nil {
		return t.rollBack(ctx, nil)
	}
	return t.tx.Rollback(ctx)
}

// rollBack rolls back the transaction, if one is open, and returns cause with the error of the rollback. It resets the
// session, or closes the connection.
func (t *Tx) rollBack(ctx context.Context, cause error) error {
	if t.session == nil {
		return rollback(ctx, t.conn, cause)
	}
	if t.conn.IsClosed() {
		return cause
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	if pgerr.Is(cause, pgerr.InvalidStatementName) { // pgx would continue to use statements that are gone
		_ = t.conn.Close(ctx)
		return cause
	}
	if _, err := t.conn.Exec(ctx, t.session.rollbackText()); err != nil {
		_ = t.conn.Close(ctx)
		return joinRollback(cause, err)
	}
	return cause
}

// sendFirst sends the first statement together with the begin. It returns nil if the statement must be sent
// separately: it is not the first; it has no arguments, so it may be several statements; its arguments begin with
// options of pgx; or it cannot be prepared, an error that must occur within the transaction.
func (t *Tx) sendFirst(ctx context.Context, sql string, args []any) pgx.BatchResults {
	if t.tx != nil || t.isEnded || len(args) == 0 {
		return nil
	}
	switch args[0].(type) {
	case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
		return nil
	}
	if t.readSession(ctx) != nil { // open returns the error
		return nil
	}
	b := t.beginBatch()
	beginLen := b.Len()
	b.Queue(sql, args...)
	results := t.conn.SendBatch(ctx, b)
	for range beginLen {
		if _, t.beginErr = results.Exec(); t.beginErr != nil {
			_ = results.Close()
			return nil
		}
	}
	t.tx = results.Tx()
	return results
}

// Exec executes a statement as [pgx.Tx] does. It begins the transaction in the same round trip if necessary.
func (t *Tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	results := t.sendFirst(ctx, sql, args)
	if results == nil {
		return t.open(ctx).Exec(ctx, sql, args...)
	}
	tag, err := results.Exec()
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	return tag, err
}

// Query executes a query as [pgx.Tx] does. It begins the transaction in the same round trip if necessary.
func (t *Tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	results := t.sendFirst(ctx, sql, args)
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

// QueryRow executes a query for one row as [pgx.Tx] does. It begins the transaction in the same round trip if
// necessary.
func (t *Tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, _ := t.Query(ctx, sql, args...)
	return firstRow{rows}
}

// SendBatch begins the transaction if necessary and sends the batch.
func (t *Tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return t.open(ctx).SendBatch(ctx, b)
}

// CopyFrom begins the transaction if necessary and copies rows into a table.
func (t *Tx) CopyFrom(
	ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource,
) (int64, error) {
	return t.open(ctx).CopyFrom(ctx, table, columns, source)
}

// Prepare begins the transaction if necessary and prepares a statement.
func (t *Tx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	return t.open(ctx).Prepare(ctx, name, sql)
}

// Begin begins the transaction if necessary and creates a savepoint.
func (t *Tx) Begin(ctx context.Context) (pgx.Tx, error) { return t.open(ctx).Begin(ctx) }

// LargeObjects begins the transaction if necessary and returns its large objects.
func (t *Tx) LargeObjects() pgx.LargeObjects { return t.open(t.ctx).LargeObjects() }

// Conn begins the transaction if necessary and returns its connection.
func (t *Tx) Conn() *pgx.Conn { return t.open(t.ctx).Conn() }

// firstRows are the rows of a statement that was sent together with the begin. The connection cannot be used
// until they are closed.
type firstRows struct {
	pgx.Rows
	results pgx.BatchResults
}

// Next closes the rows after the last row.
func (r *firstRows) Next() bool {
	next := r.Rows.Next()
	if !next {
		r.Close()
	}
	return next
}

// Scan closes the rows after an error.
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

// firstRow is the first row of rows.
type firstRow struct{ rows pgx.Rows }

// Scan scans the first row and closes the rows. It returns pgx.ErrNoRows if there is no row.
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
