package reconciler_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
)

// A task whose message was acknowledged by another client is released once, and runs.
func TestReconcilerForeignAck(t *testing.T) {
	t.Parallel()
	modes := []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	}
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			b := setup(t, outbox.StreamConfig{})
			plantest.Settings(t, b.DB.Config().ConnString())
			config := b.DB.Config()
			config.ConnConfig.DefaultQueryExecMode = mode
			db := servicetest.Try(pgxpool.NewWithConfig(b.Context(), config))(t)
			t.Cleanup(db.Close)
			r := b.reconciler(db)
			k := b.Enqueue("o-1")
			b.AwaitProjected()
			b.passes(r, 3)
			if types := b.EventTypes(k); len(types) != 1 {
				t.Fatalf("released although its message waits: %v", types)
			}
			b.AcknowledgeUnworked(1)
			b.passes(r, 1)
			for range 5 { // its new message waits
				b.AwaitProjected()
				b.passes(r, 1)
			}
			if diff := cmp.Diff(
				[]ledger.EventType{ledger.EventEnqueued, ledger.EventReleased}, b.EventTypes(k),
			); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
			if e := b.History(k)[1]; e.Actor != "reconciler" || string(e.Data) != `{"reason":"its message has gone"}` {
				t.Errorf("%+v", e)
			}
			b.Work(workers.Config{}, servicetest.Exactly(servicetest.InsertEffect, nil))
			b.AwaitState(k, ledger.StateSucceeded)
			b.WantOneEffect(k)
		})
	}
}

// A lost task that an open transaction has appended to does not delay the others.
func TestReconcilerBesideAnOpenTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t, outbox.StreamConfig{})
	held, other := b.Enqueue("o-1"), b.Enqueue("o-2")
	b.AwaitProjected()
	b.AcknowledgeUnworked(2)
	tx := servicetest.Try(b.DB.Begin(b.Context()))(t)
	servicetest.Try(
		ledger.Append(b.Context(), tx, ledger.AppendRequest{Key: held, Expected: 1, Type: ledger.EventCancelled}),
	)(t)
	r := b.reconciler(b.DB)
	b.Start(r.Run)
	b.Await("the other one to be released", func() bool { return len(b.EventTypes(other)) == 2 })
	if err := tx.Rollback(b.Context()); err != nil {
		t.Fatal(err)
	}
	b.Await("the locked one to be released", func() bool { return len(b.EventTypes(held)) == 2 })
	if n := b.releases(); n != 2 {
		t.Errorf("%d releases", n)
	}
}

// Messages expire by the stream's MaxAge while no worker runs; each loss is released once.
func TestReconcilerMaxAge(t *testing.T) {
	t.Parallel()
	b := setup(t, outbox.StreamConfig{MaxAge: 2 * time.Second})
	r := b.reconciler(b.DB)
	k := b.Enqueue("o-1")
	b.Await("the first release", func() bool {
		b.passes(r, 1)
		return b.releases() > 0
	})
	events := b.History(k)
	if after := events[1].RecordedAt.Sub(events[0].RecordedAt); after < 2*time.Second {
		t.Errorf("released after %s, while its message existed", after)
	}
	b.Await("the second release", func() bool {
		b.passes(r, 1)
		return b.releases() > 1
	})
	events = b.History(k)
	if after := events[2].RecordedAt.Sub(events[1].RecordedAt); after < 2*time.Second {
		t.Errorf("released again after %s, while its message existed", after)
	}
	b.Start(r.Run)
	b.Work(workers.Config{}, servicetest.Exactly(servicetest.InsertEffect, nil))
	b.AwaitState(k, ledger.StateSucceeded)
	b.WantOneEffect(k)
}

