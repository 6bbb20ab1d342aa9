package workers_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/projector"
	"github.com/taskledger/taskledger/workers"
)

// setupServed is setup with a relay and a projector at work, and with the consumers of the kind
// order, which a worker has left.
func setupServed(t testing.TB, c outbox.StreamConfig) *bundle {
	t.Helper()
	return setupServedOn(t, ledgertest.Pool(t), c)
}

func setupServedOn(t testing.TB, db *pgxpool.Pool, c outbox.StreamConfig) *bundle {
	t.Helper()
	server := try(natsserver.Start(natsserver.Config{Dir: t.TempDir()}))(t)
	t.Cleanup(func() { _ = server.Close() })
	b := &bundle{t: t, db: db, server: server}
	b.nc = b.connect()
	b.js = try(jetstream.New(b.nc))(t)
	b.exec("create table effect (biz_id text not null, attempt integer not null, note text)")
	log := slog.New(slog.NewTextHandler(&testWriter{t}, nil))
	c.MaxBytes = 1 << 30
	relay := try(outbox.New(outbox.Config{DB: b.db, NATS: b.connect(), Stream: c, CheckEvery: 50 * time.Millisecond, Logger: log.With("loop", "relay")}))(t)
	tasks := try(projector.New(projector.Config{DB: b.db, Logger: log.With("loop", "projector")}))(t)
	b.loop(relay.Run)
	b.loop(tasks.Run)
	b.await("the stream", func() bool {
		_, err := b.js.Stream(b.context(), stream.Name)
		return err == nil
	})
	w := b.work(workers.Config{}, exactly(insertEffect, nil))
	b.await("the consumers", func() bool {
		for _, c := range stream.Consumers(order.Name(), ledger.AllShards) {
			if _, err := b.js.Consumer(b.context(), stream.Name, c.Durable); err != nil {
				return false
			}
		}
		return true
	})
	w.stop()
	return b
}

// loop runs something until the test ends.
func (b *bundle) loop(run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	b.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
	})
}

// reconciler returns a reconciler that runs only when it is told to.
func (b *bundle) reconciler(db *pgxpool.Pool) *workers.Reconciler {
	b.t.Helper()
	return try(workers.NewReconciler(workers.ReconcilerConfig{
		DB: db, NATS: b.nc, Every: 50 * time.Millisecond, Settle: time.Millisecond, Logger: slog.New(slog.NewTextHandler(&testWriter{b.t}, nil)),
	}))(b.t)
}

func (b *bundle) passes(r *workers.Reconciler, n int) {
	b.t.Helper()
	for range n {
		if err := r.Pass(b.context()); err != nil {
			b.t.Fatal(err)
		}
	}
}

// projected waits until everything is published and projected.
func (b *bundle) projected() {
	b.t.Helper()
	b.await("publishing and projecting", func() bool {
		lag := try(projector.Behind(b.context(), b.db))(b.t)
		return lag.Events == 0 && one[int](b, "select count(*)::integer from taskledger.outbox") == 0
	})
}

// steal acknowledges n messages of the kind's new tasks, as somebody may who has no business to.
func (b *bundle) steal(n int) {
	b.t.Helper()
	c := try(b.js.Consumer(b.context(), stream.Name, stream.Durable(order.Name(), ledger.AllShards)))(b.t)
	stolen := 0
	for stolen < n {
		for m := range try(c.Fetch(n-stolen, jetstream.FetchMaxWait(time.Second)))(b.t).Messages() {
			if err := m.DoubleAck(b.context()); err != nil {
				b.t.Fatal(err)
			}
			stolen++
		}
	}
}

// releases counts the events by which tasks were made available again.
func (b *bundle) releases() int {
	b.t.Helper()
	return one[int](b, "select count(*)::integer from taskledger.event where type in ('released', 'interrupted')")
}

// A task whose message somebody else has acknowledged is released, once, and runs.
func TestReconcilerForeignAck(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			b := setupServed(t, outbox.StreamConfig{})
			config := b.db.Config()
			config.ConnConfig.DefaultQueryExecMode = mode
			db := try(pgxpool.NewWithConfig(b.context(), config))(t)
			t.Cleanup(db.Close)
			r := b.reconciler(db)
			k := b.enqueue("o-1")
			b.projected()
			b.passes(r, 3)
			if types := b.types(k); len(types) != 1 {
				t.Fatalf("released although its message waits: %v", types)
			}
			b.steal(1)
			b.passes(r, 1)
			for range 5 { // its new message waits
				b.projected()
				b.passes(r, 1)
			}
			if diff := cmp.Diff([]ledger.EventType{ledger.EventEnqueued, ledger.EventReleased}, b.types(k)); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
			if e := b.history(k)[1]; e.Actor != "reconciler" || string(e.Data) != `{"reason":"its message has gone"}` {
				t.Errorf("%+v", e)
			}
			b.work(workers.Config{}, exactly(insertEffect, nil))
			b.awaitState(k, ledger.StateSucceeded)
			b.oneEffect(k)
		})
	}
}

