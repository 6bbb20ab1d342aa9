package ledger_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The statements of AtCommit are executed after the statements sent before, in their order, in each query mode.
func TestAtCommitKeepsTheOrder(t *testing.T) {
	t.Parallel()
	for _, mode := range queryModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			b := newBusiness(t, ledgertest.Pool(t))
			b.exec(b.pool, "create table step (id bigserial, name text)")
			conn := connectIn(t, b.pool.Config().ConnString(), mode)
			for i, o := range []*ledger.EnqueueOptions{nil, {RunIn: time.Hour}} {
				tx := ledger.BeginOn(t.Context(), conn, &ledger.TxOptions{
					Settings: map[string]string{"shop.user": "alice"},
				})
				tx.AtCommit("insert into step (name) values ($1)", "third")
				tx.AtCommit("insert into step (name) select current_setting('shop.user')")
				tx.AtCommit("insert into step (name) values (@name)", pgx.NamedArgs{"name": "fifth"})
				b.exec(tx, "insert into step (name) values ('first')")
				b.exec(tx, "insert into step (name) values ($1)", "second")
				k := ledger.Key{Kind: businessKey.Kind, BizID: ledger.BizID(rune('a' + i))}
				if answer, err := tx.EnqueueAndCommit(t.Context(), k, nil, o); err != nil || !answer.New {
					t.Fatalf("%+v, %v", answer, err)
				}
			}
			rows, _ := b.pool.Query(t.Context(), "select name from step order by id")
			names, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			once := []string{"first", "second", "third", "alice", "fifth"}
			if !slices.Equal(names, append(once, once...)) {
				t.Error(names)
			}
			ledgertest.Check(t, b.pool)
		})
	}
}

// If a statement of AtCommit fails, nothing is committed, and the error is the statement's.
func TestAtCommitFails(t *testing.T) {
	t.Parallel()
	hasCode := func(code string) func(error) bool {
		return func(err error) bool {
			var pg *pgconn.PgError
			return errors.As(err, &pg) && pg.Code == code
		}
	}
	const second = "statement 2 of AtCommit"
	isInvalid := func(err error) bool {
		var invalid *ledger.InvalidError
		return errors.As(err, &invalid)
	}
	commits := map[string]func(*testing.T, *ledger.Tx) error{
		"EnqueueAndCommit": func(t *testing.T, tx *ledger.Tx) error {
			_, err := tx.EnqueueAndCommit(t.Context(), businessKey, nil, nil)
			return err
		},
		"EnqueueAndCommit of a timed task": func(t *testing.T, tx *ledger.Tx) error {
			_, err := tx.EnqueueAndCommit(t.Context(), businessKey, nil, &ledger.EnqueueOptions{RunIn: time.Hour})
			return err
		},
		"Commit": func(t *testing.T, tx *ledger.Tx) error { return tx.Commit(t.Context()) },
	}
	for name, test := range map[string]struct {
		sql   string
		args  []any
		want  func(error) bool
		where string // in the error
	}{
		"fails":           {sql: "select 1 / $1::integer", args: []any{0}, want: hasCode("22012"), where: second},
		"duplicate":       {sql: "insert into business values (1)", want: hasCode("23505"), where: second},
		"deferred":        {sql: "insert into business values (2, 3)", want: hasCode("23503")},
		"syntax":          {sql: "insert", want: hasCode("42601"), where: second},
		"no table":        {sql: "insert into nothing values (1)", want: hasCode("42P01"), where: second},
		"two statements":  {sql: "select 1; select 2", want: hasCode("42601"), where: second},
		"wrong arguments": {sql: "select $1::integer", want: isInvalid, where: second},
		"bad argument":    {sql: "select $1::integer", args: []any{struct{}{}}, want: isInvalid, where: second},
	} {
		for by, commit := range commits {
			t.Run(name+", "+by, func(t *testing.T) {
				t.Parallel()
				b := newBusiness(t, ledgertest.Pool(t))
				for _, begin := range []func() *ledger.Tx{
					func() *ledger.Tx { return beginLedgerTx(t, b.pool, nil) },
					func() *ledger.Tx { return b.begin(nil) },
				} {
					tx := begin()
					tx.AtCommit("insert into business (id) values ($1) on conflict do nothing", 1)
					tx.AtCommit(test.sql, test.args...)
					err := commit(t, tx)
					if !test.want(err) || !strings.Contains(err.Error(), test.where) ||
						errors.Is(err, ledger.ErrNotMigrated) {
						t.Error(err)
					}
					b.want(0, false)
				}
			})
		}
	}
}

// A statement that would end the transaction, or that returns other results than one statement, is refused before
// anything is sent.
func TestAtCommitIsRefused(t *testing.T) {
	t.Parallel()
	b := newBusiness(t, ledgertest.Pool(t))
	for _, sql := range []string{
		"", "commit", "END", "-- a\n/* b */ ;rollback", "abort", "rollback and chain", "rollback to a",
		"/* /* */ */ commit", "-- a\rcommit", "prepare  transaction 'a'", "copy (select 1) to stdout",
	} {
		tx := b.begin(nil)
		tx.AtCommit("select 1")
		tx.AtCommit(sql)
		_, err := tx.EnqueueAndCommit(t.Context(), businessKey, nil, nil)
		if field := wantErrorAs[*ledger.InvalidError](t, err).Field; field != "statement 2 of AtCommit" {
			t.Errorf("%s: field %s", sql, field)
		}
		b.want(0, false)
	}
}

