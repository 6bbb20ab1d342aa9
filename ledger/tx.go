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

//go:embed sql/guard_holds.sql
var guardHoldsSQL string

// TxOptions says how a [Tx] is. Nil means all defaults.
type TxOptions struct {
	// Isolation. Default: READ COMMITTED, whatever the server's default is.
	Isolation pgx.TxIsoLevel
	// Settings of the server that hold for the transaction, by name: statement_timeout, or what
	// row-level security looks at. They are sent along with the begin. Default: none.
	Settings map[string]string
	// Guard marks the transaction, so that [Tx.AppendAndCommit] and [Tx.IsOpen] notice when code that
	// was given it has ended it by COMMIT or ROLLBACK in SQL. The mark is sent along with the begin.
	// Default: no mark.
	Guard bool
}

// Tx is a transaction in as few round trips as can be, which are most of what a short transaction
// costs: it begins in the one of its first statement, and [EnqueueAndCommit] ends it in the one of
// the enqueue. One statement and an enqueue take two round trips, where four are usual.
//
// It is a pgx.Tx, and does in it whatever works in one. A statement without arguments may be
// several, so if it is the first it is sent after the begin; so are copies and batches. If the
// transaction cannot begin, the connection is closed, so that nothing is ever run on it outside of
// the transaction.
//
// A Tx is for one goroutine. End it by Commit, Rollback or EnqueueAndCommit; a Rollback after the
// end does nothing, so it can be deferred.
type Tx struct {
	ctx      context.Context // for Conn and LargeObjects
	conn     *pgx.Conn
	release  func() // nil: the connection is the caller's
	options  pgx.TxOptions
	settings pgx.QueuedQuery
	guard    string // value of the setting taskledger.attempt; "": not guarded

	tx     pgx.Tx // nil until it has begun; the connection's own, which knows of no end
	failed error  // why it could not begin
	ended  bool
}

// Begin returns a transaction on a connection of the pool, to which it goes back when the
// transaction has ended. ctx is that of the transaction, for those methods of pgx.Tx that take
// none. Beside taking the connection it sends nothing.
func Begin(ctx context.Context, pool *pgxpool.Pool, o *TxOptions) (*Tx, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, pgerr.Explain("begin", err)
	}
	t := BeginOn(ctx, conn.Conn(), o)
	t.release = conn.Release
	return t, nil
}

// BeginOn is [Begin] on a connection of the caller's, which must be in no transaction.
func BeginOn(ctx context.Context, conn *pgx.Conn, o *TxOptions) *Tx {
	if o == nil {
		o = &TxOptions{}
	}
	t := &Tx{ctx: ctx, conn: conn, options: pgx.TxOptions{IsoLevel: cmp.Or(o.Isolation, pgx.ReadCommitted)}}
	settings := o.Settings
	if o.Guard {
		t.guard = newGuard()
		settings = maps.Clone(settings)
		if settings == nil {
			settings = make(map[string]string)
		}
		settings["taskledger.attempt"] = t.guard
	}
	var set strings.Builder
	for i, name := range slices.Sorted(maps.Keys(settings)) {
		if i > 0 {
			set.WriteString(", ")
		}
		fmt.Fprintf(&set, "set_config($%d::text, $%d::text, true)", 2*i+1, 2*i+2)
		t.settings.Arguments = append(t.settings.Arguments, name, settings[name])
	}
	if set.Len() > 0 {
		t.settings.SQL = "select " + set.String()
	}
	return t
}

// begin returns a batch that begins the transaction.
func (t *Tx) begin() *pgx.Batch {
	b := &pgx.Batch{}
	b.BeginTx(t.options)
	if t.settings.SQL != "" {
		b.Queue(t.settings.SQL, t.settings.Arguments...)
	}
	return b
}

// Open begins the transaction, unless a statement has begun it. A failure closes the connection,
// and is what Open returns from then on.
func (t *Tx) Open(ctx context.Context) error {
	t.open(ctx)
	return t.failed
}

