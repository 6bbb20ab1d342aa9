package workers_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
)

// reconciler returns a reconciler that runs only when it is told to.
func (b *bundle) reconciler(db *pgxpool.Pool) *workers.Reconciler {
	b.T.Helper()
	return try(workers.NewReconciler(workers.ReconcilerConfig{
		DB: db, NATS: b.NC, Every: 50 * time.Millisecond, Settle: time.Millisecond, Logger: b.Logger(slog.LevelInfo),
	}))(b.T)
}

func (b *bundle) passes(r *workers.Reconciler, n int) {
	b.T.Helper()
	for range n {
		if err := r.Pass(b.Context()); err != nil {
			b.T.Fatal(err)
		}
	}
}

// steal acknowledges n messages of the kind's new tasks, as somebody may who has no business to.
func (b *bundle) steal(n int) {
	b.T.Helper()
	c := try(b.JS.Consumer(b.Context(), stream.Name, stream.Durable(order.Name(), ledger.AllShards)))(b.T)
	stolen := 0
	for stolen < n {
		for m := range try(c.Fetch(n-stolen, jetstream.FetchMaxWait(time.Second)))(b.T).Messages() {
			if err := m.DoubleAck(b.Context()); err != nil {
				b.T.Fatal(err)
			}
			stolen++
		}
	}
}

// releases counts the events by which tasks were made available again.
func (b *bundle) releases() int {
	b.T.Helper()
	return one[int](b, "select count(*)::integer from taskledger.event where type in ('released', 'interrupted')")
}

// A task whose message somebody else has acknowledged is released, once, and runs.
func TestReconcilerForeignAck(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			b := setupServed(t, outbox.StreamConfig{})
			config := b.DB.Config()
			config.ConnConfig.DefaultQueryExecMode = mode
			db := try(pgxpool.NewWithConfig(b.Context(), config))(t)
			t.Cleanup(db.Close)
			r := b.reconciler(db)
			k := b.Enqueue("o-1")
			b.AwaitProjected()
			b.passes(r, 3)
			if types := b.EventTypes(k); len(types) != 1 {
				t.Fatalf("released although its message waits: %v", types)
			}
			b.steal(1)
			b.passes(r, 1)
			for range 5 { // its new message waits
				b.AwaitProjected()
				b.passes(r, 1)
			}
			if diff := cmp.Diff([]ledger.EventType{ledger.EventEnqueued, ledger.EventReleased}, b.EventTypes(k)); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
			if e := b.History(k)[1]; e.Actor != "reconciler" || string(e.Data) != `{"reason":"its message has gone"}` {
				t.Errorf("%+v", e)
			}
			b.Work(workers.Config{}, exactly(insertEffect, nil))
			b.AwaitState(k, ledger.StateSucceeded)
			b.WantOneEffect(k)
		})
	}
}

// A lost task that somebody's open transaction has appended to does not keep the others waiting.
func TestReconcilerBesideAnOpenTransaction(t *testing.T) {
	t.Parallel()
	b := setupServed(t, outbox.StreamConfig{})
	held, other := b.Enqueue("o-1"), b.Enqueue("o-2")
	b.AwaitProjected()
	b.steal(2)
	tx := try(b.DB.Begin(b.Context()))(t)
	try(ledger.Append(b.Context(), tx, ledger.AppendRequest{Key: held, Expected: 1, Type: ledger.EventCancelled}))(t)
	r := b.reconciler(b.DB)
	b.Start(r.Run)
	b.Await("the other one to be released", func() bool { return len(b.EventTypes(other)) == 2 })
	if err := tx.Rollback(b.Context()); err != nil {
		t.Fatal(err)
	}
	b.Await("the one that was held to be released", func() bool { return len(b.EventTypes(held)) == 2 })
	if n := b.releases(); n != 2 {
		t.Errorf("%d releases", n)
	}
}

