package dispatcher_test

import (
	"context"
	"flag"
	"sync"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/dispatcher"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

var (
	unfinished = flag.Int("unfinished", 3_000, "available tasks of TestFirstTaskOfALargeLedger")
	finished   = flag.Int("finished", 30_000, "finished tasks of TestFirstTaskOfALargeLedger")
)

// addTasks adds tasks of servicetest's kind: finished ones, then available ones, and a projection that lists the
// latter.
func addTasks(b *servicetest.Bundle, finished, unfinished int) {
	b.T.Helper()
	b.EnqueueIn(ledger.StateSucceeded, "first")
	b.Project() // the cursor's first row
	const batch = 100_000
	for first := 0; first < finished+unfinished; first += batch {
		ledgertest.ExecAsOwner(b.T, b.DB, `
			with task as materialized (
			  select g, 't-' || g as biz_id, g <= $3::integer as is_finished
			    from generate_series($1::integer + 1, $2::integer) g
			), added as (
			  insert into taskledger.event (version, attempt, shard, type, kind, biz_id, actor, data)
			  select v.version, v.version - 1, t.g % 64, v.type::taskledger.event_type, $4, t.biz_id, 'a',
			         case when v.version = 1 then '{"amount":7}'::json end
			    from task t
			   cross join (values (1, 'enqueued'), (2, 'succeeded')) v(version, type)
			   where t.is_finished or v.version = 1
			   order by t.g, v.version
			  returning kind, biz_id, version, position
			)
			insert into taskledger.task (kind, biz_id, shard, state, aside, version, attempt, failures, enqueued_at,
			                             updated_at, lingering)
			select $4, t.biz_id, t.g % 64,
			       case when t.is_finished then 'succeeded' else 'available' end::taskledger.task_state, null,
			       1 + t.is_finished::integer, t.is_finished::integer, 0, now(), now(),
			       case when not t.is_finished then a.position end
			  from task t
			  join added a on a.biz_id = t.biz_id and a.version = 1`,
			first, min(first+batch, finished+unfinished), finished, string(servicetest.Order.Name()))
	}
	ledgertest.ExecAsOwner(b.T, b.DB, `
		insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, origin, mark)
		select 'projector', (select max(n) from taskledger.cursor where reader = 'projector') + 1, e.seen, e.top,
		       e.bound, taskledger_internal.origin(),
		       json_build_object('listed', json_build_object('seen',
		         json_build_object('snapshot', e.seen, 'top', e.top, 'bound', e.bound)))
		  from (select pg_current_snapshot() as seen, pg_current_xact_id() as bound,
		               pg_sequence_last_value('taskledger.event_position_seq'::regclass) as top) e`)
	ledgertest.ExecAsOwner(b.T, b.DB, "vacuum analyze")
}

// A dispatcher that starts gives out the first tasks after one look at the list of unfinished tasks, whatever else the
// ledger has.
func TestFirstTaskOfALargeLedger(t *testing.T) {
	t.Parallel()
	b := servicetest.New(t)
	addTasks(b, *finished, *unfinished)
	begun := make(chan struct{})
	var once sync.Once
	b.Work(workers.Config{}, func(p *workers.Pool) error {
		return p.Register(workers.Handle(servicetest.Order,
			func(context.Context, *workers.Job, servicetest.OrderArgs) error {
				once.Do(func() { close(begun) })
				return nil
			}, nil))
	})
	reads := statements{begin: "-- Selects the next unfinished tasks"}
	at := time.Now()
	d, err := dispatcher.New(dispatcher.Config{DB: tracedPool(t, b.As("relay"), &reads), NATS: b.Connect()})
	if err != nil {
		t.Fatal(err)
	}
	b.Start(d.Run)
	select {
	case <-begun:
	case <-time.After(servicetest.Patience):
		t.Fatal("no task has begun")
	}
	t.Logf("the first task began %s after the dispatcher's start", time.Since(at))
	if n := reads.Load(); n > 2 {
		t.Errorf("the list was read %d times before the first task began", n)
	}
}
