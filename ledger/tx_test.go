package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// beginLedgerTx returns a Tx that is rolled back after the test.
func beginLedgerTx(t *testing.T, pool *pgxpool.Pool, o *ledger.TxOptions) *ledger.Tx {
	t.Helper()
	tx, err := ledger.Begin(t.Context(), pool, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// createBusiness creates a table with a deferred constraint, so that a commit can fail.
const createBusiness = "create table business (" +
	"id int primary key, parent int references business deferrable initially deferred)"

// business is a database with the table business. Its transactions insert a business row and enqueue a task.
type business struct {
	t    *testing.T
	pool *pgxpool.Pool
}

var businessKey = ledger.Key{Kind: "test.tx", BizID: "1"}

func newBusiness(t *testing.T, pool *pgxpool.Pool) *business {
	t.Helper()
	b := &business{t: t, pool: pool}
	b.exec(pool, createBusiness)
	return b
}

func (b *business) exec(db ledger.DB, sql string, args ...any) {
	b.t.Helper()
	if _, err := db.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

// begin returns a transaction that has inserted a business row.
func (b *business) begin(o *ledger.TxOptions) *ledger.Tx {
	b.t.Helper()
	tx := beginLedgerTx(b.t, b.pool, o)
	b.exec(tx, "insert into business (id) values ($1)", 1)
	return tx
}

// want checks the number of committed business rows, whether the task exists, and that all connections are released.
func (b *business) want(rows int, task bool) {
	b.t.Helper()
	await(b.t, "connections to be released", func() bool { return b.pool.Stat().AcquiredConns() == 0 })
	var found int
	if err := b.pool.QueryRow(b.t.Context(), "select count(*) from business").Scan(&found); err != nil {
		b.t.Fatal(err)
	}
	_, err := ledger.Load(b.t.Context(), b.pool, businessKey)
	if found != rows || (err == nil) != task || err != nil && !errors.Is(err, ledger.ErrUnknownTask) {
		b.t.Errorf("%d business rows and task %v, want %d and %t", found, err, rows, task)
	}
	ledgertest.Check(b.t, b.pool)
}

// A transaction with a business row and a task takes two round trips, and one if the row is inserted at the commit.
func TestRoundTripsOfATx(t *testing.T) {
	t.Parallel()
	pool, sent := countedPool(t)
	newBusiness(t, pool)
	const insert = "insert into business (id) values ($1)"
	id := 0
	for name, test := range map[string]struct {
		insert func(tx *ledger.Tx, id int) error
		commit func(tx *ledger.Tx, k ledger.Key) error
		want   int64
	}{
		"Exec, EnqueueAndCommit":     {insert: execOne(t, insert), commit: committing(t, nil), want: 2},
		"AtCommit, EnqueueAndCommit": {insert: atCommit(insert), commit: committing(t, nil), want: 1},
		"AtCommit, timed": {
			insert: atCommit(insert),
			commit: committing(t, &ledger.EnqueueOptions{RunIn: time.Hour}), want: 2,
		},
		"AtCommit, Commit": {
			insert: atCommit(insert),
			commit: func(tx *ledger.Tx, _ ledger.Key) error { return tx.Commit(t.Context()) }, want: 1,
		},
		"Commit alone": {
			insert: func(*ledger.Tx, int) error { return nil },
			commit: func(tx *ledger.Tx, _ ledger.Key) error { return tx.Commit(t.Context()) },
		},
	} {
		for i := range 3 {
			before := sent.Load()
			id++
			tx := beginLedgerTx(t, pool, &ledger.TxOptions{Settings: map[string]string{"statement_timeout": "5000"}})
			k := ledger.Key{Kind: "test.tx", BizID: ledger.BizID(fmt.Sprintf("%s %d", name, i))}
			if err := errors.Join(test.insert(tx, id), test.commit(tx, k)); err != nil {
				t.Fatalf("%s: %v", k, err)
			}
			if err := tx.Rollback(t.Context()); !errors.Is(err, pgx.ErrTxClosed) { // as a deferred one
				t.Error(err)
			}
			// The first transaction prepares statements.
			if n := sent.Load() - before; i > 0 && n != test.want {
				t.Errorf("transaction %s took %d round trips, want %d", k, n, test.want)
			}
		}
	}
}

// The session is reset in the round trip of the end: after it, a pooler may give the server's connection to another
// client.
func TestSessionIsResetInTheRoundTripOfTheEnd(t *testing.T) {
	t.Parallel()
	pool, sent := countedPool(t)
	newBusiness(t, pool)
	for name, end := range map[string]func(*ledger.Tx) error{
		"Commit":   func(tx *ledger.Tx) error { return tx.Commit(t.Context()) },
		"Rollback": func(tx *ledger.Tx) error { return tx.Rollback(t.Context()) },
		"AtCommit, Commit": func(tx *ledger.Tx) error {
			tx.AtCommit("select $1::integer", 1)
			return tx.Commit(t.Context())
		},
	} {
		for i := range 3 {
			tx := beginLedgerTx(t, pool, &ledger.TxOptions{ResetSession: true})
			_, err := tx.Exec(t.Context(), "select set_config('search_path', $1, false)", "nowhere")
			before := sent.Load()
			if err := errors.Join(err, end(tx)); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if n := sent.Load() - before; i > 0 && n != 1 {
				t.Errorf("%s took %d round trips, want 1", name, n)
			}
			var path string
			if err := pool.QueryRow(t.Context(), "show search_path").Scan(&path); err != nil || path == "nowhere" {
				t.Errorf("%s left the search_path %s, %v", name, path, err)
			}
		}
	}
}

// An event is stored as it is although code in the transaction has set another encoding. The simple protocol of pgx
// refuses any other than UTF8.
func TestEventAfterAnotherEncoding(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	for _, mode := range queryModes {
		if mode == pgx.QueryExecModeSimpleProtocol {
			continue
		}
		conn := connectIn(t, pool.Config().ConnString(), mode)
		k := ledger.Key{Kind: "test.tx", BizID: ledger.BizID(mode.String())}
		ledgertest.Enqueue(t, pool, k, "")
		tx := ledger.BeginOn(t.Context(), conn, &ledger.TxOptions{Guard: true, ResetSession: true})
		_, err := tx.Exec(t.Context(), "set client_encoding = 'LATIN1'")
		r := ledgertest.Request(k, 1, ledger.EventSucceeded)
		r.Data = json.RawMessage(`{"result":"ü"}`)
		_, appendErr := tx.AppendAndCommit(t.Context(), r)
		if err := errors.Join(err, appendErr); err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
		for e, err := range ledger.Read(t.Context(), pool, 0, 100) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Key == k && e.Type == ledger.EventSucceeded && string(e.Data) != string(r.Data) {
				t.Errorf("%s: the event has %s, want %s", mode, e.Data, r.Data)
			}
		}
	}
}

// execOne returns a function that executes a statement with one argument.
func execOne(t *testing.T, sql string) func(*ledger.Tx, int) error {
	return func(tx *ledger.Tx, id int) error {
		_, err := tx.Exec(t.Context(), sql, id)
		return err
	}
}

// atCommit returns a function that adds a statement with one argument to the commit.
func atCommit(sql string) func(*ledger.Tx, int) error {
	return func(tx *ledger.Tx, id int) error {
		tx.AtCommit(sql, id)
		return nil
	}
}

// committing returns a function that enqueues a new task and commits.
func committing(t *testing.T, o *ledger.EnqueueOptions) func(*ledger.Tx, ledger.Key) error {
	return func(tx *ledger.Tx, k ledger.Key) error {
		answer, err := tx.EnqueueAndCommit(t.Context(), k, nil, o)
		if err == nil && !answer.New {
			err = fmt.Errorf("an existing task: %+v", answer)
		}
		return err
	}
}

// countedPool returns a pool with one connection, so that a second transaction finds its statements prepared, and the
// number of its round trips.
func countedPool(t *testing.T) (pool *pgxpool.Pool, sent *atomic.Int64) {
	t.Helper()
	config := ledgertest.Pool(t).Config()
	dial := config.ConnConfig.DialFunc
	sent = new(atomic.Int64)
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &countedConn{Conn: conn, sent: sent}, err
	}
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, sent
}

// countedConn counts writes. Each of them is a round trip.
type countedConn struct {
	net.Conn
	sent *atomic.Int64
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.sent.Add(1)
	return c.Conn.Write(b)
}

// If the enqueue fails, the transaction is not committed.
func TestEnqueueAndCommitOrNeither(t *testing.T) {
	t.Parallel()
	var invalid *ledger.InvalidError
	var overload *ledger.OverloadError
	var pg *pgconn.PgError
	as := func(target any) func(error) bool { return func(err error) bool { return errors.As(err, target) } }
	is := func(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }
	const lower = "update taskledger.setting set value = '5000' where name = 'max_args_bytes'"
	limit := func(p ledger.OverloadPolicy) func(*business, *ledger.Tx) {
		return func(b *business, _ *ledger.Tx) {
			l := ledger.Limit{Kind: businessKey.Kind, Policy: p}
			if err := ledger.SetLimit(b.t.Context(), b.pool, l, ""); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	for name, test := range map[string]struct {
		before  func(*business, *ledger.Tx)
		args    json.RawMessage
		options *ledger.EnqueueOptions
		want    func(error) bool
	}{
		"invalid": {args: json.RawMessage(`{`), want: as(&invalid)},
		"too large": {
			before: func(b *business, _ *ledger.Tx) {
				ledgertest.ExecAsOwner(b.t, b.pool, lower)
			},
			args: quoted(5001), want: as(&invalid),
		},
		"rejected": {before: limit(ledger.Reject), want: as(&overload)},
		"discarded": {
			before: limit(ledger.Discard),
			want:   func(err error) bool { return errors.As(err, &overload) && overload.Policy == ledger.Discard },
		},
		"invalid and late": {options: &ledger.EnqueueOptions{RunIn: -1}, want: as(&invalid)},
		"too large and late": {
			before: func(b *business, _ *ledger.Tx) {
				ledgertest.ExecAsOwner(b.t, b.pool, lower)
			},
			args: quoted(5001), options: &ledger.EnqueueOptions{RunIn: time.Hour}, want: as(&invalid),
		},
		"aborted": {
			before: func(b *business, tx *ledger.Tx) { _, _ = tx.Exec(b.t.Context(), "select 1 / $1::integer", 0) },
			want:   is(ledger.ErrTransactionAborted),
		},
		"the commit fails": {
			before: func(b *business, tx *ledger.Tx) { b.exec(tx, "insert into business values (2, 3)") },
			want:   func(err error) bool { return errors.As(err, &pg) && pg.Code == "23503" },
		},
		"killed": {
			before: func(b *business, tx *ledger.Tx) {
				b.exec(b.pool, "select pg_terminate_backend($1)", tx.Conn().PgConn().PID())
			},
			want: ledger.Retryable,
		},
		"rolled back before": {
			before: func(b *business, tx *ledger.Tx) { _ = tx.Rollback(b.t.Context()) },
			want:   is(pgx.ErrTxClosed),
		},
		"rolled back in SQL": {
			before: func(b *business, tx *ledger.Tx) { b.exec(tx, "rollback") },
			want:   is(ledger.ErrTransactionEnded),
		},
	} {
		neither := func(t *testing.T, begin func(*business) *ledger.Tx) {
			b := newBusiness(t, ledgertest.Pool(t, ledgertest.App, "operator"))
			tx := begin(b)
			if test.before != nil {
				test.before(b, tx)
			}
			answer, err := tx.EnqueueAndCommit(t.Context(), businessKey, test.args, test.options)
			if err == nil || !test.want(err) {
				t.Errorf("%+v, %v", answer, err)
			}
			b.want(0, false)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			neither(t, func(b *business) *ledger.Tx { return b.begin(nil) })
		})
		t.Run(name+" with AtCommit", func(t *testing.T) {
			t.Parallel()
			neither(t, func(b *business) *ledger.Tx {
				tx := b.begin(nil)
				tx.AtCommit("insert into business (id) values ($1)", 9)
				return tx
			})
		})
	}
}

// EnqueueAndCommit commits if the task exists with the same args or other args are accepted, even if the limit of its
// kind is reached, or if another transaction enqueues it and commits meanwhile. With other args it rolls back.
func TestEnqueueAndCommitOfAnExistingTask(t *testing.T) {
	t.Parallel()
	b := newBusiness(t, ledgertest.Pool(t, ledgertest.App, "operator"))
	rival := beginLedgerTx(t, b.pool, nil)
	if _, err := ledger.Enqueue(t.Context(), rival, businessKey, nil, nil); err != nil {
		t.Fatal(err)
	}
	accept := &ledger.EnqueueOptions{IfExists: ledger.IfExistsIgnore}
	refused := beginLedgerTx(t, b.pool, nil)
	b.exec(refused, "insert into business (id) values ($1)", 3)
	tx := b.begin(nil)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		answer, err := tx.EnqueueAndCommit(t.Context(), businessKey, json.RawMessage(`1`), accept)
		if err != nil || answer.New || answer.SameArgs || answer.State != ledger.StateAvailable {
			t.Errorf("%+v, %v", answer, err)
		}
	})
	waiting.Go(func() {
		answer, err := refused.EnqueueAndCommit(t.Context(), businessKey, json.RawMessage(`1`), nil)
		var other *ledger.OtherArgsError
		if !errors.As(err, &other) || other.Existing.Key != businessKey || answer != (ledger.Enqueued{}) {
			t.Errorf("%+v, %v", answer, err)
		}
	})
	await(t, "two transactions to wait for the first", func() bool {
		var waiting int
		const sql = `select count(*) from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock'`
		err := b.pool.QueryRow(t.Context(), sql).Scan(&waiting)
		return err == nil && waiting == 2
	})
	if err := rival.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	waiting.Wait()
	b.want(1, true)

	if err := ledger.SetLimit(t.Context(), b.pool, ledger.Limit{Kind: businessKey.Kind}, ""); err != nil {
		t.Fatal(err)
	}
	tx = beginLedgerTx(t, b.pool, nil)
	b.exec(tx, "insert into business (id) values ($1)", 2)
	answer, err := tx.EnqueueAndCommit(t.Context(), businessKey, nil, nil)
	if err != nil || answer.New || !answer.SameArgs {
		t.Errorf("%+v, %v", answer, err)
	}
	b.want(2, true)
	for name, o := range map[string]*ledger.EnqueueOptions{"due": nil, "later": {RunIn: time.Hour}} {
		tx = beginLedgerTx(t, b.pool, nil)
		b.exec(tx, "insert into business (id) values ($1)", 4)
		var other *ledger.OtherArgsError
		if _, err := tx.EnqueueAndCommit(t.Context(), businessKey, json.RawMessage(`1`), o); !errors.As(err, &other) {
			t.Errorf("%s: %v, want other args", name, err)
		}
		b.want(2, true)
	}
}

