package ledger_test

import (
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The version of an attempt fences its worker, and does not prove that the caller is that worker: every worker can read
// it. So only the login of a live worker ends its attempt. If the lease has ended, any worker may.
func TestAttemptsOfOtherLogins(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	own, _ := poolOf(t, owner, "grant "+limitedWorker(t, owner, "pay")+" to $1")
	other := ledgertest.As(t, owner, "worker")
	key := ledger.Key{Kind: "pay", BizID: "A-1"}
	ledgertest.Enqueue(t, owner, key, `{}`)
	if err := execute(t, own, "select taskledger.heartbeat('w', '{pay}')"); err != nil {
		t.Fatal(err)
	}
	if n := count(t, own, "select count(*) from taskledger.claim('pay', 'A-1', 'w')"); n != 1 {
		t.Fatalf("claimed %d tasks, want 1", n)
	}
	if err := execute(t, other, "select taskledger.heartbeat('x', '{pay}')"); err != nil {
		t.Fatal(err)
	}
	insert := `
		insert into taskledger.event (version, attempt, shard, type, login_id, kind, biz_id, actor, data)
		select e.version + 1, e.attempt, e.shard, '%s', taskledger.login_id(), e.kind, e.biz_id, 'x', '{}'
		  from taskledger.event e where e.kind = 'pay' and e.version = 2`
	attempts := map[string]string{
		"finish": "select taskledger.finish('pay', 'A-1', 2)",
		"fail":   "select taskledger.fail('pay', 'A-1', 2, 'mallory')",
		"snooze": "select taskledger.snooze('pay', 'A-1', 2, run_in => '1 hour')",
	}
	for _, typ := range []string{
		"succeeded", "failed", "interrupted", "snoozed", "buried", "discarded", "started", "progressed",
	} {
		attempts[typ] = strings.Replace(insert, "%s", typ, 1)
	}
	for name, statement := range attempts {
		if err := execute(t, other, statement); !pgerr.Is(err, pgerr.InsufficientPrivilege) {
			t.Errorf("%s of an attempt of another login: %v", name, err)
		}
	}
	ledgertest.ExecAsOwner(t, owner, `
		update taskledger.lease set alive_until = clock_timestamp() - interval '1 s' where name = 'worker/w'`)
	if err := execute(t, other, "select taskledger.fail('pay', 'A-1', 2, 'its worker is lost')"); err != nil {
		t.Errorf("after the end of the lease: %v", err)
	}

	second := ledger.Key{Kind: "pay", BizID: "A-2"}
	ledgertest.Enqueue(t, owner, second, `{}`)
	err := execute(t, own, "select taskledger.heartbeat('w', '{pay}')",
		"select taskledger.claim('pay', 'A-2', 'w')", "select taskledger.finish('pay', 'A-2', 2)")
	if err != nil {
		t.Errorf("its own attempt: %v", err)
	}
}