// The relay republishes after a purge. Beside the reconciler, each task still has one effect.
func TestReconcilerBesideALoss(t *testing.T) {
	t.Parallel()
	b := setup(t, outbox.StreamConfig{})
	b.Start(b.reconciler(b.DB).Run)
	b.EnqueueMany(50)
	b.AwaitProjected()
	if err := servicetest.Try(b.JS.Stream(b.Context(), stream.Name))(t).Purge(b.Context()); err != nil {
		t.Fatal(err)
	}
	b.Await("the relay to republish", func() bool {
		return servicetest.Try(b.JS.Stream(b.Context(), stream.Name))(t).CachedInfo().State.Msgs >= 50
	})
	b.Work(workers.Config{}, servicetest.Exactly(servicetest.InsertEffect, nil))
	b.AwaitSucceeded(50)
	b.WantOneEffectEach(50)
	if n := b.releases(); n > 50 {
		t.Errorf("%d releases of 50 tasks", n)
	}
}

// A backlog is left alone, however long it waits. Losses in its middle are found once the workers have reached them.
func TestReconcilerLeavesABacklogAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, outbox.StreamConfig{})
	r := b.reconciler(b.DB)
	const n = 10_000
	for round := range 10 {
		b.EnqueueRound(fmt.Sprint("o", round), n/10)
	}
	b.AwaitProjected()
	b.AcknowledgeUnworked(3)
	b.AwaitProjected()
	b.passes(r, 3)
	if released := b.releases(); released > 3 {
		t.Fatalf("%d releases with 3 messages lost and %d waiting", released, n-3)
	}
	b.Start(r.Run)
	b.Work(workers.Config{}, servicetest.Exactly(servicetest.InsertEffect, &workers.KindConfig{Slots: 8}))
	b.AwaitSucceeded(n)
	b.WantOneEffectEach(n)
	if released := b.releases(); released != 3 {
		t.Errorf("%d releases, want one for each of 3 messages lost", released)
	}
}

// An event that was recorded early, committed late and is not published yet counts as waiting, wherever the other
// messages are. Not parallel: the crash point stops every relay of this process.
func TestReconcilerLateCommit(t *testing.T) {
	b := setup(t, outbox.StreamConfig{})
	r := b.reconciler(b.DB)
	b.Work(workers.Config{}, servicetest.Exactly(servicetest.InsertEffect, nil))
	tx := servicetest.Try(b.DB.Begin(b.Context()))(t)
	defer func() { _ = tx.Rollback(b.Context()) }()
	servicetest.Try(servicetest.Order.Enqueue(b.Context(), tx, "late", servicetest.OrderArgs{}, nil))(t)
	b.AwaitState(b.Enqueue("o-1"), ledger.StateSucceeded)
	b.AwaitProjected()

	held, goOn := make(chan struct{}, 1000), make(chan struct{})
	remove := fault.Set(outbox.FaultPage, func() {
		held <- struct{}{}
		<-goOn
	})
	defer remove()
	if err := tx.Commit(b.Context()); err != nil {
		t.Fatal(err)
	}
	<-held
	b.Await("the projection", func() bool {
		return servicetest.One[int](b, "select count(*)::integer from taskledger.task where biz_id = 'late'") == 1
	})
	b.passes(r, 3)
	if n := b.releases(); n != 0 {
		t.Errorf("%d releases", n)
	}
	close(goOn)
	b.AwaitSucceeded(2)
	b.WantOneEffectEach(2)
}

// A task whose message could not be published is left to an operator.
func TestReconcilerParked(t *testing.T) {
	t.Parallel()
	b := setup(t, outbox.StreamConfig{})
	r := b.reconciler(b.DB)
	k := b.Enqueue("o-1")
	b.AwaitProjected()
	b.Exec(`insert into taskledger.parked (position, kind, biz_id, version, reason)
	        select e.position, e.kind, e.biz_id, e.version, 'too large' from taskledger.event e`)
	b.AcknowledgeUnworked(1)
	b.passes(r, 3)
	if n := b.releases(); n != 0 {
		t.Errorf("%d releases of a parked task", n)
	}
	ledgertest.ExecAsOwner(t, b.DB, "delete from taskledger.parked")
	b.passes(r, 1)
	if types := b.EventTypes(k); len(types) != 2 {
		t.Errorf("no longer parked: %v", types)
	}
}