// In each query mode comments hide no statement, and later changes of a slice of arguments do not change the statement.
func TestAtCommitArguments(t *testing.T) {
	t.Parallel()
	for _, mode := range queryModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			b := newBusiness(t, ledgertest.Pool(t))
			tx := ledger.BeginOn(t.Context(), connectIn(t, b.pool.Config().ConnString(), mode), nil)
			arguments := []any{1}
			tx.AtCommit("/* commit; */ insert into business (id) values ($1) -- a row", arguments...)
			arguments[0] = 2
			tx.AtCommit("-- nothing")
			answer, err := tx.EnqueueAndCommit(t.Context(), businessKey, nil, nil)
			if err != nil || !answer.New {
				t.Errorf("%+v, %v", answer, err)
			}
			b.want(1, true)
			var id int
			if err := b.pool.QueryRow(t.Context(), "select id from business").Scan(&id); err != nil || id != 1 {
				t.Error(id, err)
			}
		})
	}
}

// With the simple protocol a statement can be several statements. Their results are not mistaken for the enqueue's.
func TestAtCommitOfSeveralStatements(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{
		"insert into business (id) values (1); select 70", "select 70; insert into business (id) values (1)",
	} {
		b := newBusiness(t, ledgertest.Pool(t))
		conn := connectIn(t, b.pool.Config().ConnString(), pgx.QueryExecModeSimpleProtocol)
		tx := ledger.BeginOn(t.Context(), conn, nil)
		tx.AtCommit(sql)
		answer, err := tx.EnqueueAndCommit(t.Context(), businessKey, nil, nil)
		if err != nil || !answer.New || answer.Position == 70 {
			t.Errorf("%s: %+v, %v", sql, answer, err)
		}
		b.want(1, true)
	}
}

// A commit while the rows of a query are open is refused, and its error names them.
func TestCommitBesideOpenRows(t *testing.T) {
	t.Parallel()
	b := newBusiness(t, ledgertest.Pool(t))
	for range 2 {
		tx := beginLedgerTx(t, b.pool, nil)
		rows, err := tx.Query(t.Context(), "select generate_series(1, $1::integer)", 3)
		if err != nil {
			t.Fatal(err)
		}
		_, err = tx.EnqueueAndCommit(t.Context(), businessKey, nil, nil)
		if err == nil || !strings.Contains(err.Error(), "close them") || errors.Is(err, ledger.ErrTransactionEnded) {
			t.Error(err)
		}
		rows.Close()
		b.want(0, false)
	}
}

// A rollback drops the statements, and so does a failed commit.
func TestAtCommitDropped(t *testing.T) {
	t.Parallel()
	b := newBusiness(t, ledgertest.Pool(t))
	tx := beginLedgerTx(t, b.pool, nil)
	tx.AtCommit("insert into business (id) values ($1)", 1)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	tx.AtCommit("insert into business (id) values ($1)", 2)
	if err := tx.Commit(t.Context()); !errors.Is(err, pgx.ErrTxClosed) {
		t.Error(err)
	}
	if _, err := tx.EnqueueAndCommit(t.Context(), businessKey, nil, nil); !errors.Is(err, pgx.ErrTxClosed) {
		t.Error(err)
	}
	b.want(0, false)
}

// The task exists with these args: the statements of AtCommit are committed.
func TestAtCommitBesideAnExistingTask(t *testing.T) {
	t.Parallel()
	b := newBusiness(t, ledgertest.Pool(t))
	ledgertest.Enqueue(t, b.pool, businessKey, "")
	tx := beginLedgerTx(t, b.pool, nil)
	tx.AtCommit("insert into business (id) values ($1)", 1)
	if answer, err := tx.EnqueueAndCommit(t.Context(), businessKey, nil, nil); err != nil || answer.New {
		t.Errorf("%+v, %v", answer, err)
	}
	b.want(1, true)
}

// An outcome and a statement of AtCommit are committed together, or neither is.
func TestAtCommitOfAnOutcome(t *testing.T) {
	t.Parallel()
	b := newBusiness(t, ledgertest.Pool(t))
	ledgertest.Enqueue(t, b.pool, businessKey, "")
	finish := func(sql string, version ledger.Version) error {
		tx := beginLedgerTx(t, b.pool, &ledger.TxOptions{Guard: true})
		tx.AtCommit(sql, 1)
		_, err := tx.AppendAndCommit(t.Context(), ledger.AppendRequest{
			Key: businessKey, Expected: version, Type: ledger.EventSucceeded,
		})
		return err
	}
	const insert = "insert into business (id) values ($1)"
	if err := finish(insert, 2); !ledger.IsConflict(err) {
		t.Error(err)
	}
	b.want(0, true)
	var pg *pgconn.PgError
	if err := finish("select 1 / ($1::integer - 1)", 1); !errors.As(err, &pg) || pg.Code != "22012" {
		t.Error(err)
	}
	if err := finish(insert, 1); err != nil {
		t.Error(err)
	}
	b.want(1, true)
	if task, err := ledger.Load(t.Context(), b.pool, businessKey); err != nil || task.State != ledger.StateSucceeded {
		t.Errorf("%+v, %v", task, err)
	}
}

// A database without the schema is reported as such, whatever AtCommit has.
func TestAtCommitWithoutSchema(t *testing.T) {
	t.Parallel()
	b := newBusiness(t, ledgertest.Pool(t))
	ledgertest.ExecAsOwner(t, b.pool, "drop schema taskledger, taskledger_internal cascade")
	for _, tx := range []*ledger.Tx{beginLedgerTx(t, b.pool, nil), b.begin(nil)} {
		tx.AtCommit("insert into business (id) values ($1)", 2)
		_, err := tx.EnqueueAndCommit(t.Context(), businessKey, nil, nil)
		wantError(t, err, ledger.ErrNotMigrated)
		if strings.Contains(err.Error(), "AtCommit") {
			t.Error(err)
		}
	}
}
