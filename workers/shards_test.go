package workers_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// noteWorker is insertEffect with the worker's name as the note.
func noteWorker(name string) func(context.Context, pgx.Tx, *workers.Job, orderArgs) error {
	return func(ctx context.Context, tx pgx.Tx, job *workers.Job, _ orderArgs) error {
		_, err := tx.Exec(ctx, "insert into effect (biz_id, attempt, note) values ($1, $2, $3)",
			string(job.BizID), int(job.Attempt), name)
		return err
	}
}

// workShards runs a worker whose effects contain its name.
func (b *bundle) workShards(name string, c workers.Config) *worker {
	b.T.Helper()
	c.Name = name
	return b.Work(c, exactly(noteWorker(name), nil))
}

// shardsBy returns the shards of the tasks that a worker has finished.
func (b *bundle) shardsBy(name string) (shards ledger.ShardSet) {
	b.T.Helper()
	rows := try(
		b.DB.Query(
			b.Context(), "select distinct taskledger.shard_of(biz_id)::integer from effect where note = $1", name,
		),
	)(b.T)
	for _, shard := range try(pgx.CollectRows(rows, pgx.RowTo[int]))(b.T) {
		shards |= ledger.ShardRange(ledger.Shard(shard), ledger.Shard(shard))
	}
	return shards
}

// awaitParts waits until the workers have so many groups of 8 shards each (-1: some), and all shards together.
func (b *bundle) awaitParts(workers []*worker, parts ...int) {
	b.T.Helper()
	b.Await(fmt.Sprintf("parts of %v groups", parts), func() bool {
		var all ledger.ShardSet
		for i, w := range workers {
			mine := w.KindStatus().Shards
			if mine == 0 || mine.Len() != parts[i]*8 && parts[i] >= 0 || all.Overlaps(mine) {
				return false
			}
			all |= mine
		}
		return all == ledger.AllShards
	})
}

// Workers with fixed shards run the tasks of these, and together they run all tasks.
func TestFixedShards(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Relay()
	low, high := ledger.ShardRange(0, 31), ledger.ShardRange(32, 63)
	b.workShards("low", workers.Config{Shards: low})
	b.workShards("high", workers.Config{Shards: high})
	b.workShards("high2", workers.Config{Shards: high})
	b.EnqueueMany(500)
	b.AwaitSucceeded(500)
	b.WantOneEffectEach(500)
	if by := b.shardsBy("low"); by&^low != 0 || by == 0 {
		t.Errorf("low did tasks of shards %s", by)
	}
	if by := b.shardsBy("high") | b.shardsBy("high2"); by&^high != 0 || by == 0 {
		t.Errorf("high did tasks of shards %s", by)
	}
}

