package workers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// createRoom makes the tables in which handlers count how many of them run at a time.
func (b *bundle) createRoom() {
	b.T.Helper()
	ledgertest.ExecAsOwner(b.T, b.DB, `
		create table room (kind text, biz_id text, attempt integer, pid integer);
		create table seen (kind text, n integer, pid integer);
		create table killed (pid integer);
		grant all on room, seen, killed to public`)
}

// limitConcurrency sets the concurrency limit of the bundle's kind.
func (b *bundle) limitConcurrency(n int) {
	b.T.Helper()
	kind := b.Kind().Name()
	limit := ledger.StartLimit{Name: string(kind), Kinds: map[ledger.Kind]int{kind: 1}, MaxRunning: &n}
	if err := ledger.SetStartLimit(b.Context(), b.DB, limit, "alice"); err != nil {
		b.T.Fatal(err)
	}
}

// seeSQL counts the handlers that run. A statement of a process that was killed may still be executed after its death.
// And a limit does not count a lost attempt, whose worker may be alive, but too slow for its lease: such an attempt has
// no outcome, and another has followed it or the task was buried.
const seeSQL = `
	insert into seen (kind, n, pid)
	select $1, count(*), $2
	  from room r
	 where r.kind = $1 and r.pid not in (select k.pid from killed k)
	   and (exists (
	       select from taskledger.event e
	        where e.kind = r.kind and e.biz_id = r.biz_id and e.attempt = r.attempt
	          and e.type not in ('started', 'progressed', 'buried'))
	     or not exists (
	       select from taskledger.event e
	        where e.kind = r.kind and e.biz_id = r.biz_id
	          and (e.attempt > r.attempt or e.attempt = r.attempt and e.type = 'buried')))`

// crowd is the body of a handler: it records how many handlers of the kind run at this moment.
func crowd(ctx context.Context, db *pgxpool.Pool, k ledger.Key, attempt ledger.Attempt) error {
	ctx = context.WithoutCancel(ctx)
	key := []any{string(k.Kind), string(k.BizID), int(attempt), os.Getpid()}
	_, err := db.Exec(ctx, "insert into room (kind, biz_id, attempt, pid) values ($1, $2, $3, $4)", key...)
	if err == nil {
		_, err = db.Exec(ctx, seeSQL, string(k.Kind), os.Getpid())
	}
	time.Sleep(2 * time.Millisecond) // the work
	if err == nil {
		_, err = db.Exec(ctx, "delete from room where kind = $1 and biz_id = $2 and attempt = $3 and pid = $4", key...)
	}
	return err
}

var crowdedKind = &workers.KindConfig{Slots: 8, MaxLost: 10}

// crowdedExactly registers such a handler with a transaction.
func crowdedExactly(kind ledger.TypedKind[orderArgs], db *pgxpool.Pool) func(*workers.Pool) error {
	return func(p *workers.Pool) error {
		h := func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
			if err := crowd(ctx, db, job.Key, job.Attempt); err != nil {
				return err
			}
			return insertEffect(ctx, tx, job, args)
		}
		return p.Register(workers.Handle(kind, h, crowdedKind))
	}
}

// crowdedOutside registers such a handler without a transaction.
func crowdedOutside(
	kind ledger.TypedKind[orderArgs], db *pgxpool.Pool, g workers.Guarantee,
) func(*workers.Pool) error {
	config := *crowdedKind
	config.Guarantee = g
	return func(p *workers.Pool) error {
		return p.Register(workers.Handle(kind, func(ctx context.Context, job *workers.Job, _ orderArgs) error {
			return crowd(ctx, db, job.Key, job.Attempt)
		}, &config))
	}
}

// crowded registers such a handler with a guarantee.
func crowded(kind ledger.TypedKind[orderArgs], db *pgxpool.Pool, g workers.Guarantee) func(*workers.Pool) error {
	if g == workers.ExactlyOnce {
		return crowdedExactly(kind, db)
	}
	return crowdedOutside(kind, db, g)
}

