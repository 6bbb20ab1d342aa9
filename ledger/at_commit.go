package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
)

// AtCommit adds a statement to the end of the transaction: [Tx.EnqueueAndCommit], [Tx.AppendAndCommit] or [Tx.Commit]
// executes it in the round trip of the commit. So a business row whose result is not needed, its task and the commit
// take one round trip.
//
// The statements of AtCommit are executed in the order of their calls, after all statements of [Tx.Exec] and
// [Tx.Query], even later ones. So use Exec to insert a row that such a statement needs, for example by a foreign key.
// Number and rows of the result are not available: a transaction that depends on them uses Exec or Query.
//
// AtCommit itself sends nothing, and Rollback drops the statement; a rollback to a savepoint does not. If the statement
// fails, the method that commits returns its error with the number of the statement, and nothing of the transaction is
// committed.
//
// sql is one statement. It is prepared before the statements of the same round trip are executed, so it cannot use a
// table that one of them creates. A statement that the connection has not prepared yet takes one more round trip, and
// with the simple protocol of pgx each takes its own.
//
// The method that commits returns an [*InvalidError] for arguments that do not suit the statement, an empty statement,
// a COPY, and a statement that ends the transaction or rolls it back, even to a savepoint.
func (t *Tx) AtCommit(sql string, args ...any) {
	t.atCommit = append(t.atCommit, pgx.QueuedQuery{SQL: sql, Arguments: slices.Clone(args)})
}

// firstWord returns the first word of a statement, behind spaces and comments. PostgreSQL's comments nest.
func firstWord(sql string) string {
	for {
		sql = strings.TrimLeft(sql, " \t\n\r\f\v;")
		switch {
		case strings.HasPrefix(sql, "--"):
			end := strings.IndexAny(sql, "\n\r")
			if end < 0 {
				return ""
			}
			sql = sql[end:]
		case strings.HasPrefix(sql, "/*"):
			sql = afterComment(sql)
		default:
			end := strings.IndexFunc(sql, func(r rune) bool { return r != '_' && !unicode.In(r, unicode.L, unicode.N) })
			if end < 0 {
				end = len(sql)
			}
			return sql[:end]
		}
	}
}

// afterComment returns the text behind the comment with which sql begins.
func afterComment(sql string) string {
	depth := 0
	for i := 0; i < len(sql)-1; i++ {
		switch sql[i : i+2] {
		case "/*":
			depth++
		case "*/":
			depth--
		default:
			continue
		}
		i++
		if depth == 0 {
			return sql[i+1:]
		}
	}
	return ""
}

// checkAtCommit returns an [*InvalidError] if a statement of AtCommit would end the transaction, or would not have the
// result of a single statement.
func (t *Tx) checkAtCommit() error {
	for i, q := range t.atCommit {
		rule := ""
		switch strings.ToLower(firstWord(q.SQL)) {
		case "commit", "end", "rollback", "abort", "prepare":
			rule = "must not end the transaction or roll it back"
		case "copy":
			rule = "must not be COPY: use Tx.CopyFrom"
		default:
			if q.SQL != "" { // which pgx does not expect
				continue
			}
			rule = "must not be empty"
		}
		return &InvalidError{Field: fmt.Sprintf("statement %d of AtCommit", i+1), Value: q.SQL, Rule: rule}
	}
	return nil
}

// executeBefore executes the statements of AtCommit before the final statements, if the connection cannot send all of
// them together. In the simple protocol one of them may be several, with several results. It returns the number of the
// failed statement, or 0.
func (t *Tx) executeBefore(ctx context.Context) (failed int, err error) {
	describes := t.session != nil && t.tx != nil && describesFirst(t.conn)
	if !describes && t.conn.Config().DefaultQueryExecMode != pgx.QueryExecModeSimpleProtocol {
		return 0, nil
	}
	for i, q := range t.atCommit {
		if _, err := t.Exec(ctx, q.SQL, q.Arguments...); err != nil {
			return i + 1, err
		}
	}
	t.atCommit = nil
	if describes {
		_, err = t.Exec(ctx, t.session.roleText())
	}
	return 0, err
}

