package ledger_test

import (
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A role that a statement sets ends with the transaction, in every mode of pgx, even if all statements are of AtCommit.
// PostgreSQL's RESET ALL does not reset it.
func TestRoleEndsWithTheTransaction(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	for _, mode := range queryModes {
		conn := connectIn(t, pool.Config().ConnString(), mode)
		for name, end := range map[string]func(*ledger.Tx, ledger.Key) error{
			"Commit": func(tx *ledger.Tx, _ ledger.Key) error { return tx.Commit(t.Context()) },
			"AppendAndCommit": func(tx *ledger.Tx, k ledger.Key) error {
				_, err := tx.AppendAndCommit(t.Context(), ledgertest.Request(k, 1, ledger.EventSucceeded))
				return err
			},
		} {
			what := mode.String() + ", " + name
			k := ledger.Key{Kind: "test.tx", BizID: ledger.BizID(what)}
			ledgertest.Enqueue(t, pool, k, "")
			tx := ledger.BeginOn(t.Context(), conn, &ledger.TxOptions{Guard: true, ResetSession: true})
			tx.AtCommit("select set_config('role', session_user, false)")
			if err := end(tx, k); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			var role string
			if err := conn.QueryRow(t.Context(), "show role").Scan(&role); err != nil || role != "none" {
				t.Errorf("%s: the role is %s, %v", what, role, err)
			}
		}
	}
}
