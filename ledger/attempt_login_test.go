package ledger_test

import (
	"fmt"
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
		select e.version + 1, e.attempt, e.shard, '%s', taskledger_internal.login_id(), e.kind, e.biz_id, 'x', '{}'
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

// A start that would end the attempt of a live worker of another login is refused alone: the worker was gone when the
// head was read, and has come back. The other starts of the group are recorded.
func TestAppendEachBesideAnAttemptOfAnotherLogin(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	own, _ := poolOf(t, owner, "grant "+limitedWorker(t, owner, "pay")+" to $1")
	other := ledgertest.As(t, owner, "worker")
	const refused = 5
	requests := make([]ledger.AppendRequest, 16)
	for i := range requests {
		requests[i] = ledger.AppendRequest{
			Key: ledger.Key{Kind: "pay", BizID: ledger.BizID(fmt.Sprint(i))}, Expected: 1, Type: ledger.EventStarted,
			Actor: "x",
		}
		ledgertest.Enqueue(t, owner, requests[i].Key, `{}`)
	}
	if err := execute(t, own, "select taskledger.heartbeat('w', '{pay}')",
		fmt.Sprintf("select taskledger.claim('pay', '%d', 'w')", refused)); err != nil {
		t.Fatal(err)
	}
	if err := execute(t, other, "select taskledger.heartbeat('x', '{pay}')"); err != nil {
		t.Fatal(err)
	}
	requests[refused].Expected = 2
	for i, r := range ledger.AppendEach(t.Context(), other, requests) {
		switch {
		case i == refused && !pgerr.Is(r.Err, pgerr.InsufficientPrivilege):
			t.Errorf("the attempt of another login: %v", r.Err)
		case i != refused && r.Err != nil:
			t.Errorf("task %d: %v", i, r.Err)
		}
	}
}

// An outcome of a worker is admitted by a policy that calls no function for each row. A limited worker may not read the
// view of that policy, which shows the keys of all kinds.
func TestOutcomesOfWorkersCallNoFunction(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	limited, _ := poolOf(t, owner, "grant "+limitedWorker(t, owner, "pay")+" to $1")
	const fence = "select from taskledger_internal.event_fence"
	if err := execute(t, limited, fence); !pgerr.Is(err, pgerr.InsufficientPrivilege) {
		t.Errorf("a limited worker reads the fence: %v", err)
	}
	key := ledger.Key{Kind: "pay", BizID: "A-1"}
	other := ledger.Key{Kind: "pay", BizID: "A-2"}
	ledgertest.Enqueue(t, owner, key, `{}`)
	ledgertest.Enqueue(t, owner, other, `{}`)
	ledgertest.ExecAsOwner(t, owner, `
		create or replace function taskledger_internal.follows(kind text, biz_id text, version integer,
			attempt integer, shard smallint, priority smallint, partition text, order_key text,
			type taskledger.event_type, login_id integer default null)
		returns taskledger.event_type language plpgsql as $$ begin raise 'called'; end $$`)
	worker := ledgertest.As(t, owner, "worker")
	ledgertest.Append(t, worker, key, ledger.EventFailed)
	request := ledgertest.Request(other, 1, ledger.EventSucceeded)
	if r := ledger.AppendEach(t.Context(), worker, []ledger.AppendRequest{request}); r[0].Err != nil {
		t.Error(r[0].Err)
	}
	err := execute(t, limited, `
		insert into taskledger.event (version, attempt, shard, type, login_id, kind, biz_id, actor, data)
		select 3, attempt, shard, 'buried', taskledger_internal.login_id(), kind, biz_id, 'x', '{}'
		  from taskledger.event where biz_id = 'A-1' and version = 2`)
	if err == nil || !strings.Contains(err.Error(), "called") {
		t.Errorf("a limited worker needs the function, which is replaced: %v", err)
	}
}