// A lost task that somebody's open transaction has appended to does not keep the others waiting.
func TestReconcilerBesideAnOpenTransaction(t *testing.T) {
	t.Parallel()
	b := setupServed(t, outbox.StreamConfig{})
	held, other := b.enqueue("o-1"), b.enqueue("o-2")
	b.projected()
	b.steal(2)
	tx := try(b.db.Begin(b.context()))(t)
	try(ledger.Append(b.context(), tx, ledger.AppendRequest{Key: held, Expected: 1, Type: ledger.EventCancelled}))(t)
	r := b.reconciler(b.db)
	b.loop(r.Run)
	b.await("the other one to be released", func() bool { return len(b.types(other)) == 2 })
	if err := tx.Rollback(b.context()); err != nil {
		t.Fatal(err)
	}
	b.await("the one that was held to be released", func() bool { return len(b.types(held)) == 2 })
	if n := b.releases(); n != 2 {
		t.Errorf("%d releases", n)
	}
}

// Messages that reach the stream's MaxAge while no worker is there are gone; each loss is
// released once.
func TestReconcilerMaxAge(t *testing.T) {
	t.Parallel()
	b := setupServed(t, outbox.StreamConfig{MaxAge: 2 * time.Second})
	r := b.reconciler(b.db)
	k := b.enqueue("o-1")
	b.await("the first release", func() bool {
		b.passes(r, 1)
		return b.releases() > 0
	})
	events := b.history(k)
	if after := events[1].RecordedAt.Sub(events[0].RecordedAt); after < 2*time.Second {
		t.Errorf("released after %s, while its message was there", after)
	}
	b.await("the second release", func() bool {
		b.passes(r, 1)
		return b.releases() > 1
	})
	events = b.history(k)
	if after := events[2].RecordedAt.Sub(events[1].RecordedAt); after < 2*time.Second {
		t.Errorf("released again after %s, while its message was there", after)
	}
	b.loop(r.Run)
	b.work(workers.Config{}, exactly(insertEffect, nil))
	b.awaitState(k, ledger.StateSucceeded)
	b.oneEffect(k)
}

// A purge is made up for by the relay, whose loss it is; together they leave one effect.
func TestReconcilerBesideALoss(t *testing.T) {
	t.Parallel()
	b := setupServed(t, outbox.StreamConfig{})
	b.loop(b.reconciler(b.db).Run)
	b.enqueueMany(50)
	b.projected()
	if err := try(b.js.Stream(b.context(), stream.Name))(t).Purge(b.context()); err != nil {
		t.Fatal(err)
	}
	b.await("the relay to make up for it", func() bool {
		return try(b.js.Stream(b.context(), stream.Name))(t).CachedInfo().State.Msgs >= 50
	})
	b.work(workers.Config{}, exactly(insertEffect, nil))
	b.allDone(50)
	b.eachOnce(50)
	if n := b.releases(); n > 50 {
		t.Errorf("%d releases of 50 tasks", n)
	}
}

// A backlog is left alone, however long it waits; what was lost in its middle comes to light when
// the workers have got there.
func TestReconcilerLeavesABacklogAlone(t *testing.T) {
	t.Parallel()
	b := setupServed(t, outbox.StreamConfig{})
	r := b.reconciler(b.db)
	const n = 10_000
	for round := range 10 {
		b.enqueueRound(fmt.Sprint("o", round), n/10)
	}
	b.projected()
	b.steal(3)
	b.projected()
	b.passes(r, 3)
	if released := b.releases(); released > 3 {
		t.Fatalf("%d releases with 3 messages lost and %d waiting", released, n-3)
	}
	b.loop(r.Run)
	b.work(workers.Config{}, exactly(insertEffect, &workers.KindConfig{Slots: 8}))
	b.allDone(n)
	b.eachOnce(n)
	if released := b.releases(); released != 3 {
		t.Errorf("%d releases, want one for each of 3 messages lost", released)
	}
}

// What was recorded early, committed late and is not published yet has no message to have gone,
// wherever the others stand. Not parallel: it holds every relay of this process.
func TestReconcilerLateCommit(t *testing.T) {
	b := setupServed(t, outbox.StreamConfig{})
	r := b.reconciler(b.db)
	b.work(workers.Config{}, exactly(insertEffect, nil))
	tx := try(b.db.Begin(b.context()))(t)
	defer func() { _ = tx.Rollback(b.context()) }()
	try(order.Enqueue(b.context(), tx, "late", orderArgs{}, nil))(t)
	b.awaitState(b.enqueue("o-1"), ledger.StateSucceeded)
	b.projected()

	held, goOn := make(chan struct{}, 1000), make(chan struct{})
	remove := fault.Set(outbox.FaultPage, func() {
		held <- struct{}{}
		<-goOn
	})
	defer remove()
	if err := tx.Commit(b.context()); err != nil {
		t.Fatal(err)
	}
	<-held
	b.await("the projection", func() bool {
		return one[int](b, "select count(*)::integer from taskledger.task where biz_id = 'late'") == 1
	})
	b.passes(r, 3)
	if n := b.releases(); n != 0 {
		t.Errorf("%d releases", n)
	}
	close(goOn)
	b.allDone(2)
	b.eachOnce(2)
}

