package ledger_test

import (
	"errors"
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// evil is a schema whose functions and operators share names with those that the end of a transaction uses.
const evil = `
	create schema evil;
	create function evil.set_config(text, text, boolean) returns text language plpgsql as $$
	begin raise exception 'evil.set_config'; end $$;
	create function evil.current_setting(text, boolean) returns text language plpgsql as $$
	begin raise exception 'evil.current_setting'; end $$;
	create function evil.date_part(text, timestamptz) returns double precision language plpgsql as $$
	begin raise exception 'evil.date_part'; end $$;
	create function evil.same(text, text) returns boolean language plpgsql as $$
	begin raise exception 'evil.='; end $$;
	create operator evil.= (leftarg = text, rightarg = text, function = evil.same);
	grant usage on schema evil to public`

// A transaction ends rightly although code in it has put another schema before pg_catalog, or has made a temporary
// table with the name of a type, in every mode of pgx.
func TestEndOfATransactionUnderAnotherSearchPath(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	ledgertest.ExecAsOwner(t, pool, evil)
	for _, mode := range queryModes {
		conn := connectIn(t, pool.Config().ConnString(), mode)
		for _, sql := range []string{
			"set search_path = evil, pg_catalog", "set local search_path = evil, pg_catalog",
			"create temp table text ()",
		} {
			for name, end := range map[string]func(*ledger.Tx, ledger.Key) error{
				"AppendAndCommit": func(tx *ledger.Tx, k ledger.Key) error {
					_, err := tx.AppendAndCommit(t.Context(), ledgertest.Request(k, 1, ledger.EventSucceeded))
					return err
				},
				"Commit":   func(tx *ledger.Tx, _ ledger.Key) error { return tx.Commit(t.Context()) },
				"Rollback": func(tx *ledger.Tx, _ ledger.Key) error { return tx.Rollback(t.Context()) },
				"IsOpen, Commit": func(tx *ledger.Tx, _ ledger.Key) error {
					isOpen, err := tx.IsOpen(t.Context())
					if err == nil && !isOpen {
						err = errors.New("the transaction is not open")
					}
					return errors.Join(err, tx.Commit(t.Context()))
				},
			} {
				what := mode.String() + ", " + sql + ", " + name
				k := ledger.Key{Kind: "test.tx", BizID: ledger.BizID(what)}
				ledgertest.Enqueue(t, pool, k, "")
				tx := ledger.BeginOn(t.Context(), conn, &ledger.TxOptions{Guard: true, ResetSession: true})
				_, err := tx.Exec(t.Context(), sql)
				if err := errors.Join(err, end(tx, k)); err != nil {
					t.Errorf("%s: %v", what, err)
				}
				var path string
				var hasTemp bool
				err = conn.QueryRow(t.Context(), `select current_setting('search_path'), exists (
					select from pg_class c where c.relname = 'text' and c.relnamespace = pg_my_temp_schema())`,
				).Scan(&path, &hasTemp)
				if err != nil || hasTemp || path == "evil, pg_catalog" {
					t.Fatalf("%s: search_path %s, a table text: %t, %v", what, path, hasTemp, err)
				}
			}
		}
	}
}
