package workers_test

import (
	"syscall"
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// A worker process that is killed in mid-handler has done nothing; one that is killed between
// commit and acknowledgement has done everything. Either way its successor leaves one effect.
func TestKilledAtCrashPoint(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ program, point string }{
		{"exactly", "worker.handler"}, {"exactly", "worker.committed"},
		{"together", "worker.handler"}, {"together", "worker.committed"},
	} {
		point := test.point
		t.Run(test.program+" "+point, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.relay()
			b.enqueueMany(20)
			b.spawn(test.program, point+":5").killed(t)
			if done := one[int](b, "select count(*)::integer from effect"); done >= 20 {
				t.Fatalf("the child was killed too late: it had done %d", done)
			}
			w := b.work(workers.Config{}, exactly(insertEffect, nil))
			b.allDone(20)
			b.eachOnce(20)
			if point == "worker.committed" && w.status().Attempts[workers.OutcomeSucceeded] > 15 {
				t.Errorf("what the child had committed was done again: %v", w.status())
			}
		})
	}
}

// A task that kills its process each time is buried; its neighbours finish.
func TestTaskThatKillsItsWorkers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.relay()
	killer := b.enqueue("killer")
	b.enqueueMany(10)
	processes := 0
	for b.task(killer).State != ledger.StateDead {
		processes++
		c := b.spawn("killer")
		b.await("the child to die, or to bury its killer", func() bool {
			select {
			case <-c.ended:
				return true
			default:
				return b.task(killer).State == ledger.StateDead
			}
		})
		if processes > 10 {
			t.Fatalf("still not buried: %v", b.types(killer))
		}
		if b.task(killer).State == ledger.StateDead {
			b.await("the neighbours", func() bool {
				return one[int](b, "select count(*)::integer from taskledger.event where type = 'succeeded'") == 10
			})
		}
	}
	b.eachOnce(10)
	// The first loss is not on record: the attempt was too young. Three are, then it is enough.
	if processes != 5 {
		t.Errorf("buried by process %d, want 5; events: %v", processes, b.types(killer))
	}
	if reason := b.task(killer).Error; reason != "its workers were lost, one after the other" {
		t.Errorf("reason %q", reason)
	}
}

// A worker that is stopped for so long that its task is taken over finds out when it commits.
func TestZombieCannotFinish(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.relay()
	k := b.enqueue("o-1")
	zombie := b.spawn("slow")
	if _, err := zombie.out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	b.awaitState(k, ledger.StateRunning)
	if err := zombie.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	w := b.work(workers.Config{}, exactly(insertEffect, nil))
	b.awaitState(k, ledger.StateSucceeded)
	if w.status().TakenOver != 1 {
		t.Errorf("taken over %d times, want once", w.status().TakenOver)
	}
	if err := zombie.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if _, err := zombie.in.Write([]byte("go on\n")); err != nil {
		t.Fatal(err)
	}
	if status := zombie.finish(t); status.Attempts[workers.OutcomeFenced] != 1 || status.Attempts[workers.OutcomeSucceeded] != 0 {
		t.Errorf("the zombie's attempts: %v, want one fenced", status.Attempts)
	}
	b.oneEffect(k)
	if attempt := one[int](b, "select attempt from effect"); attempt != 2 {
		t.Errorf("the effect is of attempt %d, want 2", attempt)
	}
}