// acknowledgeLast acknowledges the last message of a new task, as another client may.
func (b *fixture) acknowledgeLast() {
	b.T.Helper()
	last := servicetest.Try(
		servicetest.Try(b.JS.Stream(b.Context(), stream.Name))(b.T).GetLastMsgForSubject(
			b.Context(), stream.Subjects(ledger.EventEnqueued, servicetest.Order.Name(), ledger.AllShards)[0],
		),
	)(b.T)
	ack := fmt.Sprintf("$JS.ACK.%s.%s.1.%d.1.%d.0",
		stream.Name, stream.Durable(servicetest.Order.Name(), ledger.AllShards), last.Sequence, last.Time.UnixNano())
	if err := b.NC.Publish(ack, []byte("+ACK")); err != nil {
		b.T.Fatal(err)
	}
	b.Await("the foreign acknowledgement", func() bool {
		return servicetest.Try(
			b.JS.Consumer(b.Context(), stream.Name, stream.Durable(servicetest.Order.Name(), ledger.AllShards)),
		)(b.T).CachedInfo().AckFloor.Stream >= last.Sequence
	})
}

// A running task whose message is gone is not touched while its worker's lease is alive. After the lease has expired it
// runs again: by its message, which was sent again, or by the next pass.
func TestReconcilerRunningTask(t *testing.T) {
	t.Parallel()
	b := setup(t, outbox.StreamConfig{})
	r := b.reconciler(b.DB)
	k := b.Enqueue("o-1")
	c := b.Spawn("exactly once, slow AckWait")
	c.AwaitBegun(t)
	b.AwaitState(k, ledger.StateRunning)
	b.acknowledgeLast()
	b.AwaitProjected()
	aliveUntil := func() time.Time {
		return servicetest.One[time.Time](b, "select alive_until from taskledger.lease where name like 'worker/%'")
	}
	first := aliveUntil()
	b.Await("the lease to be renewed beyond its first end", func() bool {
		b.passes(r, 1)
		return aliveUntil().After(first.Add(slowAckWait))
	})
	if types := b.EventTypes(k); len(types) != 2 {
		t.Fatalf("touched while its worker lives: %v", types)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for isExpired := false; len(b.EventTypes(k)) == 2; {
		if isExpired {
			t.Fatal("a pass after the end of the lease did not make it available")
		}
		isExpired = servicetest.One[bool](
			b, "select alive_until <= clock_timestamp() from taskledger.lease where name like 'worker/%'",
		)
		b.passes(r, 1)
	}
	b.Start(r.Run)
	b.Work(workers.Config{}, servicetest.Exactly(servicetest.InsertEffect, nil))
	b.AwaitState(k, ledger.StateSucceeded)
	b.WantOneEffect(k)
	if types := b.EventTypes(k); types[2] != ledger.EventInterrupted { // no other worker could get the message
		t.Errorf("events %v, want one that takes it from its worker", types)
	}
}

// A running task that must not run twice is buried.
func TestReconcilerRunningOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, outbox.StreamConfig{})
	k := b.Enqueue("o-1")
	c := b.Spawn("at most once")
	c.AwaitBegun(t)
	b.AwaitState(k, ledger.StateRunning)
	b.acknowledgeLast()
	b.AwaitProjected()
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	b.Start(b.reconciler(b.DB).Run)
	b.AwaitState(k, ledger.StateDead)
	if reason := b.Task(k).Error; reason != "unknown outcome" {
		t.Errorf("dead of %q", reason)
	}
}

