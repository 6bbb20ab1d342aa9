package workers_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// refused runs a worker next to others and returns why it was refused.
func (b *bundle) refused(register func(*workers.Pool) error) error {
	b.T.Helper()
	p := try(workers.New(workers.Config{DB: b.DB, NATS: b.Connect(), LeaseTTL: leaseTTL}))(b.T)
	if err := register(p); err != nil {
		b.T.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	return receive(b, "the worker to be refused", ended)
}

// All workers of a kind must have the same guarantee. A worker with a different guarantee is refused with an error
// that names the other worker, and leaves no trace. Workers of other kinds are not affected.
func TestWorkersMustAgreeOnTheGuarantee(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	child := b.Spawn("at-least")
	b.Await("the child", func() bool { return len(try(workers.ReadWorkers(b.Context(), b.DB, "", lists.All))(t)) == 1 })
	id := try(workers.ReadWorkers(b.Context(), b.DB, "", lists.All))(t)[0].ID
	for want, register := range map[workers.Guarantee]func(*workers.Pool) error{
		workers.ExactlyOnce: b.exactly(insertEffect, nil),
		workers.AtMostOnce:  b.atMost(b.outside, &workers.KindConfig{Replaces: workers.ExactlyOnce}),
	} {
		err := b.refused(register)
		var differs *workers.GuaranteeError
		if !errors.As(err, &differs) {
			t.Fatalf("%s: error %v", want, err)
		}
		if diff := difference.Of(
			&workers.GuaranteeError{Kind: order.Name(), Wanted: want, Found: workers.AtLeastOnce, Worker: id}, differs,
		); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if text := err.Error(); !strings.Contains(
			text, "guarantee is "+string(want)+", but worker "+id+"'s is at least once",
		) {
			t.Errorf("error %q", text)
		}
	}
	if n := one[int](b, "select count(*)::integer from taskledger.workers"); n != 1 {
		t.Errorf("%d leases, want that of the child", n)
	}
	other := ledger.MustKind[orderArgs]("test.other")
	w := b.Work(workers.Config{}, func(p *workers.Pool) error {
		return p.Register(workers.Handle(other, insertEffect, nil))
	})
	w.Stop()

	child.Finish(t)
	b.Work(workers.Config{}, b.exactly(insertEffect, nil))
	b.EnqueueMany(1)
	b.AwaitSucceeded(1)
}

// A deploy that changes a guarantee sets Replaces: the new worker runs while the old workers do, which cannot start
// again. A task that AtMostOnce workers have begun is not begun again.
func TestGuaranteeChangedByARollingDeploy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	old := b.Spawn("slow-once")
	k := b.Enqueue("o-1")
	if line, err := old.Out.ReadString('\n'); err != nil || line != "begun\n" {
		t.Fatalf("the child printed %q, %v", line, err)
	}
	b.Work(workers.Config{}, b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		return insertEffect(ctx, tx, job, args)
	}, &workers.KindConfig{Replaces: workers.AtMostOnce}))
	b.Await("the leases of both", func() bool {
		return len(try(workers.ReadWorkers(b.Context(), b.DB, "", lists.All))(t)) == 2
	})
	second := b.Enqueue("o-2")
	b.Await(
		"a task to be done beside the old worker, or by it",
		func() bool { return b.Task(second).State != ledger.StateAvailable },
	)

	var differs *workers.GuaranteeError
	if err := b.refused(b.atMost(b.outside, nil)); !errors.As(err, &differs) || differs.Found != workers.ExactlyOnce {
		t.Errorf("an old worker that begins again: %v", err)
	}
	if err := old.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	b.AwaitState(k, ledger.StateDead)
	if n := b.Effects(k); n != 0 || b.Task(k).Error != "unknown outcome" {
		t.Errorf("%d effects of %v, %q", n, b.EventTypes(k), b.Task(k).Error)
	}
}