// Messages that reach the stream's MaxAge while no worker is there are gone; each loss is
// released once.
func TestReconcilerMaxAge(t *testing.T) {
	t.Parallel()
	b := setupServed(t, outbox.StreamConfig{MaxAge: 2 * time.Second})
	r := b.reconciler(b.DB)
	k := b.Enqueue("o-1")
	b.Await("the first release", func() bool {
		b.passes(r, 1)
		return b.releases() > 0
	})
	events := b.History(k)
	if after := events[1].RecordedAt.Sub(events[0].RecordedAt); after < 2*time.Second {
		t.Errorf("released after %s, while its message was there", after)
	}
	b.Await("the second release", func() bool {
		b.passes(r, 1)
		return b.releases() > 1
	})
	events = b.History(k)
	if after := events[2].RecordedAt.Sub(events[1].RecordedAt); after < 2*time.Second {
		t.Errorf("released again after %s, while its message was there", after)
	}
	b.Start(r.Run)
	b.Work(workers.Config{}, exactly(insertEffect, nil))
	b.AwaitState(k, ledger.StateSucceeded)
	b.WantOneEffect(k)
}

// A purge is made up for by the relay, whose loss it is; together they leave one effect.
func TestReconcilerBesideALoss(t *testing.T) {
	t.Parallel()
	b := setupServed(t, outbox.StreamConfig{})
	b.Start(b.reconciler(b.DB).Run)
	b.EnqueueMany(50)
	b.AwaitProjected()
	if err := try(b.JS.Stream(b.Context(), stream.Name))(t).Purge(b.Context()); err != nil {
		t.Fatal(err)
	}
	b.Await("the relay to make up for it", func() bool {
		return try(b.JS.Stream(b.Context(), stream.Name))(t).CachedInfo().State.Msgs >= 50
	})
	b.Work(workers.Config{}, exactly(insertEffect, nil))
	b.AwaitSucceeded(50)
	b.WantOneEffectEach(50)
	if n := b.releases(); n > 50 {
		t.Errorf("%d releases of 50 tasks", n)
	}
}

// A backlog is left alone, however long it waits; what was lost in its middle comes to light when
// the workers have got there.
func TestReconcilerLeavesABacklogAlone(t *testing.T) {
	t.Parallel()
	b := setupServed(t, outbox.StreamConfig{})
	r := b.reconciler(b.DB)
	const n = 10_000
	for round := range 10 {
		b.EnqueueRound(fmt.Sprint("o", round), n/10)
	}
	b.AwaitProjected()
	b.steal(3)
	b.AwaitProjected()
	b.passes(r, 3)
	if released := b.releases(); released > 3 {
		t.Fatalf("%d releases with 3 messages lost and %d waiting", released, n-3)
	}
	b.Start(r.Run)
	b.Work(workers.Config{}, exactly(insertEffect, &workers.KindConfig{Slots: 8}))
	b.AwaitSucceeded(n)
	b.WantOneEffectEach(n)
	if released := b.releases(); released != 3 {
		t.Errorf("%d releases, want one for each of 3 messages lost", released)
	}
}

// What was recorded early, committed late and is not published yet has no message to have gone,
// wherever the others stand. Not parallel: it holds every relay of this process.
func TestReconcilerLateCommit(t *testing.T) {
	b := setupServed(t, outbox.StreamConfig{})
	r := b.reconciler(b.DB)
	b.Work(workers.Config{}, exactly(insertEffect, nil))
	tx := try(b.DB.Begin(b.Context()))(t)
	defer func() { _ = tx.Rollback(b.Context()) }()
	try(order.Enqueue(b.Context(), tx, "late", orderArgs{}, nil))(t)
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
		return one[int](b, "select count(*)::integer from taskledger.task where biz_id = 'late'") == 1
	})
	b.passes(r, 3)
	if n := b.releases(); n != 0 {
		t.Errorf("%d releases", n)
	}
	close(goOn)
	b.AwaitSucceeded(2)
	b.WantOneEffectEach(2)
}

// A task whose message could not be published waits for a person.
func TestReconcilerParked(t *testing.T) {
	t.Parallel()
	b := setupServed(t, outbox.StreamConfig{})
	r := b.reconciler(b.DB)
	k := b.Enqueue("o-1")
	b.AwaitProjected()
	b.Exec(`insert into taskledger.parked (position, kind, biz_id, version, reason)
	        select e.position, e.kind, e.biz_id, e.version, 'too large' from taskledger.event e`)
	b.steal(1)
	b.passes(r, 3)
	if n := b.releases(); n != 0 {
		t.Errorf("%d releases of a parked task", n)
	}
	b.Exec("delete from taskledger.parked")
	b.passes(r, 1)
	if types := b.EventTypes(k); len(types) != 2 {
		t.Errorf("no longer parked: %v", types)
	}
}

