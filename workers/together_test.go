package workers_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// warmUp is how many tasks a worker has done before it is known to be quick, and holds more tasks
// than it has slots.
const warmUp = 50

// transactions returns in how many transactions tasks have succeeded.
func (b *bundle) transactions() int {
	return one[int](b, "select count(distinct xid::text)::integer from taskledger.event where type = 'succeeded'")
}

// gathering is a worker whose slots are taken while its test enqueues tasks, which then share.
type gathering struct {
	*worker
	first, second chan struct{} // closed: that slot is free
}

// gather runs a worker with two slots, and has both taken: the second one until the task "bad" begins,
// so that it shares with all that were enqueued before it.
func (b *bundle) gather(handler func(context.Context, pgx.Tx, *workers.Job, orderArgs) error, c workers.KindConfig) *gathering {
	b.t.Helper()
	c.Slots, c.Together = 2, 20
	var begun atomic.Int32
	g := &gathering{first: make(chan struct{}), second: make(chan struct{})}
	var bad sync.Once
	register := exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
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
	// What waits for long in hand is decided again, and then it is not in order any more.
	g.worker = b.work(workers.Config{AckWait: 20 * time.Second}, func(p *workers.Pool) error {
		p.SetTogetherTime(patience)
		return register(p)
	})
	b.enqueueMany(warmUp)
	b.allDone(warmUp)
	for i, which := range []string{"first", "second"} {
		b.enqueue("takes the " + which + " slot")
		b.await("a slot to be taken", func() bool { return begun.Load() == int32(i)+1 })
	}
	return g
}

// enqueueGathered enqueues tasks and has them run once all of them wait.
func (b *bundle) enqueueGathered(g *gathering, ids ...string) []ledger.Key {
	b.t.Helper()
	keys := make([]ledger.Key, len(ids))
	for i, id := range ids {
		keys[i] = b.enqueue(id)
	}
	b.await("the tasks to wait for a slot", func() bool { return g.Ready() == len(ids) })
	close(g.first)
	return keys
}

var someIDs = []string{"a", "b", "c", "bad", "d", "e", "f", "g"}

func TestTogether(t *testing.T) {
	t.Parallel()
	for name, register := range map[string]func(*workers.KindConfig) func(*workers.Pool) error{
		"pgx":          func(c *workers.KindConfig) func(*workers.Pool) error { return exactly(insertEffect, c) },
		"database/sql": func(c *workers.KindConfig) func(*workers.Pool) error { return exactlySQL(insertEffectSQL, c) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.relay()
			const n = 600
			b.enqueueMany(n)
			b.work(workers.Config{}, func(p *workers.Pool) error {
				p.SetTogetherTime(patience)
				return register(&workers.KindConfig{Slots: 2, Together: 10})(p)
			})
			b.allDone(n)
			b.eachOnce(n)
			if most := one[int](b, "select max(n)::integer from (select count(*) as n from taskledger.event where type = 'succeeded' group by xid) t"); most > 10 {
				t.Errorf("%d tasks in one transaction, of at most 10", most)
			}
			if got := b.transactions(); got > n*4/5 { // how many wait at a time depends on the machine
				t.Errorf("%d transactions for %d tasks", got, n)
			}
			if apart := one[int](b, `select count(*)::integer from effect f join taskledger.event e on e.biz_id = f.biz_id and e.type = 'succeeded'
				where f.xmin::text <> e.xid::xid::text`); apart != 0 {
				t.Errorf("%d effects are not of the transaction of their event", apart)
			}
			b.await("the acknowledgements", func() bool { return b.unanswered() == 0 })
		})
	}
}

// What one task does wrong in a transaction that it shares has the consequences that it has alone, and
// for the other tasks it has none.
func TestOneOfTogetherMisbehaves(t *testing.T) {
	t.Parallel()
	for name, test := range misbehaviours {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.exec(schemaOfMisbehaviours)
			b.relay()
			var calls atomic.Int32
			times := int32(2) // in company, and alone
			if name == "ignores" {
				times = 1 // so that a slot is left
			}
			never := make(chan struct{}) // as far as the test is concerned
			t.Cleanup(func() { close(never) })
			g := b.gather(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
				if err := insertEffect(ctx, tx, job, args); err != nil || job.BizID != "bad" || calls.Add(1) > times {
					return err
				}
				ctx = context.WithValue(ctx, jobKey{}, job)
				return test.misbehave(context.WithValue(ctx, neverKey{}, never), tx)
			}, test.config)
			for _, k := range b.enqueueGathered(g, someIDs...) {
				b.awaitState(k, ledger.StateSucceeded)
				b.oneEffect(k)
				failures := b.failures(k)
				if k.BizID != "bad" {
					if len(failures) > 0 {
						t.Errorf("%s has failed, too: %q", k, failures)
					}
					continue
				}
				if len(failures) == 0 || !strings.Contains(failures[0].Error.Message, test.message) {
					t.Errorf("failures %q, want one that says %q", failures, test.message)
				}
			}
			if g.status().Attempts[workers.OutcomeRetried] == 0 {
				t.Error("no transaction was shared and undone")
			}
		})
	}
}

