package workers_test

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// begun starts a worker process, whose handler waits, and a task, and returns when it has begun.
func (b *bundle) begun(program string) (*child, ledger.Key) {
	b.t.Helper()
	c := b.spawn(program)
	k := b.enqueue("o-1")
	if line, err := c.out.ReadString('\n'); err != nil || line != "begun\n" {
		b.t.Fatalf("the child said %q, %v", line, err)
	}
	return c, k
}

// signal tells a child to end, unless it just has: how is what the tests ask then.
func (c *child) signal(t testing.TB) {
	t.Helper()
	if err := c.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
}

// A worker process that is told to end lets its handlers finish, and takes nothing more.
func TestFirstSignalDrains(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.relay()
	c, k := b.begun("slow")
	c.signal(t)
	b.await("the child to want no more", func() bool { return b.requests() == 0 })
	second := b.enqueue("o-2")
	fmt.Fprintln(c.in, "go on")
	<-c.ended
	if !c.ProcessState.Success() {
		t.Errorf("the child ended as %v", c.ProcessState)
	}
	if s := b.task(k).State; s != ledger.StateSucceeded {
		t.Errorf("the task at work is %s: %v", s, b.types(k))
	}
	b.oneEffect(k)
	if diff := cmp.Diff([]ledger.EventType{ledger.EventEnqueued}, b.types(second)); diff != "" {
		t.Errorf("events of a later task (-want +got):\n%s", diff)
	}
	b.work(workers.Config{}, exactly(insertEffect, nil))
	b.allDone(2)
	b.eachOnce(2)
}

// requests is how many pull requests for new tasks the broker has.
func (b *bundle) requests() int {
	b.t.Helper()
	return try(b.js.Consumer(b.context(), "LEDGER", "test~order"))(b.t).CachedInfo().NumWaiting
}

// Handlers that do not finish in time are cancelled, and their tasks given back: others do them at
// once, and no attempt was used.
func TestSignalGivesBackWhatDoesNotFinish(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.relay()
	c, k := b.begun("heeds")
	c.signal(t)
	<-c.ended
	if !c.ProcessState.Success() {
		t.Errorf("the child ended as %v", c.ProcessState)
	}
	if types := b.types(k); types[len(types)-1] != ledger.EventInterrupted {
		t.Errorf("events: %v", types)
	}
	b.work(workers.Config{AckWait: forEver}, exactly(insertEffect, &workers.KindConfig{Retry: ledger.RetryPolicy{Attempts: 1}}))
	b.awaitState(k, ledger.StateSucceeded)
	b.oneEffect(k)
	if task := b.task(k); task.Failures != 0 {
		t.Errorf("%d failures: %v", task.Failures, b.types(k))
	}
}

// The second signal ends the process at once, whatever its handlers do. The task is done once, by
// another, and no attempt was used.
func TestSecondSignalIsImmediate(t *testing.T) {
	t.Parallel()
	for program, register := range map[string]func(*bundle, *workers.KindConfig) func(*workers.Pool) error{
		"slow":          func(_ *bundle, c *workers.KindConfig) func(*workers.Pool) error { return exactly(insertEffect, c) },
		"slow-at-least": func(b *bundle, c *workers.KindConfig) func(*workers.Pool) error { return atLeast(b.outside, c) },
	} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.relay()
			c, k := b.begun(program) // its handler waits for ever, and StopTimeout is an hour
			func() {
				for { // two that come at the same time are one to the kernel
					c.signal(t)
					select {
					case <-c.ended:
						return
					case <-time.After(20 * time.Millisecond):
					}
				}
			}()
			if status, ok := c.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGTERM {
				t.Errorf("the child ended as %v", c.ProcessState)
			}
			b.work(workers.Config{}, register(b, &workers.KindConfig{Retry: ledger.RetryPolicy{Attempts: 1}}))
			b.awaitState(k, ledger.StateSucceeded)
			b.oneEffect(k)
			if task := b.task(k); task.Failures != 0 {
				t.Errorf("%d failures: %v", task.Failures, b.types(k))
			}
		})
	}
}
