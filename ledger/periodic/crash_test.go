package periodic_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/longtest"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/periodic"
)

// childVariable is the environment variable that makes the test binary a runner.
const childVariable = "TASKLEDGER_PERIODIC_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(longtest.Run(m))
	}
	err := runChild()
	fmt.Fprintln(os.Stderr, "child ended:", err)
	os.Exit(1)
}

func runChild() error {
	ctx := context.Background()
	db, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	return periodic.Run(ctx, db, nil)
}

// runUntilKilled runs a runner in a process of its own until the crash point kills it.
func (b *bundle) runUntilKilled(point string) {
	b.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(),
		childVariable+"=1", "DATABASE_URL="+b.db.Config().ConnString(), fault.Variable+"="+point)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer late.Stop()
	_ = cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		b.t.Fatalf("the child was not killed at %s: %v", point, cmd.ProcessState)
	}
}

// A runner that is killed before its commit has changed nothing; the next runner fires everything once.
func TestRunnerKilled(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"periodic.planned", "periodic.fired"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			s := hourly("sales")
			s.Missed, s.MissedLimit = periodic.MissedAll, 3
			b.apply(s)
			b.due("sales", "5 hours")
			before := b.load("sales")
			b.runUntilKilled(point)
			after := b.load("sales")
			if !after.NextAt.Equal(before.NextAt) || after.LastTask != nil || after.Passed != 0 {
				t.Errorf("the killed runner left %+v", after)
			}
			const eventsOfTasks = "select count(*)::integer from taskledger.event where kind <> 'taskledger.schedule'"
			if n := one[int](b, eventsOfTasks); n != 0 {
				t.Errorf("the killed runner left %d events", n)
			}
			b.run(b.runner())
			b.await("three firings", func() bool { return len(b.fired("sales")) == 3 })
			if after := b.load("sales"); after.Passed != 2 {
				t.Errorf("passed over %d, want 2", after.Passed)
			}
			ledgertest.Check(t, b.db)
		})
	}
}

// A runner that is frozen before its commit blocks other runners for seconds only, and its commit fails.
// The test is not parallel: it freezes the first runner of this process.
func TestRunnerFrozen(t *testing.T) {
	b := setup(t)
	b.apply(hourly("sales"))
	b.due("sales", "1 hour")
	frozen, thaw := make(chan struct{}), make(chan struct{})
	var passed atomic.Bool
	remove := fault.Set("periodic.fired", func() {
		if !passed.Swap(true) {
			close(frozen)
			<-thaw
		}
	})
	defer remove()
	frozenRunner := make(chan error, 1)
	r := b.runner()
	go func() {
		_, err := r.Pass(context.Background())
		frozenRunner <- err
	}()
	<-frozen
	b.run(b.runner())
	b.await("another runner to fire", func() bool { return len(b.fired("sales")) == 1 })
	after := b.load("sales")
	close(thaw)
	if err := <-frozenRunner; err == nil {
		t.Error("the frozen runner's commit succeeded")
	}
	if now := b.load("sales"); !now.NextAt.Equal(after.NextAt) || len(b.fired("sales")) != 1 {
		t.Errorf("the frozen runner changed %+v into %+v", after, now)
	}
	b.pass(r, 0) // it continues
	ledgertest.Check(t, b.db)
}