// A REPEATABLE READ transaction that cannot see the existing task gets ErrRetryTransaction and is rolled back.
func TestEnqueueAndCommitUnseen(t *testing.T) {
	t.Parallel()
	b := newBusiness(t, ledgertest.Pool(t))
	tx := b.begin(&ledger.TxOptions{Isolation: pgx.RepeatableRead})
	ledgertest.Enqueue(t, b.pool, businessKey, "")
	if _, err := tx.EnqueueAndCommit(t.Context(), businessKey, nil, nil); !errors.Is(err, ledger.ErrRetryTransaction) {
		t.Error(err)
	}
	b.want(0, true)
}

// Settings apply to the transaction only. With an invalid setting the transaction does not begin, and no statement
// is executed outside of it.
func TestTxSettings(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	config := pool.Config()
	config.MaxConns = 1
	one, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(one.Close)
	settings := map[string]string{"statement_timeout": "4321ms", "shop.user": "o'hara"}
	tx := beginLedgerTx(t, one, &ledger.TxOptions{Settings: settings})
	show := func(db interface {
		QueryRow(context.Context, string, ...any) pgx.Row
	}) (timeout, user string) {
		const sql = "select current_setting($1), coalesce(current_setting($2, true), '')"
		err := db.QueryRow(t.Context(), sql, "statement_timeout", "shop.user").Scan(&timeout, &user)
		if err != nil {
			t.Error(err)
		}
		return timeout, user
	}
	if timeout, user := show(tx); timeout != "4321ms" || user != "o'hara" {
		t.Error(timeout, user)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	if timeout, user := show(one); timeout == "4321ms" || user != "" {
		t.Error(timeout, user)
	}

	b := newBusiness(t, one)
	tx = beginLedgerTx(t, one, &ledger.TxOptions{Settings: map[string]string{"statement_timeout": "soon"}})
	for range 2 {
		if _, err := tx.Exec(t.Context(), "insert into business (id) values ($1)", 1); err == nil {
			t.Error("a statement was executed without the settings")
		}
	}
	if _, err := tx.EnqueueAndCommit(t.Context(), businessKey, nil, nil); err == nil {
		t.Error("the transaction was committed")
	}
	b.want(0, false)
}

// recordingHook records the errors that AfterEnqueue gets, and rejects tasks with empty args.
type recordingHook struct {
	errs []error
}

func (h *recordingHook) hook() ledger.EnqueueHook {
	return ledger.EnqueueHook{BeforeEnqueue: h.beforeEnqueue, AfterEnqueue: h.afterEnqueue}
}

func (*recordingHook) beforeEnqueue(
	_ context.Context, _ ledger.Key, args json.RawMessage, o *ledger.EnqueueOptions,
) error {
	if string(args) == `""` {
		return errors.New("args must not be empty")
	}
	o.Meta.Tags = append(o.Meta.Tags, "hooked")
	return nil
}

func (h *recordingHook) afterEnqueue(_ context.Context, _ ledger.Key, _ ledger.Enqueued, err error) {
	h.errs = append(h.errs, err)
}

// EnqueueAndCommit of a kind calls its hooks. If a hook rejects the task, the transaction is rolled back.
func TestEnqueueAndCommitBetweenHooks(t *testing.T) {
	t.Parallel()
	b := newBusiness(t, ledgertest.Pool(t))
	var hook recordingHook
	kind, err := ledger.NewKind[string](businessKey.Kind, hook.hook())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kind.EnqueueAndCommit(t.Context(), b.begin(nil), businessKey.BizID, "", nil); err == nil {
		t.Error("the task was enqueued")
	}
	b.want(0, false)
	if _, err := kind.EnqueueAndCommit(t.Context(), b.begin(nil), businessKey.BizID, "alice", nil); err != nil {
		t.Error(err)
	}
	b.want(1, true)
	history, err := ledger.History(t.Context(), b.pool, businessKey)
	if err != nil || len(history) != 1 || !strings.Contains(string(history[0].Meta), "hooked") {
		t.Errorf("%+v, %v", history, err)
	}
	if len(hook.errs) != 2 || hook.errs[0] == nil || hook.errs[1] != nil {
		t.Errorf("errors %v, want one and nil", hook.errs)
	}
}
