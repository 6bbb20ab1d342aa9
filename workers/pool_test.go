package workers_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// misbehaveOnce fails at the first attempt.
func misbehaveOnce(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
	if err := insertEffect(ctx, tx, job, args); err != nil {
		return err
	}
	if job.Attempt == 1 {
		return errBoom
	}
	return nil
}

func TestConfigReportsEveryFault(t *testing.T) {
	t.Parallel()
	config := try(pgxpool.ParseConfig("postgres://localhost/x?pool_max_conns=2"))(t)
	db := try(pgxpool.NewWithConfig(context.Background(), config))(t) // does not connect yet
	defer db.Close()
	_, err := workers.New(workers.Config{DB: db, Name: "a\nb", LeaseTTL: time.Millisecond, StopTimeout: -1})
	if err == nil {
		t.Fatal("no error")
	}
	for _, fault := range []string{
		"MaxConns must be at least 4", "NATS is required", "Name must", "LeaseTTL must", "StopTimeout must",
	} {
		if !strings.Contains(err.Error(), fault) {
			t.Errorf("%q is not reported in: %v", fault, err)
		}
	}
}

func TestRegisterRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := try(workers.New(workers.Config{DB: b.DB, NATS: b.NC}))(t)
	err := b.exactly(
		insertEffect,
		&workers.KindConfig{Slots: -1, Retry: ledger.RetryPolicy{Attempts: -1}, MaxLost: -1},
	)(p)
	if err == nil {
		t.Fatal("no error")
	}
	for _, fault := range []string{"Slots", "retry", "MaxLost"} {
		if !strings.Contains(err.Error(), fault) {
			t.Errorf("%q is not reported in: %v", fault, err)
		}
	}
	var none ledger.TypedKind[orderArgs]
	if err := p.Register(workers.Handle(none, insertEffect, nil)); err == nil {
		t.Error("a kind without a name was registered")
	}
	if err := p.Run(b.Context()); err == nil {
		t.Error("a pool without kinds ran")
	}
	p = try(workers.New(workers.Config{DB: b.DB, NATS: b.NC}))(t)
	if err := b.exactly(insertEffect, nil)(p); err != nil {
		t.Fatal(err)
	}
	if err := b.atLeast(b.outside, nil)(p); err == nil {
		t.Error("a kind was registered twice")
	}
}

// Run returns an error at once if retrying is useless.
func TestRunRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	run := func(db *pgxpool.Pool) error {
		p := try(workers.New(workers.Config{DB: db, NATS: b.Connect()}))(t)
		if err := b.exactly(insertEffect, nil)(p); err != nil {
			t.Fatal(err)
		}
		return p.Run(b.Context())
	}
	t.Run("wrong password", func(t *testing.T) {
		config := b.DB.Config()
		config.ConnConfig.Password = "wrong"
		config.ConnConfig.DialFunc = (&net.Dialer{}).DialContext // an earlier test's connection has logged in
		db := try(pgxpool.NewWithConfig(b.Context(), config))(t)
		defer db.Close()
		if err := run(db); err == nil || !strings.Contains(err.Error(), "password") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("not migrated", func(t *testing.T) {
		b.Forge("drop schema taskledger, taskledger_internal cascade")
		if err := run(b.DB); !errors.Is(err, ledger.ErrNotMigrated) {
			t.Errorf("error %v, want ErrNotMigrated", err)
		}
	})
}

// A pool runs several kinds, each with its own guarantee, and counts outcomes.
func TestSeveralKinds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	mail := ledger.MustKind[string]("test.mail.send")
	raw := ledger.MustKind[[]byte]("test-raw")
	var mailed, rawed atomic.Value
	hook := &witness{}
	w := b.Work(workers.Config{Hooks: []workers.Hook{hook.hook()}}, func(p *workers.Pool) error {
		return errors.Join(
			p.Register(workers.Handle(order, misbehaveOnce, atOnce(nil))),
			p.Register(workers.Handle(mail, func(ctx context.Context, job *workers.Job, to string) error {
				mailed.Store(to)
				job.Logger().InfoContext(ctx, "mailed")
				return job.Result(to)
			}, nil)),
			p.Register(workers.Handle(raw, func(_ context.Context, _ *workers.Job, bytes []byte) error {
				rawed.Store(bytes)
				return nil
			}, nil)),
		)
	})
	b.Enqueue("o-1")
	try(mail.Enqueue(b.Context(), b.DB, "m-1", "a@example.org", nil))(t)
	key := ledger.Key{Kind: raw.Name(), BizID: "r-1"}
	try(ledger.Enqueue(b.Context(), b.DB, key, []byte{0, 1, 0xff}, &ledger.EnqueueOptions{Binary: true}))(t)
	b.AwaitSucceeded(3)
	if diff := difference.Of([]byte{0, 1, 0xff}, rawed.Load()); diff != "" || mailed.Load() != "a@example.org" {
		t.Errorf("mailed to %q; bytes (-want +got):\n%s", mailed.Load(), diff)
	}
	if got := string(b.Task(ledger.Key{Kind: mail.Name(), BizID: "m-1"}).Result); got != `"a@example.org"` {
		t.Errorf("result %s", got)
	}
	b.Await("all answers", func() bool {
		s := w.Status()
		return s.Kinds[0].InFlight+s.Kinds[1].InFlight+s.Kinds[2].InFlight == 0
	})
	if n := hook.ended(); n != 4 {
		t.Errorf("the hook received %d attempts, want 4", n)
	}
}

