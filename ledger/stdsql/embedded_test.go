package stdsql_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/stdsql"
)

// bunTx, bunConn and bunDB imitate the types of bun: their methods put the args in place of question marks, and send
// none.
type (
	bunTx   struct{ *sql.Tx }
	bunConn struct{ *sql.Conn }
)

// unitOfWork runs its statements in the transaction of ctx, and embeds the pool for its other methods.
type unitOfWork struct{ *sql.DB }

type txOfContext struct{}

func (u unitOfWork) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return ctx.Value(txOfContext{}).(*sql.Tx).QueryContext(ctx, query, args...)
}

func (u unitOfWork) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return ctx.Value(txOfContext{}).(*sql.Tx).ExecContext(ctx, query, args...)
}

func (t bunTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return t.Tx.QueryContext(ctx, formatted(query, args))
}

func (t bunTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return t.Tx.ExecContext(ctx, formatted(query, args))
}

func (c bunConn) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return c.Conn.QueryContext(ctx, formatted(query, args))
}

func (c bunConn) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return c.Conn.ExecContext(ctx, formatted(query, args))
}

func formatted(query string, args []any) string {
	for _, arg := range args {
		query = strings.Replace(query, "?", fmt.Sprintf("'%v'", arg), 1)
	}
	return query
}

// Statements run in the transactions of libraries with placeholders of their own, such as bun.
func TestLibrariesWithTheirOwnPlaceholders(t *testing.T) {
	t.Parallel()
	db := stdlib.OpenDBFromPool(ledgertest.Pool(t))
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for name, q := range map[string]stdsql.Querier{
		"tx": bunTx{tx}, "conn": bunConn{conn}, "pointer": &bunTx{tx}, "wrapped twice": struct{ bunTx }{bunTx{tx}},
	} {
		k := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(name)}
		for _, isNew := range []bool{true, false} {
			answer, err := ledger.Enqueue(t.Context(), stdsql.Wrap(q), k, json.RawMessage(`{"ask":"?"}`), nil)
			if err != nil || answer.New != isNew {
				t.Errorf("%s: %+v, %v", name, answer, err)
			}
		}
	}
	if _, err := ledger.Load(t.Context(), stdsql.Wrap(db), ledger.Key{Kind: "coupon.send", BizID: "tx"}); err == nil {
		t.Error("the task of the open transaction is visible outside")
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// Statements of a type that embeds a pool run where its methods run them: in the transaction.
func TestTransactionOfATypeThatEmbedsAPool(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	ctx := context.WithValue(t.Context(), txOfContext{}, tx)
	key := ledger.Key{Kind: "coupon.send", BizID: "A-1"}
	for name, q := range map[string]stdsql.Querier{"value": unitOfWork{db}, "pointer": &unitOfWork{db}} {
		if _, err := ledger.Enqueue(ctx, stdsql.Wrap(q), key, nil, nil); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if task, err := ledger.Load(t.Context(), pool, key); err == nil {
		t.Errorf("after the rollback: %+v", task)
	}
}
