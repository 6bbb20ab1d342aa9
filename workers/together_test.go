package workers_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// warmUp is how many tasks a worker runs before it counts as quick, and has more tasks in flight than slots.
const warmUp = 50

// transactions returns in how many transactions tasks have succeeded.
func (b *bundle) transactions() int {
	return one[int](b, "select count(distinct xid::text)::integer from taskledger.event where type = 'succeeded'")
}

// gathering is a worker whose slots are busy while its test enqueues tasks, which then share.
type gathering struct {
	*worker
	first, second chan struct{} // closed to free that slot
}

// gather runs a worker with two busy slots: the second one until the task "bad" begins, so that it shares with all
// tasks that were enqueued before it.
func (b *bundle) gather(
	handler func(context.Context, pgx.Tx, *workers.Job, orderArgs) error, c workers.KindConfig,
) *gathering {
	b.T.Helper()
	c.Slots, c.Together = 2, 20
	var begun atomic.Int32
	g := &gathering{first: make(chan struct{}), second: make(chan struct{})}
	var bad sync.Once
	register := b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		switch {
		case job.BizID == "bad":
			bad.Do(func() { close(g.second) })
			return handler(ctx, tx, job, args)
		case job.BizID == "takes the first slot":
			begun.Add(1)
			<-g.first
		case job.BizID == "takes the second slot":
			begun.Add(1)
			<-g.second
		case !strings.HasPrefix(string(job.BizID), "o-"):
			return handler(ctx, tx, job, args)
		}
		return insertEffect(ctx, tx, job, args)
	}, &c)
	// A task that waits for long is decided again, and then tasks are not in order any more.
	g.worker = b.Work(workers.Config{LeaseTTL: 20 * time.Second}, func(p *workers.Pool) error {
		p.SetTogetherTime(patience)
		return register(p)
	})
	b.EnqueueMany(warmUp)
	b.AwaitSucceeded(warmUp)
	for i, which := range []string{"first", "second"} {
		b.Enqueue("takes the " + which + " slot")
		b.Await("a slot to be taken", func() bool { return begun.Load() == int32(i)+1 })
	}
	return g
}

// enqueueGathered enqueues tasks and has them run once all of them wait.
func (b *bundle) enqueueGathered(g *gathering, ids ...string) []ledger.Key {
	b.T.Helper()
	keys := make([]ledger.Key, len(ids))
	for i, id := range ids {
		keys[i] = b.Enqueue(id)
	}
	b.Await("the tasks to wait for a slot", func() bool { return g.Ready() == len(ids) })
	close(g.first)
	return keys
}

func TestTogether(t *testing.T) {
	t.Parallel()
	for name, register := range map[string]func(*bundle, *workers.KindConfig) func(*workers.Pool) error{
		"pgx": func(b *bundle, c *workers.KindConfig) func(*workers.Pool) error { return b.exactly(insertEffect, c) },
		"database/sql": func(b *bundle, c *workers.KindConfig) func(*workers.Pool) error {
			return b.exactlySQL(insertEffectSQL, c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.Dispatch()
			const n = 600
			b.EnqueueMany(n)
			b.Work(workers.Config{}, func(p *workers.Pool) error {
				p.SetTogetherTime(patience)
				return register(b, &workers.KindConfig{Slots: 2, Together: 10})(p)
			})
			b.AwaitSucceeded(n)
			b.WantOneEffectEach(n)
			if most := one[int](
				b,
				"select max(n)::integer from (select count(*) as n from taskledger.event "+
					"where type = 'succeeded' group by xid) t",
			); most > 10 {
				t.Errorf("%d tasks in one transaction, of at most 10", most)
			}
			if got := b.transactions(); got > n*4/5 { // the number of waiting tasks depends on the machine
				t.Errorf("%d transactions for %d tasks", got, n)
			}
			if apart := one[int](
				b,
				`select count(*)::integer from effect f
		join taskledger.event e on e.biz_id = f.biz_id and e.type = 'succeeded'
				where f.xmin::text <> e.xid::xid::text`,
			); apart != 0 {
				t.Errorf("%d effects are not of the transaction of their event", apart)
			}
		})
	}
}

// Tasks that share a transaction may lock each other's rows in any order.
func TestTogetherDeadlocks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	b.Exec("create table account (id integer primary key, amount integer not null)")
	b.Exec("insert into account select generate_series(0, 3), 0")
	const n = 200
	b.EnqueueMany(n)
	var account atomic.Int32
	b.Work(workers.Config{}, b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		if _, err := tx.Exec(
			ctx, "update account set amount = amount + 1 where id = $1", account.Add(1)*7%4,
		); err != nil {
			return err
		}
		return insertEffect(ctx, tx, job, args)
	}, &workers.KindConfig{Slots: 2, Together: 10}))
	b.AwaitSucceeded(n)
	b.WantOneEffectEach(n)
	if sum := one[int](b, "select sum(amount)::integer from account"); sum != n {
		t.Errorf("the accounts have %d of %d", sum, n)
	}
}

// A worker that is stopped in the middle leaves no partial result.
func TestStopWhileTogether(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	const n = 400
	b.EnqueueMany(n)
	for round := 1; ; round++ {
		w := b.Work(
			workers.Config{StopTimeout: time.Millisecond},
			b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
				if _, err := tx.Exec(ctx, "select pg_sleep(0.001)"); err != nil {
					return err
				}
				return insertEffect(ctx, tx, job, args)
			}, &workers.KindConfig{Slots: 2, Together: 10}),
		)
		before := one[int](b, "select count(*)::integer from effect")
		b.Await(
			"some progress",
			func() bool { return one[int](b, "select count(*)::integer from effect") >= min(n, before+60) },
		)
		w.Stop()
		if one[int](b, "select count(*)::integer from effect") == n {
			break
		}
		if round > n {
			t.Fatal("it never ends")
		}
	}
	b.AwaitSucceeded(n)
	b.WantOneEffectEach(n)
	if failed := one[int](b, "select count(*)::integer from taskledger.event where type = 'failed'"); failed != 0 {
		t.Errorf("stopping has failed %d tasks", failed)
	}
}

func TestTogetherNeedsATransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := try(workers.New(workers.Config{DB: b.DB, NATS: b.NC}))(t)
	for together, register := range map[int]func(*workers.Pool) error{
		2:   b.atLeast(b.outside, &workers.KindConfig{Together: 2}),
		101: b.exactly(insertEffect, &workers.KindConfig{Together: 101}),
		-1:  b.exactly(insertEffect, &workers.KindConfig{Together: -1}),
	} {
		if err := register(p); err == nil || !strings.Contains(err.Error(), "Together") {
			t.Errorf("Together %d: %v", together, err)
		}
	}
}