// open returns the transaction, begun.
func (t *Tx) open(ctx context.Context) pgx.Tx {
	switch {
	case t.tx != nil:
	case t.ended:
		t.failed = pgx.ErrTxClosed
		t.tx = pgx.FailedBatchResults(t.begin(), t.failed).Tx()
	default:
		results := t.conn.SendBatch(ctx, t.begin())
		t.tx = results.Tx()
		if err := results.Close(); err != nil {
			t.failed = errors.Join(t.failed, err)
			_ = t.conn.Close(ctx)
		} else {
			t.failed = nil
		}
	}
	return t.tx
}

// guards makes the guards of this process: a random prefix and a number.
var guards = struct {
	prefix string
	number atomic.Uint64
}{prefix: strings.ToLower(rand.Text()[:10]) + "."}

func newGuard() string { return guards.prefix + strconv.FormatUint(guards.number.Add(1), 36) }

// IsOpen reports whether the transaction that began is the one that is open and healthy on the
// connection now. It reports false where the transaction was ended by COMMIT or ROLLBACK in SQL or is
// aborted by an error. It needs [TxOptions].Guard, and takes one round trip at most.
func (t *Tx) IsOpen(ctx context.Context) (bool, error) {
	if t.ended || t.tx == nil || t.conn.IsClosed() || t.conn.PgConn().TxStatus() != 'T' {
		return false, nil
	}
	var same *bool
	if _, err := pgquery.Row(ctx, t.conn, guardHoldsSQL, []any{t.guard}, &same); err != nil {
		return false, pgerr.Explain("read the guard of the transaction", err)
	}
	return same != nil && *same, nil
}

// end gives the connection back. What was begun on it is no more to be used.
func (t *Tx) end() {
	t.ended, t.tx = true, nil
	if t.release != nil {
		t.release() // which closes it if it is broken, or still in a transaction
		t.release = nil
	}
}

// Commit commits. If nothing was done in the transaction, nothing is sent.
func (t *Tx) Commit(ctx context.Context) error {
	if t.ended {
		return pgx.ErrTxClosed
	}
	defer t.end()
	if t.tx == nil {
		return nil
	}
	return pgerr.Explain("commit", t.tx.Commit(ctx))
}

// Rollback rolls back. After the end it returns pgx.ErrTxClosed and does nothing.
func (t *Tx) Rollback(ctx context.Context) error {
	if t.ended {
		return pgx.ErrTxClosed
	}
	defer t.end()
	if t.tx == nil {
		return nil
	}
	return t.tx.Rollback(ctx)
}

// first sends the first statement along with the begin; nil if it has to be sent by itself: it is
// not the first, or not for batches (without arguments it may be several, and arguments may begin
// with options), or it cannot be prepared, which has to fail in the transaction.
func (t *Tx) first(ctx context.Context, sql string, args []any) pgx.BatchResults {
	if t.tx != nil || t.ended || len(args) == 0 {
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
func (t *Tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
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
func (t *Tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
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
func (t *Tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, _ := t.Query(ctx, sql, args...)
	return firstRow{rows}
}

// SendBatch begins, if that is not done, and sends the batch.
func (t *Tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return t.open(ctx).SendBatch(ctx, b)
}

// CopyFrom begins, if that is not done, and copies.
func (t *Tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	return t.open(ctx).CopyFrom(ctx, table, columns, source)
}

// Prepare begins, if that is not done, and prepares.
func (t *Tx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	return t.open(ctx).Prepare(ctx, name, sql)
}

// Begin opens a savepoint.
func (t *Tx) Begin(ctx context.Context) (pgx.Tx, error) { return t.open(ctx).Begin(ctx) }

// LargeObjects returns those of the transaction.
func (t *Tx) LargeObjects() pgx.LargeObjects { return t.open(t.ctx).LargeObjects() }

// Conn returns the connection, with the transaction open on it.
func (t *Tx) Conn() *pgx.Conn { return t.open(t.ctx).Conn() }

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
