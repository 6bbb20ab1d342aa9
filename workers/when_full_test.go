package workers_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// gated is a worker whose handlers wait for the test, after some quick ones.
type gated struct {
	*worker
	begun, running, most atomic.Int32
	goOn                 chan struct{}
}

// gated returns a gated worker with two slots.
func (b *bundle) gated(quick int32, c workers.Config, w workers.WhenFull) *gated {
	b.T.Helper()
	x := &gated{goOn: make(chan struct{})}
	x.worker = b.Work(c, exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		n := x.running.Add(1)
		defer x.running.Add(-1)
		for most := x.most.Load(); n > most && !x.most.CompareAndSwap(most, n); most = x.most.Load() {
		}
		if x.begun.Add(1) > quick {
			select {
			case <-x.goOn:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return insertEffect(ctx, tx, job, args)
	}, &workers.KindConfig{Slots: 2, WhenFull: w}))
	return x
}

// A worker whose slots are busy asks for no more, and others get the other tasks.
func TestStopPulling(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Relay()
	full := b.gated(0, workers.Config{}, workers.StopPulling)
	b.EnqueueMany(40)
	b.Await("the slots to be taken", func() bool { return full.running.Load() == 2 })
	b.Work(workers.Config{}, exactly(insertEffect, nil))
	b.AwaitSucceeded(38)
	if now := full.KindStatus(); now.InFlight != 2 || now.GivenBack+now.FetcherRuns != 0 {
		t.Errorf("%+v", now)
	}
	close(full.goOn)
	b.AwaitSucceeded(40)
	b.WantOneEffectEach(40)
}

// While its buffer is full a worker runs one task beyond its slots, whatever its outcome, but not beyond the slots
// over all kinds.
func TestFetcherRuns(t *testing.T) {
	t.Parallel()
	needMessages(t)
	for name, test := range map[string]struct{ overall, least, most int }{
		"of its kind":    {overall: 0, least: 3, most: 4}, // one for each consumer
		"over all kinds": {overall: 2, least: 2, most: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.Relay()
			w := b.gated(0, workers.Config{Slots: test.overall}, workers.FetcherRuns)
			b.EnqueueMany(40)
			b.Await("so many to run, and no more to be asked for", func() bool {
				return int(w.running.Load()) >= test.least && w.KindStatus().InFlight >= 3
			})
			for range 40 { // each in its turn
				w.goOn <- struct{}{}
			}
			b.AwaitSucceeded(40)
			b.WantOneEffectEach(40)
			most, beyond := int(w.most.Load()), w.KindStatus().FetcherRuns
			if most < test.least || most > test.most || (beyond > 0) != (test.most > 2) {
				t.Errorf("%d ran at a time, want %d to %d; %d beyond the slots", most, test.least, test.most, beyond)
			}
		})
	}
}

// A handler that runs beyond the slots may fail, panic and end its goroutine like any other.
func TestFetcherRunsWhatFails(t *testing.T) {
	t.Parallel()
	needMessages(t)
	b := setup(t)
	b.Relay()
	b.EnqueueMany(60)
	var n atomic.Int32
	w := b.Work(workers.Config{}, exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		if _, err := tx.Exec(ctx, "select pg_sleep(0.005)"); err != nil {
			return err
		}
		if job.Attempt == 1 {
			switch n.Add(1) % 4 {
			case 0:
				return errors.New("failed")
			case 1:
				panic("panicked")
			case 2:
				runtime.Goexit()
			}
		}
		return insertEffect(ctx, tx, job, args)
	}, &workers.KindConfig{Slots: 1, WhenFull: workers.FetcherRuns}))
	b.AwaitSucceeded(60)
	b.WantOneEffectEach(60)
	if s := w.KindStatus(); s.FetcherRuns == 0 {
		t.Errorf("%+v", s)
	}
	b.Await("all to be over", func() bool { s := w.KindStatus(); return s.Running == 0 && s.InFlight == 0 })
}

// Tasks that wait in a worker whose handlers have become slow go to other workers after a while, and use no attempt.
func TestGiveBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Relay()
	const tasks, quick = 1000, 300
	full := b.gated(quick, workers.Config{}, workers.GiveBack)
	b.EnqueueMany(tasks)
	b.Await(
		"what waits to be given back",
		func() bool { s := full.KindStatus(); return s.GivenBack > 0 && s.InFlight == 2 },
	)
	b.Work(workers.Config{}, exactly(insertEffect, nil))
	b.AwaitSucceeded(tasks - 2)
	if s := full.KindStatus(); s.Running != 2 || s.InFlight != 2 || s.Attempts[workers.OutcomeInterrupted] != 0 {
		t.Errorf("%+v", s)
	}
	close(full.goOn)
	b.AwaitSucceeded(tasks)
	b.WantOneEffectEach(tasks)
	if n := one[int](b, "select count(*)::integer from effect where attempt > 1"); n > 0 {
		t.Errorf("%d tasks used another attempt", n)
	}
}

// With a single worker, the same worker eventually runs all tasks that it gave back.
func TestGiveBackAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Relay()
	const tasks, quick = 500, 300
	w := b.gated(quick, workers.Config{}, workers.GiveBack)
	b.EnqueueMany(tasks)
	b.Await("some to be given back", func() bool { return w.KindStatus().GivenBack > 0 })
	close(w.goOn)
	b.AwaitSucceeded(tasks)
	b.WantOneEffectEach(tasks)
}

func TestWhenFullIsChecked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := try(workers.New(workers.Config{DB: b.DB, NATS: b.NC}))(t)
	err := workers.Register(
		p, ledger.MustKind[orderArgs]("test.full"), insertEffect, &workers.KindConfig{WhenFull: "drop"},
	)
	if err == nil ||
		err.Error() != `workers: register kind "test.full": `+
			`WhenFull must be stop_pulling, fetcher_runs or give_back, got "drop"` {
		t.Error(err)
	}
}
