package attempt

import (
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/internal/pgarray"
)

//go:embed sql/begin.sql
var beginSQL string

// permitFresh is how long taking a permit, or a connection afterwards, may last: a process may have been suspended
// meanwhile. The database counts a permit for 10 s without an event (taskledger_internal.permit_lasts), and the start
// is recorded a second after the handler began.
const permitFresh = 3 * time.Second

// permitRequest requests the permits of an attempt. result gets one value: whether the attempt has them.
type permitRequest struct {
	attempt *Attempt
	result  chan bool
}

// takePermits takes the permits of the attempt's limits, without an event. It reports whether the attempt has them, and
// they are fresh. If not, its start must be recorded first, which keeps a permit that it has: while the database is
// slow, another permit would not be fresh either. Called again, it renews them.
func (a *Attempt) takePermits() bool {
	r := &permitRequest{attempt: a, result: make(chan bool, 1)}
	asked := time.Now()
	a.kind.express.add(urgent{permit: r})
	a.hasPermit = <-r.result && time.Since(asked) < permitFresh
	return a.hasPermit
}

// permitTaker is the pool. It sends the statement that takes permits together with its first query, in one round trip
// and one transaction.
type permitTaker struct {
	runner   *Runner
	requests []*permitRequest // that are not answered
	isTried  bool             // the statement was sent with a query
}

// args returns the parameters of the statement.
func (t *permitTaker) args() []any {
	var kinds, ids, versions, attempts pgarray.Builder
	for _, r := range t.requests {
		a := r.attempt
		kinds.Add(string(a.kind.Name))
		ids.Add(string(a.task.Message.BizID))
		versions.AddInt(int64(a.version))
		attempts.AddInt(int64(a.number))
	}
	return []any{kinds.String(), ids.String(), versions.String(), attempts.String(), t.runner.id}
}

// answer answers the requests: those with the numbers, from 1, have permits.
func (t *permitTaker) answer(numbers []int32) {
	granted := make([]bool, len(t.requests))
	for _, n := range numbers {
		granted[n-1] = true
	}
	for i, r := range t.requests {
		r.result <- granted[i]
	}
	t.requests = nil
}

// finish takes permits that no query has taken. After an error the attempts have none: their starts are recorded first.
func (t *permitTaker) finish(ctx context.Context) {
	if len(t.requests) == 0 {
		return
	}
	rows, _ := t.runner.db.Query(ctx, beginSQL, t.args()...) // CollectRows returns its error
	numbers, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		t.runner.Warn(t.runner.logger, "cannot take permits", "error", err)
	}
	t.answer(numbers)
}

// Exec implements [ledger.DB].
func (t *permitTaker) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return t.runner.db.Exec(ctx, sql, args...)
}

// Query implements [ledger.DB]. If the query fails, the permits are not taken either: finish tries again.
func (t *permitTaker) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if len(t.requests) == 0 || t.isTried {
		return t.runner.db.Query(ctx, sql, args...)
	}
	t.isTried = true
	var b pgx.Batch
	b.Queue(beginSQL, t.args()...)
	b.Queue(sql, args...)
	results := t.runner.db.SendBatch(ctx, &b)
	rows, _ := results.Query() // CollectRows returns its error
	numbers, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err == nil {
		rows, err = results.Query()
	}
	if err != nil {
		_ = results.Close()
		return t.runner.db.Query(ctx, sql, args...)
	}
	return &permitRows{Rows: rows, of: t, results: results, numbers: numbers}, nil
}

// permitRows are the rows of a query that was sent with the statement that takes permits. The transaction has committed
// when they have ended without an error.
type permitRows struct {
	pgx.Rows
	of      *permitTaker
	results pgx.BatchResults
	numbers []int32
	isEnded bool
	err     error
}

func (r *permitRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *permitRows) Close() {
	r.Rows.Close()
	if r.isEnded {
		return
	}
	r.isEnded = true
	r.err = r.Rows.Err()
	if err := r.results.Close(); r.err == nil {
		r.err = err
	}
	if r.err == nil {
		r.of.answer(r.numbers)
	}
}

func (r *permitRows) Err() error {
	if r.isEnded {
		return r.err
	}
	return r.Rows.Err()
}