// The task of a killed worker runs again within AckWait and 5 s, because its message is redelivered; the
// reconciler does not interfere. That also holds for the default AckWait.
func TestVanishedWorkersTaskRunsAgain(t *testing.T) {
	t.Parallel()
	for program, wait := range map[string]time.Duration{
		"exactly once, slow AckWait": slowAckWait, "exactly once, default AckWait": workers.DefaultAckWait,
	} {
		t.Run(wait.String(), func(t *testing.T) {
			t.Parallel()
			b := setup(t, outbox.StreamConfig{})
			b.Start(b.reconciler(b.DB).Run)
			k := b.Enqueue("o-1")
			c := b.Spawn(program)
			c.AwaitBegun(t)
			b.AwaitState(k, ledger.StateRunning)
			b.Work(workers.Config{AckWait: wait}, servicetest.Exactly(servicetest.InsertEffect, nil))
			time.Sleep(2 * slowAckWait) // a reconciler that used the age would have acted by now
			if state := b.Task(k).State; state != ledger.StateRunning {
				t.Fatalf("it is %s while its worker lives", state)
			}
			if err := c.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			killed := time.Now()
			slowest := time.Duration(0) // of enqueuing a task until it is projected: the machine may be busy
			b.Await("it to run again", func() bool {
				begun := time.Now()
				b.Enqueue(fmt.Sprintf("beside-%d", begun.UnixNano()))
				b.AwaitProjected()
				slowest = max(slowest, time.Since(begun))
				time.Sleep(200 * time.Millisecond)
				return b.Task(k).State == ledger.StateSucceeded
			})
			took := time.Since(killed)
			t.Logf("ran again after %s with an AckWait of %s; another task was projected in %s", took, wait, slowest)
			if took > wait+5*time.Second+10*slowest {
				t.Errorf("it ran again after %s, and another task was projected in %s", took, slowest)
			}
			b.WantOneEffect(k)
			if n := b.releases(); n != 0 {
				t.Errorf("%d releases", n)
			}
		})
	}
}

// A task in a shard with workers is released when its message is gone. A task in a shard without workers waits for
// them, although other shards of its kind have some.
func TestReconcilerOfShards(t *testing.T) {
	t.Parallel()
	b := setup(t, outbox.StreamConfig{})
	if err := workers.Retire(b.Context(), b.DB, b.NC, servicetest.Order.Name(), ledger.AllShards); err != nil {
		t.Fatal(err)
	}
	low, lower := ledger.ShardRange(0, 31), ledger.ShardRange(0, 15)
	for _, shards := range []ledger.ShardSet{lower, low &^ lower} {
		w := b.Work(workers.Config{Shards: shards}, servicetest.Exactly(servicetest.InsertEffect, nil))
		b.Await("its consumers", func() bool {
			_, err := b.JS.Consumer(b.Context(), stream.Name, stream.Durable(servicetest.Order.Name(), shards))
			return err == nil
		})
		w.Stop()
	}
	var keys []ledger.Key
	for _, shard := range []ledger.Shard{3, 20, 40} {
		id := ledger.BizID(fmt.Sprint("shard-", shard))
		options := &ledger.EnqueueOptions{Shard: &shard}
		servicetest.Try(servicetest.Order.Enqueue(b.Context(), b.DB, id, servicetest.OrderArgs{}, options))(t)
		keys = append(keys, ledger.Key{Kind: servicetest.Order.Name(), BizID: id})
	}
	b.AwaitProjected()
	r := b.reconciler(b.DB)
	b.passes(r, 3)
	if n := b.releases(); n != 0 {
		t.Fatalf("%d tasks were released although their messages wait", n)
	}
	for _, shards := range []ledger.ShardSet{lower, low &^ lower} { // as another client may
		durable := stream.Durable(servicetest.Order.Name(), shards)
		c := servicetest.Try(b.JS.Consumer(b.Context(), stream.Name, durable))(t)
		if err := servicetest.Try(c.Next())(t).DoubleAck(b.Context()); err != nil {
			t.Fatal(err)
		}
	}
	b.Await("the lost tasks to be released", func() bool {
		b.passes(r, 1)
		return b.releases() == 2
	})
	if types := b.EventTypes(keys[2]); len(types) != 1 {
		t.Errorf("a task was released in a shard without workers: %v", types)
	}
	b.Work(workers.Config{Shards: lower}, servicetest.Exactly(servicetest.InsertEffect, nil))
	b.Work(workers.Config{Shards: low &^ lower}, servicetest.Exactly(servicetest.InsertEffect, nil))
	b.Work(workers.Config{Shards: ledger.ShardRange(32, 63)}, servicetest.Exactly(servicetest.InsertEffect, nil))
	b.AwaitSucceeded(3)
	b.WantOneEffectEach(3)
}
