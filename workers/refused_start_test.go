package workers_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// While a transaction that stays open has taken all permits, workers rarely try to start other tasks of the kind. When
// it has ended, they run.
func TestStartsThatAreRefusedAreRare(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const limit, tasks = 10, 60
	b.limitConcurrency(limit)
	ledgertest.ExecAsOwner(t, b.DB, `
		create sequence starts;
		grant usage on sequence starts to public;
		create function count_start() returns trigger language plpgsql as $$
		begin
		  perform nextval('public.starts');
		  return new;
		end
		$$;
		create trigger count_start before insert on taskledger.event for each row when (new.type = 'started')
		  execute function count_start();
		grant select on sequence starts to public`)
	starts := func() int { return one[int](b, "select last_value::integer from starts") }
	b.EnqueueMany(tasks)
	tx := try(b.DB.Begin(b.Context()))(t)
	held := func(i int) ledger.Key { return b.Kind().Key(ledger.BizID(fmt.Sprint("held-", i))) }
	for i := range limit {
		try(ledger.Enqueue(b.Context(), tx, held(i), json.RawMessage(`{}`), nil))(t)
		r := ledger.AppendRequest{Key: held(i), Expected: 1, Type: ledger.EventStarted, Actor: "caller"}
		try(ledger.Append(b.Context(), tx, r))(t)
	}
	b.Dispatch()
	b.Work(workers.Config{}, crowded(b.Kind(), b.DB, workers.AtLeastOnce))
	b.createRoom()
	b.Await("starts that are refused", func() bool { return starts() >= 2*limit })
	before, began := starts(), time.Now()
	time.Sleep(3 * time.Second)
	if n := starts() - before; float64(n) > 14*limit*time.Since(began).Seconds() {
		t.Errorf("%d starts were refused in %s", n, time.Since(began))
	}
	for i := range limit {
		r := ledger.AppendRequest{Key: held(i), Expected: 2, Type: ledger.EventSucceeded, Actor: "caller"}
		try(ledger.Append(b.Context(), tx, r))(t)
	}
	if err := tx.Commit(b.Context()); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	b.AwaitSucceeded(tasks + limit)
	t.Logf("%d tasks in %s", tasks, time.Since(began))
}