// A worker whose shards overlap those of others is refused with an error that names the shards, and leaves no trace;
// the others continue. Once they have ended and are retired, it can start.
func TestOverlapIsRefused(t *testing.T) {
	needMessages(t)
	t.Parallel()
	b := setup(t)
	b.Relay()
	low := ledger.ShardRange(0, 31)
	w := b.Work(workers.Config{Shards: low}, exactly(insertEffect, nil))
	b.EnqueueMany(100)
	b.Await("the first tasks", func() bool { return one[int](b, "select count(*)::integer from effect") > 0 })
	for _, config := range []workers.Config{
		{}, {Shards: ledger.ShardRange(31, 40)}, {ShardGroups: 1}, {ShardGroups: 64},
	} {
		config.DB, config.NATS, config.AckWait = b.DB, b.Connect(), ackWait
		p := try(workers.New(config))(t)
		if err := exactly(insertEffect, nil)(p); err != nil {
			t.Fatal(err)
		}
		err := p.Run(b.Context())
		var overlap *workers.OverlapError
		if !errors.As(err, &overlap) || overlap.Kind != order.Name() || len(overlap.Found) != 1 ||
			overlap.Found[0] != low {
			t.Errorf("shards %s, groups %d: error %v, want an OverlapError on %s",
				config.Shards, config.ShardGroups, err, low)
		}
	}
	for name := range try(b.JS.Stream(b.Context(), stream.Name))(t).ConsumerNames(b.Context()).Name() {
		if _, shards, ok := stream.Served(name); ok && shards != low && shards.Overlaps(low) {
			t.Errorf("consumer %s was left behind", name)
		}
	}
	var inUse *workers.InUseError
	if err := workers.Retire(b.Context(), b.DB, b.NC, order.Name(), low); !errors.As(err, &inUse) ||
		inUse.Worker != w.ID() {
		t.Errorf("retired under a worker: %v", err)
	}
	w.Stop()
	for name := range try(b.JS.Stream(b.Context(), stream.Name))(t).ConsumerNames(b.Context()).Name() {
		if _, shards, ok := stream.Served(name); ok {
			if err := workers.Retire(b.Context(), b.DB, b.NC, order.Name(), shards); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := workers.Retire(b.Context(), b.DB, b.NC, order.Name(), low); !errors.Is(err, workers.ErrUnknownConsumer) {
		t.Errorf("retired again: %v", err)
	}
	b.Work(workers.Config{}, exactly(insertEffect, nil))
	b.AwaitSucceeded(100)
	b.WantOneEffectEach(100)
}

// Workers divide the shards as they start, stop and crash, while tasks run.
func TestDivision(t *testing.T) {
	needMessages(t)
	t.Parallel()
	b := setup(t)
	b.Relay()
	divided := workers.Config{ShardGroups: 8}
	first := b.workShards("first", divided)
	b.awaitParts([]*worker{first}, 8)
	b.EnqueueRound("a", 200)
	second := b.workShards("second", divided)
	b.awaitParts([]*worker{first, second}, 4, 4)
	b.EnqueueRound("b", 200)
	third := b.workShards("third", divided)
	b.awaitParts([]*worker{first, second, third}, -1, -1, -1)
	b.EnqueueRound("c", 200)
	b.AwaitSucceeded(600)
	for _, name := range []string{"first", "second", "third"} {
		if b.shardsBy(name) == 0 {
			t.Errorf("%s did nothing", name)
		}
	}

	second.Stop()
	b.awaitParts([]*worker{first, third}, 4, 4)
	b.EnqueueRound("d", 200)
	b.AwaitSucceeded(800)

	child := b.Spawn("divided")
	b.Await("the child to have a part", func() bool {
		return first.KindStatus().Shards.Len()+third.KindStatus().Shards.Len() <= 48 &&
			one[int](b, "select count(*)::integer from taskledger.shard_owner where worker like 'child-%'") >= 2
	})
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	<-child.Ended
	b.EnqueueRound("e", 200)
	b.awaitParts([]*worker{first, third}, 4, 4)
	t.Logf("what a killed worker had was taken after %s", time.Since(killed))
	b.AwaitSucceeded(1000)
	b.WantOneEffectEach(1000)
}

// A kind that only some workers have belongs to these alone; no other worker is restarted for it.
func TestDivisionOfANewKind(t *testing.T) {
	needMessages(t)
	t.Parallel()
	b := setup(t)
	b.Relay()
	divided := workers.Config{ShardGroups: 8}
	first := b.workShards("first", divided)
	b.awaitParts([]*worker{first}, 8)
	mail := ledger.MustKind[orderArgs]("test.mail")
	second := b.Work(divided, func(p *workers.Pool) error {
		return errors.Join(
			workers.Register(p, order, noteWorker("second"), nil),
			workers.Register(p, mail, noteWorker("mail"), nil))
	})
	b.awaitParts([]*worker{first, second}, 4, 4)
	b.Await("all of the new kind", func() bool { return second.Status().Kinds[1].Shards == ledger.AllShards })
	for i := range 50 {
		try(mail.Enqueue(b.Context(), b.DB, ledger.BizID(fmt.Sprint("m-", i)), orderArgs{}, nil))(t)
	}
	b.EnqueueMany(50)
	b.AwaitSucceeded(100)
	b.WantOneEffectEach(100)

	listed := try(workers.ReadWorkers(b.Context(), b.DB))(t)
	for _, w := range listed {
		for _, k := range w.Kinds {
			want := 32
			if k.Kind == mail.Name() {
				want = 64
			}
			if !w.Alive || !k.Divided || k.Shards.Len() != want {
				t.Errorf("listed: %+v", w)
			}
		}
	}
	if len(listed) != 2 || len(listed[0].Kinds)+len(listed[1].Kinds) != 3 {
		t.Errorf("listed: %+v", listed)
	}
}

// A worker that gives shards up gives back tasks that wait for a slot, and its handlers finish: their tasks do not
// run elsewhere meanwhile.
func TestHandOver(t *testing.T) {
	needMessages(t)
	t.Parallel()
	b := setup(t)
	b.Relay()
	block := make(chan struct{})
	first := b.Work(
		workers.Config{Slots: 4, ShardGroups: 8, Name: "first"},
		exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
			<-block
			return noteWorker("first")(ctx, tx, job, args)
		}, nil),
	)
	b.EnqueueMany(100)
	b.Await("all slots to be taken, and more to wait", func() bool {
		s := first.KindStatus()
		return s.Running == 4 && s.InFlight > 4 && s.Shards == ledger.AllShards
	})
	second := b.workShards("second", workers.Config{ShardGroups: 8})
	b.awaitParts([]*worker{first, second}, 4, 4)
	b.Await(
		"the second worker to be at work",
		func() bool { return second.KindStatus().Attempts[workers.OutcomeSucceeded] > 10 },
	)
	close(block)
	b.AwaitSucceeded(100)
	b.WantOneEffectEach(100)
	if n := one[int](
		b, "select count(*)::integer from taskledger.event where type in ('failed', 'interrupted')",
	); n != 0 {
		t.Errorf("%d attempts failed or were interrupted in a hand-over", n)
	}
}

// A worker that cannot reach the database stops receiving, since others may own its shards. When the database is
// available again, it gets its part back.
func TestDivisionOverAnOutage(t *testing.T) {
	needMessages(t)
	t.Parallel()
	b := setup(t)
	b.Relay()
	w := b.workShards("only", workers.Config{ShardGroups: 8})
	b.awaitParts([]*worker{w}, 8)
	b.Forge("alter table taskledger.lease rename to lease_gone")
	b.Await("the shards to be dropped", func() bool { return w.KindStatus().Shards == 0 })
	b.Forge("alter table taskledger.lease_gone rename to lease")
	b.EnqueueMany(50)
	b.awaitParts([]*worker{w}, 8)
	b.AwaitSucceeded(50)
	b.WantOneEffectEach(50)
}