// Leases contain each worker's guarantees.
func TestReadWorkersReturnsGuarantees(t *testing.T) {
	t.Parallel()
	b := setup(t)
	names := map[workers.Guarantee]string{
		workers.ExactlyOnce: "test.a", workers.AtLeastOnce: "test.b", workers.AtMostOnce: "test.c",
	}
	w := b.Work(workers.Config{}, func(p *workers.Pool) error {
		kind := func(g workers.Guarantee) ledger.TypedKind[orderArgs] {
			return ledger.MustKind[orderArgs](ledger.Kind(names[g]))
		}
		return errors.Join(p.Register(workers.Handle(kind(workers.ExactlyOnce), insertEffect, nil)),
			p.Register(workers.Handle(kind(workers.AtLeastOnce), b.outside, nil)),
			p.Register(workers.Handle(kind(workers.AtMostOnce), b.outside, asAtMostOnce(&workers.KindConfig{}))))
	})
	b.Await("its lease", func() bool { return len(try(workers.ReadWorkers(b.Context(), b.DB, "", lists.All))(t)) == 1 })
	// Members whose names differ in case belong to another program. encoding/json would read them for its own.
	ledgertest.ExecAsOwner(t, b.DB, `update taskledger.lease
		set detail = (rtrim(detail::text, '}') || ',"KINDS":["test.forged"],"VERSION":"forged"}')::json`)
	all := try(workers.ReadWorkers(b.Context(), b.DB, "", lists.All))(t)
	got := make(map[workers.Guarantee]string)
	for _, k := range all[0].Kinds {
		got[k.Guarantee] = string(k.Kind)
	}
	if diff := difference.Of(names, got); diff != "" || all[0].ID != w.ID() {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !slices.IsSortedFunc(
		all[0].Kinds, func(a, b workers.WorkerKind) int { return strings.Compare(string(a.Kind), string(b.Kind)) },
	) {
		t.Error("the kinds are not in order")
	}
	if err := b.atMost(b.outside, &workers.KindConfig{Replaces: "twice"})(
		try(workers.New(workers.Config{DB: b.DB, NATS: b.NC}))(t),
	); err == nil ||
		!strings.Contains(err.Error(), `got "twice"`) {
		t.Errorf("error %v", err)
	}
}

// If workers begin at the same time with different guarantees, the workers of one guarantee run.
func TestWorkersThatDisagreeAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	const each = 4
	type end struct {
		guarantee workers.Guarantee
		err       error
	}
	ends := make(chan end, 2*each)
	for range each {
		for guarantee, register := range map[workers.Guarantee]func(*workers.Pool) error{
			workers.ExactlyOnce: b.exactly(insertEffect, nil), workers.AtLeastOnce: b.atLeast(b.outside, nil),
		} {
			p := try(workers.New(workers.Config{DB: b.DB, NATS: b.Connect(), LeaseTTL: slowLease}))(t)
			if err := register(p); err != nil {
				t.Fatal(err)
			}
			go func() { ends <- end{guarantee: guarantee, err: p.Run(ctx)} }()
		}
	}
	var refused workers.Guarantee
	for range each {
		e := receive(b, "workers to be refused", ends)
		var differs *workers.GuaranteeError
		if !errors.As(e.err, &differs) || refused != "" && refused != e.guarantee {
			t.Errorf("a worker that is to do it %s ended: %v", e.guarantee, e.err)
		}
		refused = e.guarantee
	}
	b.Await(
		"the others to have leases",
		func() bool { return one[int](b, "select count(*)::integer from taskledger.lease") == each },
	)
	cancel()
	for range each {
		if e := receive(b, "the others to stop", ends); e.err != nil || e.guarantee == refused {
			t.Errorf("a worker that is to do it %s ended: %v", e.guarantee, e.err)
		}
	}
}

// A worker that is stopped while it begins leaves no lease, which would block others.
func TestStopWhileBeginningLeavesNoLease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range 30 {
		p := try(workers.New(workers.Config{DB: b.DB, NATS: b.NC}))(t)
		if err := b.exactly(insertEffect, nil)(p); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*500*time.Microsecond)
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		if n := one[int](b, "select count(*)::integer from taskledger.lease"); n != 0 {
			t.Fatalf("%d leases are left after %d µs", n, i*500)
		}
	}
}