// crowdInSQL claims and finishes tasks of the kind by SQL until the test ends.
func (b *bundle) crowdInSQL() {
	b.T.Helper()
	db := b.As("worker")
	kind := string(b.Kind().Name())
	try(db.Exec(b.Context(), "select taskledger.heartbeat('sql', array[$1], '10 minutes')", kind))(b.T)
	b.Start(func(ctx context.Context) error {
		for ctx.Err() == nil {
			rows, _ := db.Query(ctx, "select biz_id, version, attempt from taskledger.claim_next($1, 'sql', 2)", kind)
			var id string
			var version, attempt int
			var ids []string
			var versions, attempts []int
			_, err := pgx.ForEachRow(rows, []any{&id, &version, &attempt}, func() error {
				ids, versions, attempts = append(ids, id), append(versions, version), append(attempts, attempt)
				return nil
			})
			for i := range ids {
				if err == nil {
					err = crowd(ctx, b.DB, b.Kind().Key(ledger.BizID(ids[i])), ledger.Attempt(attempts[i]))
				}
				if err == nil {
					_, err = db.Exec(ctx, "select taskledger.finish($1, $2, $3)", kind, ids[i], versions[i])
				}
			}
			if err != nil {
				if ctx.Err() == nil {
					b.T.Error(err)
				}
				return nil
			}
			if len(ids) == 0 {
				time.Sleep(5 * time.Millisecond)
			}
		}
		return nil
	})
}

// A limit holds over the workers of two processes, one of which is killed, for each guarantee. A worker in SQL works on
// the kind too.
func TestConcurrencyLimitOverProcesses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	b.createRoom()
	const limit, tasks = 3, 150
	for _, test := range []struct {
		program   string
		guarantee workers.Guarantee
		hasSQL    bool
	}{
		{program: "crowded-exactly", guarantee: workers.ExactlyOnce, hasSQL: true},
		{program: "crowded-at-least", guarantee: workers.AtLeastOnce},
		{program: "crowded-at-most", guarantee: workers.AtMostOnce},
	} {
		t.Run(test.program, func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			kind := string(b.Kind().Name())
			b.limitConcurrency(limit)
			b.EnqueueMany(tasks)
			child := b.Spawn(test.program)
			b.Work(workers.Config{}, crowded(b.Kind(), b.DB, test.guarantee))
			if test.hasSQL {
				b.crowdInSQL()
			}
			const ran = "select count(*)::integer from seen where kind = $1 and pid = $2"
			b.Await("handlers in both processes", func() bool {
				return one[int](b, ran, kind, child.Process.Pid) >= 5 && one[int](b, ran, kind, os.Getpid()) >= 5
			})
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			child.AwaitKilled(t)
			b.Exec("insert into killed (pid) values ($1)", child.Process.Pid)
			b.Await("the end of all tasks", func() bool {
				return one[int](b, `select count(distinct e.biz_id)::integer from taskledger.event e
					where e.kind = $1 and e.type in ('succeeded', 'buried')`, kind) == tasks
			})
			if most := one[int](b, "select max(n) from seen where kind = $1", kind); most > limit {
				t.Errorf("%d handlers ran at a time, want at most %d", most, limit)
			}
			if n := one[int](b, "select running::integer from taskledger.limit_use where name = $1", kind); n != 0 {
				t.Errorf("%d permits are in use after the end", n)
			}
		})
	}
}

// A caller runs its task only with a permit, which it holds until its transaction ends. Otherwise a worker runs it.
func TestCallerWithinAConcurrencyLimit(t *testing.T) {
	t.Parallel()
	b := full(t)
	b.limitConcurrency(1)
	other := b.Kind().Key("waits")
	start := ledger.AppendRequest{Key: other, Expected: 1, Type: ledger.EventStarted, Actor: "w"}
	var inside error
	fails := b.caller(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		_, inside = ledger.Append(ctx, b.DB, start)
		if job.BizID == "fails" {
			return errBoom
		}
		return insertEffect(ctx, tx, job, args)
	}, nil)
	for _, test := range []struct {
		id   string
		want ledger.State
	}{
		{id: "fails", want: ledger.StateRetrying}, {id: "o-1", want: ledger.StateSucceeded},
	} {
		answer, err := b.buy(fails, test.id, true)
		if err != nil || answer.State != test.want || answer.Version != 3 {
			t.Errorf("%s: %+v, %v, want %s at version 3", test.id, answer, err, test.want)
		}
		if !errors.Is(inside, ledger.ErrStartLimit) {
			t.Errorf("a start while %s runs: %v, want ErrStartLimit", test.id, inside)
		}
	}
	b.WantOneEffect(b.Kind().Key("o-1"))
	try(ledger.Append(b.Context(), b.DB, start))(t)
	answer, err := b.buy(fails, "o-2", true)
	if err != nil || answer.State != ledger.StateAvailable || answer.Version != 1 {
		t.Errorf("above the limit: %+v, %v, want it available", answer, err)
	}
	if n := b.Effects(b.Kind().Key("o-2")); n != 0 {
		t.Errorf("%d effects above the limit", n)
	}
}