// A task whose message could not be published waits for a person.
func TestReconcilerParked(t *testing.T) {
	t.Parallel()
	b := setupServed(t, outbox.StreamConfig{})
	r := b.reconciler(b.db)
	k := b.enqueue("o-1")
	b.projected()
	b.exec(`insert into taskledger.parked (position, kind, biz_id, version, reason)
	        select e.position, e.kind, e.biz_id, e.version, 'too large' from taskledger.event e`)
	b.steal(1)
	b.passes(r, 3)
	if n := b.releases(); n != 0 {
		t.Errorf("%d releases of a parked task", n)
	}
	b.exec("delete from taskledger.parked")
	b.passes(r, 1)
	if types := b.types(k); len(types) != 2 {
		t.Errorf("no longer parked: %v", types)
	}
}

// acknowledgeLast acknowledges the last message of a new task, as somebody may who has no business to.
func (b *bundle) acknowledgeLast() {
	b.t.Helper()
	last := try(try(b.js.Stream(b.context(), stream.Name))(b.t).GetLastMsgForSubject(b.context(), stream.Subjects(ledger.EventEnqueued, order.Name(), ledger.AllShards)[0]))(b.t)
	ack := fmt.Sprintf("$JS.ACK.%s.%s.1.%d.1.%d.0", stream.Name, stream.Durable(order.Name(), ledger.AllShards), last.Sequence, last.Time.UnixNano())
	if err := b.nc.Publish(ack, []byte("+ACK")); err != nil {
		b.t.Fatal(err)
	}
	b.await("the foreign acknowledgement", func() bool {
		return try(b.js.Consumer(b.context(), stream.Name, stream.Durable(order.Name(), ledger.AllShards)))(b.t).CachedInfo().AckFloor.Stream >= last.Sequence
	})
}

// A task whose message has gone while it runs is left alone as long as its worker's lease lives,
// and runs again soon after it has ended.
func TestReconcilerRunningTask(t *testing.T) {
	t.Parallel()
	b := setupServed(t, outbox.StreamConfig{})
	r := b.reconciler(b.db)
	k := b.enqueue("o-1")
	c := b.spawn("slow")
	if _, err := c.out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	b.awaitState(k, ledger.StateRunning)
	b.acknowledgeLast()
	b.projected()
	for end := time.Now().Add(3 * ackWait); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		b.passes(r, 1)
	}
	if types := b.types(k); len(types) != 2 {
		t.Fatalf("touched while its worker lives: %v", types)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	b.loop(r.Run)
	b.work(workers.Config{}, exactly(insertEffect, nil))
	b.awaitState(k, ledger.StateSucceeded)
	if took := time.Since(killed); took > ackWait+5*time.Second {
		t.Errorf("it ran again after %s", took)
	}
	b.oneEffect(k)
	want := []ledger.EventType{ledger.EventEnqueued, ledger.EventStarted, ledger.EventInterrupted, ledger.EventSucceeded}
	if diff := cmp.Diff(want, b.types(k)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// One that may run once is not made available but buried.
func TestReconcilerRunningOnce(t *testing.T) {
	t.Parallel()
	b := setupServed(t, outbox.StreamConfig{})
	k := b.enqueue("o-1")
	c := b.spawn("slow-once")
	if _, err := c.out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	b.awaitState(k, ledger.StateRunning)
	b.acknowledgeLast()
	b.projected()
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	b.loop(b.reconciler(b.db).Run)
	b.awaitState(k, ledger.StateDead)
	if reason := b.task(k).Error; reason != "unknown outcome" {
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
			b.loop(b.reconciler(b.db).Run)
			k := b.enqueue("o-1")
			c := b.spawn(program)
			if _, err := c.out.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			b.awaitState(k, ledger.StateRunning)
			b.work(workers.Config{AckWait: wait}, exactly(insertEffect, nil))
			time.Sleep(2 * ackWait) // by age alone it would be taken away by now
			if state := b.task(k).State; state != ledger.StateRunning {
				t.Fatalf("it is %s while its worker lives", state)
			}
			if err := c.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			killed := time.Now()
			b.awaitState(k, ledger.StateSucceeded)
			took := time.Since(killed)
			t.Logf("ran again after %s with an AckWait of %s", took, wait)
			if took > wait+5*time.Second {
				t.Errorf("it ran again after %s", took)
			}
			b.oneEffect(k)
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
