package workers_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// archiveAll archives the finished tasks, until n are archived. It does not wait for the projector's audit and the
// place of the keeper of lines, which follow some seconds later, or with the next event.
func archiveAll(b *bundle, n int64) {
	b.T.Helper()
	b.Await("the archive", func() bool {
		b.Project()
		r := servicetest.Try(archiver.Run(b.Context(), b.As("archiver"), archiver.Options{}))(b.T)
		n -= r.Tasks
		return n == 0
	})
}

// A worker is stopped while its task is finished by another worker and archived. Afterwards it cannot finish the task,
// even if the key has been enqueued again.
func TestZombieOfAnArchivedTask(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"slow", "slow-at-least"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.Dispatch()
			k := b.Enqueue("o-1")
			zombie := b.Spawn(program)
			if _, err := zombie.Out.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			b.AwaitState(k, ledger.StateRunning)
			if err := zombie.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			if program == "slow" {
				b.Work(workers.Config{}, b.exactly(insertEffect, nil))
			} else {
				b.Work(workers.Config{}, b.atLeast(b.outside, nil))
			}
			b.AwaitState(k, ledger.StateSucceeded)
			archiveAll(b, 1)
			b.Enqueue("o-1")
			b.AwaitState(k, ledger.StateDiscarded)
			if err := zombie.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if _, err := zombie.In.Write([]byte("go on\n")); err != nil {
				t.Fatal(err)
			}
			if status := zombie.Finish(t); status.Attempts[workers.OutcomeSucceeded] != 0 {
				t.Errorf("the zombie's attempts: %v", status.Attempts)
			}
			b.WantOneEffect(k)
			archiveAll(b, 1)
			ledgertest.Check(t, b.DB)
		})
	}
}

// Keys that were archived do not run again, in whichever form they are enqueued.
func TestArchivedKeysAreNotOffered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stop := b.Dispatch()
	b.Schedule()
	b.Work(workers.Config{}, b.exactly(insertEffect, nil))
	const n = 40
	b.EnqueueMany(n)
	b.AwaitSucceeded(n)
	archiveAll(b, n)
	forms := []ledger.EnqueueOptions{
		{}, {OrderKey: "line"}, {RunIn: 100 * time.Millisecond}, {Priority: ledger.PriorityLow},
	}
	again := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			id := ledger.BizID(fmt.Sprintf("o-%04d", i))
			_, err := servicetest.Order.Enqueue(b.Context(), b.DB, id, orderArgs{Amount: i}, &forms[i%len(forms)])
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	again(0, n/2)
	discarded := func(want int) func() bool {
		return func() bool {
			return one[int](b, "select count(*)::integer from taskledger.event where type = 'discarded'") == want
		}
	}
	b.Await("duplicates", discarded(n/2))
	stop()
	again(n/2, n) // no dispatcher reads their events
	b.Project()
	b.Dispatch()
	b.Await("duplicates of the time without a dispatcher", discarded(n))
	if got := one[int](b, "select count(*)::integer from effect"); got != n {
		t.Errorf("%d effects, want %d", got, n)
	}
	ledgertest.Check(t, b.DB)
}

// Archived keys run once when they are enqueued with Rerun, Replace or Follow, with and without a dispatcher.
func TestArchivedKeysRunAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stop := b.Dispatch()
	b.Schedule()
	b.Work(workers.Config{}, b.exactly(insertEffect, nil))
	const n = 36
	b.EnqueueMany(n)
	b.AwaitSucceeded(n)
	archiveAll(b, n)
	forms := []ledger.EnqueueOptions{{}, {OrderKey: "line"}, {RunIn: 100 * time.Millisecond}}
	again := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			id := ledger.BizID(fmt.Sprintf("o-%04d", i))
			o := forms[i%len(forms)]
			o.IfExists = []ledger.IfExists{
				ledger.IfExistsRerun, ledger.IfExistsReplace, ledger.IfExistsFollow}[i/len(forms)%3]
			if _, err := servicetest.Order.Enqueue(b.Context(), b.DB, id, orderArgs{Amount: i}, &o); err != nil {
				t.Fatal(err)
			}
		}
	}
	succeeded := func(want int) func() bool {
		return func() bool {
			return one[int](b, "select count(*)::integer from taskledger.event where type = 'succeeded' and "+
				"kind not like 'taskledger.%'") == want
		}
	}
	again(0, n/2)
	b.Await("runs", succeeded(n/2))
	stop()
	again(n/2, n) // no dispatcher reads their events
	b.Project()
	b.Dispatch()
	b.Await("runs of the time without a dispatcher", succeeded(n))
	if got := one[int](b, "select count(*)::integer from effect"); got != 2*n {
		t.Errorf("%d effects, want %d", got, 2*n)
	}
	ledgertest.Check(t, b.DB)
}