// The start of an attempt is recorded only once it has taken a while, or if another attempt may have begun before.
func TestStartedIsLazy(t *testing.T) {
	t.Parallel()
	for name, register := range map[string]func(*bundle) func(*workers.Pool) error{
		"exactly once": func(b *bundle) func(*workers.Pool) error {
			return b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
				if err := insertEffect(ctx, tx, job, args); err != nil {
					return err
				}
				b.AwaitState(job.Key, ledger.StateRunning)
				return nil
			}, workers.SetStartedAfter(time.Millisecond, workers.KindConfig{}))
		},
		"at least once": func(b *bundle) func(*workers.Pool) error {
			return b.atLeast(func(ctx context.Context, job *workers.Job, args orderArgs) error {
				b.AwaitState(job.Key, ledger.StateRunning)
				return b.outside(ctx, job, args)
			}, workers.SetStartedAfter(time.Millisecond, workers.KindConfig{}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.Dispatch()
			b.Work(workers.Config{}, register(b))
			k := b.Enqueue("o-1")
			b.AwaitState(k, ledger.StateSucceeded)
			b.WantOneEffect(k)
			want := []ledger.EventType{ledger.EventEnqueued, ledger.EventStarted, ledger.EventSucceeded}
			if diff := difference.Of(want, b.EventTypes(k)); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if n := b.Task(k).Attempt; n != 1 {
				t.Errorf("%d attempts", n)
			}
		})
	}
}

// With more slots than connections, handlers wait for a connection, and nothing else does. The start of each is
// recorded while handlers use all connections that they may.
func TestFewConnections(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	config := b.DB.Config()
	config.MaxConns = 4
	db := try(pgxpool.NewWithConfig(b.Context(), config))(t)
	t.Cleanup(db.Close)
	b.Work(
		workers.Config{DB: db},
		b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
			b.AwaitState(job.Key, ledger.StateRunning)
			return insertEffect(ctx, tx, job, args)
		}, workers.SetStartedAfter(time.Millisecond, workers.KindConfig{Slots: 16})),
	)
	b.EnqueueMany(20)
	b.AwaitSucceeded(20)
	b.WantOneEffectEach(20)
}

// A long attempt keeps its task, and a task that waits for a slot behind it is done after it.
func TestLongWorkIsKeptAlive(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	begun := make(chan struct{})
	lease := func() time.Time { return one[time.Time](b, "select min(alive_until) from taskledger.lease") }
	w := b.Work(
		workers.Config{Slots: 1},
		b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
			if job.BizID == "o-0000" {
				close(begun)
				first := lease()
				b.Await("three times LeaseTTL to pass", func() bool { return lease().After(first.Add(3 * leaseTTL)) })
			}
			return insertEffect(ctx, tx, job, args)
		}, nil),
	)
	b.EnqueueMany(2)
	<-begun
	b.Await("the other one to wait", func() bool { return w.KindStatus().InFlight == 2 })
	b.AwaitSucceeded(2)
	b.WantOneEffectEach(2)
}