// acknowledgeLast acknowledges the last message of a new task, as somebody may who has no business to.
func (b *bundle) acknowledgeLast() {
	b.T.Helper()
	last := try(try(b.JS.Stream(b.Context(), stream.Name))(b.T).GetLastMsgForSubject(b.Context(), stream.Subjects(ledger.EventEnqueued, order.Name(), ledger.AllShards)[0]))(b.T)
	ack := fmt.Sprintf("$JS.ACK.%s.%s.1.%d.1.%d.0", stream.Name, stream.Durable(order.Name(), ledger.AllShards), last.Sequence, last.Time.UnixNano())
	if err := b.NC.Publish(ack, []byte("+ACK")); err != nil {
		b.T.Fatal(err)
	}
	b.Await("the foreign acknowledgement", func() bool {
		return try(b.JS.Consumer(b.Context(), stream.Name, stream.Durable(order.Name(), ledger.AllShards)))(b.T).CachedInfo().AckFloor.Stream >= last.Sequence
	})
}

// A task whose message has gone while it runs is left alone as long as its worker's lease lives,
// and runs again soon after it has ended.
func TestReconcilerRunningTask(t *testing.T) {
	t.Parallel()
	b := setupServed(t, outbox.StreamConfig{})
	r := b.reconciler(b.DB)
	k := b.Enqueue("o-1")
	c := b.Spawn("slow")
	c.AwaitBegun(t)
	b.AwaitState(k, ledger.StateRunning)
	b.acknowledgeLast()
	b.AwaitProjected()
	for end := time.Now().Add(3 * ackWait); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		b.passes(r, 1)
	}
	if types := b.EventTypes(k); len(types) != 2 {
		t.Fatalf("touched while its worker lives: %v", types)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	b.Start(r.Run)
	b.Work(workers.Config{}, exactly(insertEffect, nil))
	b.AwaitState(k, ledger.StateSucceeded)
	if took := time.Since(killed); took > ackWait+5*time.Second {
		t.Errorf("it ran again after %s", took)
	}
	b.WantOneEffect(k)
	want := []ledger.EventType{ledger.EventEnqueued, ledger.EventStarted, ledger.EventInterrupted, ledger.EventSucceeded}
	if diff := cmp.Diff(want, b.EventTypes(k)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// One that may run once is not made available but buried.
func TestReconcilerRunningOnce(t *testing.T) {
	t.Parallel()
	b := setupServed(t, outbox.StreamConfig{})
	k := b.Enqueue("o-1")
	c := b.Spawn("slow-once")
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

// The task of a worker that is killed runs again within AckWait and 5 s: by its message, which
// the reconciler leaves to itself. Also with the AckWait that a worker has which says nothing.
func TestVanishedWorkersTaskRunsAgain(t *testing.T) {
	t.Parallel()
	for program, wait := range map[string]time.Duration{"slow": ackWait, "slow, default AckWait": workers.DefaultAckWait} {
		t.Run(wait.String(), func(t *testing.T) {
			t.Parallel()
			b := setupServed(t, outbox.StreamConfig{})
			b.Start(b.reconciler(b.DB).Run)
			k := b.Enqueue("o-1")
			c := b.Spawn(program)
			c.AwaitBegun(t)
			b.AwaitState(k, ledger.StateRunning)
			b.Work(workers.Config{AckWait: wait}, exactly(insertEffect, nil))
			time.Sleep(2 * ackWait) // by age alone it would be taken away by now
			if state := b.Task(k).State; state != ledger.StateRunning {
				t.Fatalf("it is %s while its worker lives", state)
			}
			if err := c.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			killed := time.Now()
			b.AwaitState(k, ledger.StateSucceeded)
			took := time.Since(killed)
			t.Logf("ran again after %s with an AckWait of %s", took, wait)
			if took > wait+5*time.Second {
				t.Errorf("it ran again after %s", took)
			}
			b.WantOneEffect(k)
			if n := b.releases(); n != 0 {
				t.Errorf("%d releases", n)
			}
		})
	}
}

func TestReconcilerConfig(t *testing.T) {
	t.Parallel()
	_, err := workers.NewReconciler(workers.ReconcilerConfig{Every: -1})
	want := "reconciler: DB is required\nreconciler: NATS is required\nreconciler: Every and Settle must not be negative"
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}