// The dispatcher holds back the tasks of a kind while as many run as its limit allows: they take no slot and no memory
// of a worker. Other kinds' tasks do not wait, and a change of the limit takes effect at once.
func TestLimitedTasksWaitInTheDispatcher(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	b.limitConcurrency(2)
	const tasks = 40
	next := make(chan struct{})
	var running, most atomic.Int32
	other := ledger.MustKind[orderArgs]("test.other")
	w := b.Work(workers.Config{}, func(p *workers.Pool) error {
		return errors.Join(
			p.Register(workers.Handle(b.Kind(), func(ctx context.Context, _ *workers.Job, _ orderArgs) error {
				n := running.Add(1)
				defer running.Add(-1)
				for before := most.Load(); n > before && !most.CompareAndSwap(before, n); before = most.Load() {
				}
				select {
				case <-next:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}, &workers.KindConfig{Slots: 10})),
			p.Register(workers.Handle(other, func(context.Context, *workers.Job, orderArgs) error { return nil }, nil)))
	})
	inFlight := func() int { return w.KindStatus().InFlight }
	b.EnqueueMany(tasks)
	b.Await("two handlers", func() bool { return running.Load() == 2 })
	for i := range 20 {
		key := other.Key(ledger.BizID(fmt.Sprint("x-", i)))
		try(ledger.Enqueue(b.Context(), b.DB, key, json.RawMessage(`{}`), nil))(t)
		b.AwaitState(key, ledger.StateSucceeded)
		if n := inFlight(); n > 2 {
			t.Fatalf("%d tasks are in flight, want 2", n)
		}
	}
	for range 10 {
		next <- struct{}{}
	}
	if n := most.Load(); n != 2 {
		t.Errorf("%d handlers ran at a time, want 2", n)
	}
	b.limitConcurrency(5)
	b.Await("five handlers", func() bool { return running.Load() == 5 })
	b.limitConcurrency(1)
	b.Await("the dispatcher to know", func() bool {
		next <- struct{}{}
		return running.Load() <= 1
	})
	most.Store(0)
	for range 5 {
		next <- struct{}{}
	}
	if n := most.Load(); n > 1 {
		t.Errorf("%d handlers ran at a time after the limit was lowered to 1", n)
	}
	b.Await("a handler", func() bool { return running.Load() == 1 })
	b.limitConcurrency(0)
	next <- struct{}{}
	b.Await("no handler", func() bool { return running.Load() == 0 && inFlight() == 0 })
	if ok := try(ledger.RemoveStartLimit(b.Context(), b.DB, string(b.Kind().Name())))(t); !ok {
		t.Fatal("there was no limit")
	}
	b.Await("ten handlers", func() bool { return running.Load() == 10 })
	close(next)
	b.AwaitSucceeded(tasks + 20)
}

// Dispatchers follow each other while tasks run, and each finds the permits in use.
func TestConcurrencyLimitWithChangingDispatchers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.createRoom()
	const limit, tasks = 3, 200
	b.limitConcurrency(limit)
	kind := string(b.Kind().Name())
	stop := b.Dispatch()
	for range 2 {
		b.Work(workers.Config{}, crowded(b.Kind(), b.DB, workers.AtLeastOnce))
	}
	b.EnqueueMany(tasks)
	for i := range 3 {
		b.Await("handlers", func() bool {
			return one[int](b, "select count(*)::integer from seen where kind = $1", kind) > 20*(i+1)
		})
		after := b.Dispatch()
		stop()
		stop = after
	}
	b.AwaitSucceeded(tasks)
	if most := one[int](b, "select max(n) from seen where kind = $1", kind); most != limit {
		t.Errorf("at most %d handlers ran at a time, want %d", most, limit)
	}
}
