//go:build unix

package workers_test

import (
	"syscall"
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// A worker process that is killed inside a handler has done nothing; a process that is killed after the commit has
// done everything. In both cases its successor leaves one effect.
func TestKilledAtCrashPoint(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	for _, test := range []struct{ program, point string }{
		{program: "exactly", point: "worker.handler"}, {program: "exactly", point: "worker.committed"},
		{program: "together", point: "worker.handler"}, {program: "together", point: "worker.committed"},
	} {
		point := test.point
		t.Run(test.program+" "+point, func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			b.EnqueueMany(20)
			b.Spawn(test.program, point+":5").AwaitKilled(t)
			const effects = "select count(*)::integer from effect where kind = $1"
			if done := one[int](b, effects, string(b.Kind().Name())); done >= 20 {
				t.Fatalf("the child was killed too late: it had done %d", done)
			}
			w := b.Work(workers.Config{}, b.exactly(insertEffect, nil))
			b.AwaitSucceeded(20)
			b.WantOneEffectEach(20)
			if point == "worker.committed" && w.KindStatus().Attempts[workers.OutcomeSucceeded] > 15 {
				t.Errorf("what the child had committed was done again: %v", w.KindStatus())
			}
		})
	}
}

// A task that kills its process each time is buried; its neighbours finish.
func TestTaskThatKillsItsWorkers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	killer := b.Enqueue("killer")
	b.EnqueueMany(10)
	processes := 0
	for b.Task(killer).State != ledger.StateDead {
		processes++
		c := b.Spawn("killer")
		b.Await("the child to die, or to bury its killer", func() bool {
			select {
			case <-c.Ended:
				return true
			default:
				return b.Task(killer).State == ledger.StateDead
			}
		})
		if processes > 10 {
			t.Fatalf("still not buried: %v", b.EventTypes(killer))
		}
		if b.Task(killer).State == ledger.StateDead {
			b.Await("the neighbours", func() bool {
				return one[int](b, "select count(*)::integer from taskledger.event where type = 'succeeded'") == 10
			})
		}
	}
	b.WantOneEffectEach(10)
	// The first loss is not recorded: the attempt was too young. Three are, and then the task is buried.
	if processes != 5 {
		t.Errorf("buried by process %d, want 5; events: %v", processes, b.EventTypes(killer))
	}
	if reason := b.Task(killer).Error; reason != "its workers were lost one after the other" {
		t.Errorf("reason %q", reason)
	}
}

// A worker that is stopped for so long that its task is taken over notices when it commits.
func TestZombieCannotFinish(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	k := b.Enqueue("o-1")
	zombie := b.Spawn("slow")
	if _, err := zombie.Out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	b.AwaitState(k, ledger.StateRunning)
	if err := zombie.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	hook := &witness{}
	w := b.Work(workers.Config{Hooks: []workers.Hook{hook.hook()}}, b.exactly(insertEffect, nil))
	b.AwaitState(k, ledger.StateSucceeded)
	if w.KindStatus().TakenOver != 1 {
		t.Errorf("taken over %d times, want once", w.KindStatus().TakenOver)
	}
	b.Await("the end of its attempt", func() bool { return hook.ended() == 1 })
	if end := hook.ends[0]; end.Waited != 0 {
		t.Errorf("an attempt that was taken over has waited: %+v", end)
	}
	if err := zombie.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if _, err := zombie.In.Write([]byte("go on\n")); err != nil {
		t.Fatal(err)
	}
	if status := zombie.Finish(t); status.Attempts[workers.OutcomeFenced] != 1 ||
		status.Attempts[workers.OutcomeSucceeded] != 0 {
		t.Errorf("the zombie's attempts: %v, want one fenced", status.Attempts)
	}
	b.WantOneEffect(k)
	if attempt := one[int](b, "select attempt from effect"); attempt != 2 {
		t.Errorf("the effect is of attempt %d, want 2", attempt)
	}
}