// commitWith begins the transaction if it has not begun, executes the statements of AtCommit and the statements that
// queue adds, and commits, in one round trip. read reads the results of the latter. After an error the caller rolls
// back; isCallers reports whether a statement of AtCommit failed, for which this package knows no cure.
func (t *Tx) commitWith(
	ctx context.Context, queue func(*pgx.Batch), read func(pgx.BatchResults) error,
) (isCallers bool, err error) {
	if t.durable {
		t.AtCommit(commitDurablySQL)
		t.durable = false
	}
	if err := t.checkAtCommit(); err != nil {
		return true, err
	}
	if t.tx != nil {
		if err := t.checkOpen(); err != nil {
			return false, err
		}
	} else if err := t.readSession(ctx); err != nil {
		return false, err
	}
	failed, err := t.executeBefore(ctx)
	if err == nil {
		failed, err = t.sendEnd(ctx, queue, read)
	}
	if failed > 0 {
		return true, explainAtCommit(ctx, failed, err)
	}
	return false, err
}

// explainAtCommit returns the error of a statement of AtCommit. An error that comes neither from the server nor from
// the connection comes from the arguments.
func explainAtCommit(ctx context.Context, number int, err error) error {
	name := fmt.Sprintf("statement %d of AtCommit", number)
	isOfServer := pgerr.Code(err) != "" || pgerr.IsRetryable(err) || ctx.Err() != nil
	if !isOfServer {
		return &InvalidError{Field: name, Rule: err.Error()}
	}
	return fmt.Errorf("%s: %w", name, err)
}

// sendEnd is commitWith for statements that are sent together. failed is the number of the failed statement of
// AtCommit, or 0.
//
// The statements that queue adds come last. But if the transaction begins here and its session will be reset, they
// come first: no code of the caller has set another role or encoding yet, so nothing has to be restored before them.
func (t *Tx) sendEnd(
	ctx context.Context, queue func(*pgx.Batch), read func(pgx.BatchResults) error,
) (failed int, err error) {
	batch := &pgx.Batch{}
	ownFirst, restores := t.session != nil && t.tx == nil, t.session != nil && t.tx != nil
	if t.tx == nil {
		batch = t.beginBatch()
	}
	first := batch.Len()
	if ownFirst {
		queue(batch)
	}
	for _, q := range t.atCommit {
		batch.Queue(q.SQL, q.Arguments...)
	}
	if restores {
		batch.Queue(sessionRoleSQL, t.session.login, t.session.role, t.session.encoding)
	}
	if !ownFirst {
		queue(batch)
	}
	batch.Queue("commit")
	if t.session != nil {
		batch.Queue(sessionResetSQL, t.session.settings, t.session.login, t.session.role)
	}
	results := t.conn.SendBatch(ctx, batch)
	err = skip(results, first)
	if err == nil && ownFirst {
		err = read(results)
	}
	if err == nil {
		failed, err = t.readAtCommit(results)
	}
	if err == nil && restores {
		err = skip(results, 1)
	}
	if err == nil && !ownFirst {
		err = read(results)
	}
	if err == nil {
		err = skip(results, 1)
	}
	isCommitted := err == nil
	switch closeErr := results.Close(); {
	case isCommitted && t.session != nil && closeErr != nil: // the session could not be reset
		_ = t.conn.Close(ctx)
	case isCommitted:
		err = closeErr
	}
	var unprepared pgx.ErrPreprocessingBatch // returned at the first result, for any statement
	if errors.As(err, &unprepared) {
		failed = 1 + slices.IndexFunc(t.atCommit, func(q pgx.QueuedQuery) bool { return q.SQL == unprepared.SQL() })
	}
	return failed, err
}

// skip reads the results of n statements and ignores them.
func skip(results pgx.BatchResults, n int) error {
	for range n {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	return nil
}

// readAtCommit reads the results of the statements of AtCommit. failed is the number of the failed statement, or 0.
func (t *Tx) readAtCommit(results pgx.BatchResults) (failed int, err error) {
	for i := range t.atCommit {
		if _, err := results.Exec(); err != nil {
			return i + 1, err
		}
	}
	return 0, nil
}

// commitWithAll executes the statements of AtCommit, commits, and resets the session, in one round trip.
func (t *Tx) commitWithAll(ctx context.Context) error {
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
