package workers_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
	"github.com/taskledger/taskledger/workers"
)

// Producers, workers and two schedulers run at once. Each task either succeeds once or is discarded without an
// effect. A task that has started is not discarded; otherwise no task would ever succeed.
func TestDiscardOldestBesideWorkers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.SetLimit(20, ledger.DiscardOldest)
	b.Dispatch()
	b.Start(try(projector.New(projector.Config{DB: b.DB}))(t).Run)
	b.Schedule()
	b.Schedule()
	w := b.Work(workers.Config{}, b.exactly(
		func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
			if _, err := tx.Exec(ctx, "select pg_sleep(0.05)"); err != nil {
				return err
			}
			return insertEffect(ctx, tx, job, args)
		}, &workers.KindConfig{Slots: 2}))
	const tasks = 1500
	for i := range tasks / 100 {
		b.EnqueueRound(fmt.Sprint("r", i), 100)
	}
	finished := func(s ledger.State) int {
		return one[int](b, `select count(*)::integer from taskledger.event
			where taskledger.state_after(type) = $1::text::taskledger.task_state`, string(s))
	}
	b.Await("all to succeed or to be discarded", func() bool {
		return finished(ledger.StateSucceeded)+finished(ledger.StateDiscarded) == tasks
	})
	done, discarded := finished(ledger.StateSucceeded), finished(ledger.StateDiscarded)
	t.Logf("%d succeeded, %d discarded; %+v", done, discarded, w.KindStatus().Attempts)
	if done < 20 || discarded < tasks/2 {
		t.Errorf("%d succeeded, %d discarded", done, discarded)
	}
	b.WantOneEffectEach(done)
	const both = "select count(*)::integer from effect f " +
		"join taskledger.event e on e.biz_id = f.biz_id where e.type = 'discarded'"
	if n := one[int](b, both); n > 0 {
		t.Errorf("%d discarded tasks had effects", n)
	}
	ledgertest.Check(t, b.DB)
}

// A handler that is running while its kind is over the limit continues, and its task succeeds.
func TestDiscardOldestSparesStartedTasks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.SetLimit(1, ledger.DiscardOldest)
	b.Dispatch()
	b.EnqueueMany(1)
	b.Project()
	begun, goOn := make(chan struct{}), make(chan struct{})
	b.Work(
		workers.Config{LeaseTTL: endless},
		b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
			if job.BizID == "o-0000" {
				close(begun)
			}
			<-goOn
			return insertEffect(ctx, tx, job, args)
		}, workers.SetStartedAfter(endless/2, workers.KindConfig{Slots: 1})),
	)
	<-begun
	b.EnqueueRound("p", 3)
	b.Project()
	b.Schedule()
	b.Await("all but the newest to be discarded", func() bool {
		return slices.Equal([]string{"p-0000", "p-0001"}, b.TasksIn(ledger.StateDiscarded))
	})
	if diff := difference.Of([]string{"p-0002"}, b.TasksIn(ledger.StateAvailable)); diff != "" {
		t.Errorf("still waiting (-want +got):\n%s", diff)
	}
	close(goOn)
	b.AwaitState(ledger.Key{Kind: order.Name(), BizID: "o-0000"}, ledger.StateSucceeded)
}
