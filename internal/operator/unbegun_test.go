package operator_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
)

// A kind is returned for as long as its live workers do not begin its oldest task: workers in SQL renew their lease and
// claim nothing. Newer tasks that are begun hide nothing.
func TestUnbegun(t *testing.T) {
	t.Parallel()
	b := servicetest.NewServed(t, outbox.StreamConfig{})
	halted, waiting, alone := ledger.Kind("test.halted"), ledger.Kind("test.waiting"), ledger.Kind("test.alone")
	heartbeat := func() {
		b.Exec("select taskledger.heartbeat('sql-1', '{test.halted,test.waiting,test.idle}')")
	}
	heartbeat()
	for _, kind := range []ledger.Kind{halted, waiting, alone} {
		ledgertest.Enqueue(t, b.DB, ledger.Key{Kind: kind, BizID: "first"}, "")
	}
	// Other tasks of the kind, and of a second kind, are begun and finished, and one is new.
	between := time.Now()
	b.Work(workers.Config{}, func(p *workers.Pool) error {
		return p.Register(workers.Handle(servicetest.Order, servicetest.InsertEffect, nil))
	})
	for i := range 300 {
		b.Enqueue(fmt.Sprint("o-", i))
		key := ledger.Key{Kind: halted, BizID: ledger.BizID(fmt.Sprint("later-", i))}
		ledgertest.Append(t, b.DB, key, ledger.EventStarted, ledger.EventSucceeded)
	}
	ledgertest.Enqueue(t, b.DB, ledger.Key{Kind: halted, BizID: "new"}, "")
	b.AwaitSucceeded(600)
	b.AwaitProjected()
	heartbeat()
	var found []operator.UnbegunKind
	unbegun := func(limit time.Duration) (kinds []ledger.Kind) {
		found = servicetest.Try(operator.ReadUnbegun(t.Context(), b.DB, limit))(t)
		for _, u := range found {
			kinds = append(kinds, u.Kind)
		}
		return kinds
	}
	if kinds := unbegun(time.Since(between)); !slices.Equal(kinds, []ledger.Kind{halted, waiting}) {
		t.Fatalf("found %v", found)
	}
	for i, u := range found {
		if !u.OldestAt.Before(between) || u.Waiting != int64(2-i) || u.Late != 1 {
			t.Errorf("%+v", u)
		}
	}
	if kinds := unbegun(time.Hour); kinds != nil {
		t.Errorf("within an hour: %v", kinds)
	}
	o := operator.New(b.As("operator"))
	servicetest.Try(o.PauseKind(t.Context(), waiting, operator.Audit{Actor: "me", Reason: "why"}))(t)
	b.Exec("select taskledger.claim('test.halted', 'first', 'sql-1'), taskledger.claim('test.halted', 'new', 'sql-1')")
	b.AwaitProjected()
	if kinds := unbegun(time.Millisecond); kinds != nil {
		t.Errorf("the one is paused and the other begun: %v", kinds)
	}
}

// The cost grows neither with history nor with the backlog.
func TestUnbegunCost(t *testing.T) {
	t.Parallel()
	few, many := costOfUnbegun(t, 100), costOfUnbegun(t, 30_000)
	t.Logf("%d blocks with 100 waiting tasks, %d with 30,000", few, many)
	if many > 2*few {
		t.Errorf("%d blocks with 100 waiting tasks, %d with 30,000", few, many)
	}
}

// costOfUnbegun returns how many blocks the function reads with n tasks that have waited for an hour, and 1500 new
// tasks of another kind.
func costOfUnbegun(t *testing.T, n int) int64 {
	t.Helper()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	ledgertest.ExecAsOwner(t, owner, "select taskledger.heartbeat('sql-1', '{late,prompt}')")
	ledgertest.ExecAsOwner(t, owner, `
		with e as (
		  insert into taskledger.event (recorded_at, version, attempt, shard, type, kind, biz_id)
		  select clock_timestamp() - k.age, 1, 0, 0, 'enqueued', k.kind, 'b' || i
		    from (values ('late', interval '1 hour', $1::integer), ('prompt', '0 s', 1500)) k(kind, age, n),
		         generate_series(1, k.n) i
		   order by k.kind
		  returning kind, biz_id, recorded_at)
		insert into taskledger.task
		       (kind, biz_id, shard, state, aside, version, attempt, failures, enqueued_at, updated_at)
		select e.kind, e.biz_id, 0, 'available', null, 1, 0, 0, e.recorded_at, e.recorded_at from e`, n)
	ledgertest.ExecAsOwner(t, owner, `
		insert into taskledger.task_count (kind, state, n, value)
		select t.kind, 'available', 1, count(*) from taskledger.task t group by t.kind`)
	ledgertest.ExecAsOwner(t, owner, "analyze taskledger.event, taskledger.task, taskledger.task_count")
	var late string
	const read = "select string_agg(u.kind || ' ' || u.late, ',') " +
		"from taskledger_internal.unbegun_kinds('1 minute', 1000) u"
	if err := owner.QueryRow(t.Context(), read).Scan(&late); err != nil || late != fmt.Sprint("late ", n) {
		t.Fatalf("found %s, %v", late, err)
	}
	var plan []struct {
		Plan struct {
			Hit  int64 `json:"Shared Hit Blocks"`
			Read int64 `json:"Shared Read Blocks"`
		} `json:"Plan"`
	}
	const explain = "explain (analyze, buffers, format json) " +
		"select * from taskledger_internal.unbegun_kinds('1 minute', 1000)"
	if err := owner.QueryRow(t.Context(), explain).Scan(&plan); err != nil {
		t.Fatal(err)
	}
	return plan[0].Plan.Hit + plan[0].Plan.Read
}