// If a handler has ended the transaction, what was done in it may be committed: nobody can say of
// which task.
func TestOneOfTogetherCommits(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(ctx context.Context, tx pgx.Tx, id ledger.BizID) error{
		"commit": func(ctx context.Context, tx pgx.Tx, id ledger.BizID) (err error) {
			if id == "bad" {
				_, err = tx.Exec(ctx, "commit")
			}
			return err
		},
		"commit and begin": func(ctx context.Context, tx pgx.Tx, id ledger.BizID) (err error) {
			if id == "bad" {
				_, err = tx.Exec(ctx, "commit; begin")
			}
			return err
		},
		"commit, and an error": func(ctx context.Context, tx pgx.Tx, id ledger.BizID) (err error) {
			if id == "bad" {
				_, _ = tx.Exec(ctx, "commit")
				return errBoom
			}
			return nil
		},
		"commit and begin, and an error of another one": func(ctx context.Context, tx pgx.Tx, id ledger.BizID) (err error) {
			switch id {
			case "bad":
				_, err = tx.Exec(ctx, "commit; begin")
			case "d":
				err = errBoom
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.relay()
			g := b.gather(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
				return errors.Join(insertEffect(ctx, tx, job, args), end(ctx, tx, job.BizID))
			}, workers.KindConfig{Retry: ledger.RetryPolicy{Attempts: 2, Ladder: []time.Duration{0}}})
			dead := 0
			for _, k := range b.enqueueGathered(g, someIDs...) {
				b.await("the end of "+k.String(), func() bool { return b.task(k).State.Finished() })
				if n := b.effects(k); n > 1 {
					t.Errorf("%s has %d effects", k, n)
				}
				if b.task(k).State == ledger.StateDead {
					dead++
				}
			}
			if dead < 4 { // those before it, and itself
				t.Errorf("%d tasks are dead", dead)
			}
		})
	}
}

// A task that is cancelled after its handler has returned is undone, as nothing is committed yet.
func TestOneOfTogetherIsCancelled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.relay()
	var calls atomic.Int32
	o := try(workers.NewOperator(workers.OperatorConfig{DB: b.db, NATS: b.nc}))(t)
	g := b.gather(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		if job.BizID == "bad" && calls.Add(1) == 1 {
			if _, err := o.Cancel(ctx, ledger.Key{Kind: order.Name(), BizID: "c"}, workers.By{Actor: "test"}); err != nil {
				return err
			}
		}
		return insertEffect(ctx, tx, job, args)
	}, workers.KindConfig{})
	for _, k := range b.enqueueGathered(g, someIDs...) {
		if k.BizID == "c" {
			b.awaitState(k, ledger.StateCancelled)
			continue
		}
		b.awaitState(k, ledger.StateSucceeded)
		b.oneEffect(k)
	}
	if n := b.effects(ledger.Key{Kind: order.Name(), BizID: "c"}); n != 0 {
		t.Errorf("what was cancelled had %d effects", n)
	}
}

// Tasks that share a transaction may lock each other's rows in any order.
func TestTogetherDeadlocks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.relay()
	b.exec("create table account (id integer primary key, amount integer not null)")
	b.exec("insert into account select generate_series(0, 3), 0")
	const n = 200
	b.enqueueMany(n)
	var account atomic.Int32
	b.work(workers.Config{}, exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		if _, err := tx.Exec(ctx, "update account set amount = amount + 1 where id = $1", account.Add(1)*7%4); err != nil {
			return err
		}
		return insertEffect(ctx, tx, job, args)
	}, &workers.KindConfig{Slots: 2, Together: 10}))
	b.allDone(n)
	b.eachOnce(n)
	if sum := one[int](b, "select sum(amount)::integer from account"); sum != n {
		t.Errorf("the accounts have %d of %d", sum, n)
	}
}

// A worker that is stopped in the middle leaves nothing half done.
func TestStopWhileTogether(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.relay()
	const n = 400
	b.enqueueMany(n)
	for round := 1; ; round++ {
		w := b.work(workers.Config{StopTimeout: time.Millisecond}, exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
			if _, err := tx.Exec(ctx, "select pg_sleep(0.001)"); err != nil {
				return err
			}
			return insertEffect(ctx, tx, job, args)
		}, &workers.KindConfig{Slots: 2, Together: 10}))
		before := one[int](b, "select count(*)::integer from effect")
		b.await("some progress", func() bool { return one[int](b, "select count(*)::integer from effect") >= min(n, before+60) })
		w.stop()
		if one[int](b, "select count(*)::integer from effect") == n {
			break
		}
		if round > n {
			t.Fatal("it never ends")
		}
	}
	b.allDone(n)
	b.eachOnce(n)
	if failed := one[int](b, "select count(*)::integer from taskledger.event where type = 'failed'"); failed != 0 {
		t.Errorf("stopping has failed %d tasks", failed)
	}
}

func TestTogetherNeedsATransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := try(workers.New(workers.Config{DB: b.db, NATS: b.nc}))(t)
	for together, register := range map[int]func(*workers.Pool) error{
		2:   atLeast(b.outside, &workers.KindConfig{Together: 2}),
		101: exactly(insertEffect, &workers.KindConfig{Together: 101}),
		-1:  exactly(insertEffect, &workers.KindConfig{Together: -1}),
	} {
		if err := register(p); err == nil || !strings.Contains(err.Error(), "Together") {
			t.Errorf("Together %d: %v", together, err)
		}
	}
}
