package workers_test

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// begun starts a worker process whose handler waits, and a task, and returns when the handler has begun.
func (b *bundle) begun(program string) (*child, ledger.Key) {
	b.T.Helper()
	c := b.Spawn(program)
	k := b.Enqueue("o-1")
	c.AwaitBegun(b.T)
	return c, k
}

// terminate sends SIGTERM to a child, unless it has just ended: the tests check how it ended.
func terminate(t testing.TB, c *child) {
	t.Helper()
	if err := c.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
}

// A worker process that receives SIGTERM lets its handlers finish, and takes no more tasks.
func TestFirstSignalDrains(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	c, k := b.begun("slow-to-stop")
	terminate(t, c)
	if line := try(c.Out.ReadString('\n'))(t); line != stops+"\n" {
		t.Fatalf("the child printed %q", line)
	}
	second := b.Enqueue("o-2")
	fmt.Fprintln(c.In, "go on")
	<-c.Ended
	if !c.ProcessState.Success() {
		t.Errorf("the child ended as %v", c.ProcessState)
	}
	if s := b.Task(k).State; s != ledger.StateSucceeded {
		t.Errorf("the task at work is %s: %v", s, b.EventTypes(k))
	}
	b.WantOneEffect(k)
	if diff := difference.Of([]ledger.EventType{ledger.EventEnqueued}, b.EventTypes(second)); diff != "" {
		t.Errorf("events of a later task (-want +got):\n%s", diff)
	}
	b.Work(workers.Config{}, b.exactly(insertEffect, nil))
	b.AwaitSucceeded(2)
	b.WantOneEffectEach(2)
}

// Handlers that do not finish in time are cancelled, and their tasks given back: other workers run them at once, and
// no attempt is used.
func TestSignalGivesBackWhatDoesNotFinish(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	c, k := b.begun("heeds")
	terminate(t, c)
	<-c.Ended
	if !c.ProcessState.Success() {
		t.Errorf("the child ended as %v", c.ProcessState)
	}
	if types := b.EventTypes(k); types[len(types)-1] != ledger.EventInterrupted {
		t.Errorf("events: %v", types)
	}
	b.Work(
		workers.Config{LeaseTTL: endless},
		b.exactly(insertEffect, &workers.KindConfig{Retry: ledger.RetryPolicy{Attempts: 1}}),
	)
	b.AwaitState(k, ledger.StateSucceeded)
	b.WantOneEffect(k)
	if task := b.Task(k); task.Failures != 0 {
		t.Errorf("%d failures: %v", task.Failures, b.EventTypes(k))
	}
}

// The second signal ends the process at once, whatever its handlers do. Another worker does the task once, and no
// attempt is used.
func TestSecondSignalIsImmediate(t *testing.T) {
	t.Parallel()
	for program, register := range map[string]func(*bundle, *workers.KindConfig) func(*workers.Pool) error{
		"slow": func(b *bundle, c *workers.KindConfig) func(*workers.Pool) error {
			return b.exactly(insertEffect, c)
		},
		"slow-at-least": func(b *bundle, c *workers.KindConfig) func(*workers.Pool) error {
			return b.atLeast(b.outside, c)
		},
	} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.Dispatch()
			c, k := b.begun(program) // its handler waits forever, and StopTimeout is an hour
			func() {
				for { // the kernel merges two signals that are pending at the same time
					terminate(t, c)
					select {
					case <-c.Ended:
						return
					case <-time.After(20 * time.Millisecond):
					}
				}
			}()
			if status, ok := c.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGTERM {
				t.Errorf("the child ended as %v", c.ProcessState)
			}
			b.Work(workers.Config{}, register(b, &workers.KindConfig{Retry: ledger.RetryPolicy{Attempts: 1}}))
			b.AwaitState(k, ledger.StateSucceeded)
			b.WantOneEffect(k)
			if task := b.Task(k); task.Failures != 0 {
				t.Errorf("%d failures: %v", task.Failures, b.EventTypes(k))
			}
		})
	}
}
