package ledger_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Each error of a worker in SQL carries the SQLSTATE of docs/languages.md, the fault and the cure.
func TestErrorsOfWorkersInSQL(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	limited, _ := poolOf(t, owner, "grant "+limitedWorker(t, owner, "coupon.send")+" to $1")
	other := ledgertest.As(t, owner, "worker")
	for _, key := range []string{"coupon.send/1", "coupon.send/2", "pay/1"} {
		ledgertest.Enqueue(t, owner, ledgertest.Key(t, key), "{}")
	}
	err := execute(t, other, "select taskledger.heartbeat('w', '{pay,coupon.send}')",
		"select taskledger.claim('pay', '1', 'w')", "select taskledger.claim('coupon.send', '1', 'w')")
	if err != nil {
		t.Fatal(err)
	}
	ledgertest.ExecAsOwner(t, owner, "insert into taskledger.pause (kind, actor, reason) values ('pay', 'anna', 'x')")
	if err := execute(t, limited, "select taskledger.heartbeat('own', '{coupon.send}')"); err != nil {
		t.Fatal(err)
	}
	const anothers = "worker 'w' belongs to another login than "
	const noAttempt = "pass the version that taskledger.claim returned"
	tests := []struct{ name, statement, code, text, cure string }{
		{name: "a lease of another login", statement: "select taskledger.heartbeat('w', '{coupon.send}')",
			code: "42501", text: anothers, cure: "choose another id"},
		{name: "the end of a lease of another login", statement: "select taskledger.heartbeat('w', '{pay}', '0')",
			code: "42501", text: anothers, cure: "choose another id"},
		{name: "a claim as a worker of another login", statement: "select taskledger.claim('coupon.send', '2', 'w')",
			code: "42501", text: anothers, cure: "choose another id"},
		{name: "a claim without a lease", statement: "select taskledger.claim('coupon.send', '2', 'x')",
			code: "TL002", text: "worker 'x' has no lease for kind coupon.send", cure: "call taskledger.heartbeat"},
		{name: "a search without a lease, while no task waits",
			statement: "select taskledger.claim_next('coupon.send', 'x')",
			code:      "TL002", text: "worker 'x' has no lease for kind coupon.send",
			cure: "call taskledger.heartbeat"},
		{name: "a search without a number", statement: "select taskledger.claim_next('coupon.send', 'own', null)",
			code: "22023", text: "invalid how_many null: must be between 1 and 100"},
		{name: "a search as a worker of another login", statement: "select taskledger.claim_next('coupon.send', 'w')",
			code: "42501", text: anothers, cure: "choose another id"},
		{name: "a claim of another kind, without a lease", statement: "select taskledger.claim('pay', '1', 'x')",
			code: "42501", text: "may not work on kind pay"},
		{name: "a claim of another kind that is paused", statement: "select taskledger.claim('pay', '1', 'own')",
			code: "42501", text: "may not work on kind pay"},
		{name: "a search for another kind, without a lease", statement: "select taskledger.claim_next('pay', 'x')",
			code: "42501", text: "may not work on kind pay"},
		{name: "a task of another kind", statement: "select taskledger.finish('pay', '1', 2)",
			code: "42501", text: "may not work on kind pay"},
		{name: "a task that never began", statement: "select taskledger.finish('coupon.send', '2', 1)",
			code: "TL001", text: "no attempt at task coupon.send/2 began with version 1", cure: noAttempt},
		{name: "no task", statement: "select taskledger.finish('coupon.send', '3', 2)",
			code: "TL001", text: "no attempt at task coupon.send/3 began with version 2", cure: noAttempt},
	}
	for _, test := range tests {
		err := execute(t, limited, test.statement)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != test.code || !strings.Contains(pg.Message, test.text) ||
			!strings.Contains(pg.Hint, test.cure) {
			t.Errorf("%s: %v, hint %q", test.name, err, pg)
		}
	}
	err = execute(t, other, `select taskledger.fail('pay', '1', 2, 'refused', retry => '{"attempts": 0}')`)
	if err == nil || !strings.Contains(err.Error(), "invalid retry: invalid member 'attempts' with value 0") {
		t.Errorf("an invalid retry: %v", err)
	}
	err = execute(t, other, "select taskledger.finish('pay', '1', 2)", "select taskledger.finish('pay', '1', 2)")
	if err == nil || !strings.Contains(err.Error(), "with version 2 has ended") {
		t.Errorf("an attempt that has ended: %v", err)
	}
}
