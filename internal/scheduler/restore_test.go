package scheduler_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A living scheduler fires a timer that a restore or a fail-over has brought back, although it is due before the
// horizon, as soon as it polls the other run of the server.
func TestTimersOfARestoredDatabase(t *testing.T) {
	t.Parallel()
	server := ledgertest.Cluster(t, nil)
	pool := servicetest.Try(pgxpool.New(t.Context(), server.URL(ledgertest.Database)))(t)
	t.Cleanup(pool.Close)
	b := &fixture{servicetest.NewDatabaseOn(t, pool)}
	s := b.scheduler()
	n := 0
	b.Await("the horizon to move", func() bool {
		n++
		fired := b.Later(fmt.Sprint("round ", n), ledger.EnqueueOptions{RunIn: time.Microsecond})
		for b.Task(fired).State != ledger.StateAvailable {
			b.step(s)
		}
		return !s.Safe().IsZero()
	})
	k := b.Later("restored", ledger.EnqueueOptions{RunIn: time.Hour})
	before := s.Safe().Add(-time.Second)
	if _, err := pool.Exec(t.Context(), "update taskledger.timer set due_at = $1", before); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		b.step(s)
	}
	if state := b.Task(k).State; state != ledger.StateScheduled {
		t.Fatalf("the task is %s: the test proves nothing", state)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	restarted := time.Now()
	b.Await("the timer to be fired", func() bool {
		s.PollAlways()
		if s.Step(t.Context()) != nil {
			return false // over a connection of before
		}
		task, err := ledger.Load(t.Context(), pool, k)
		return err == nil && task.State == ledger.StateAvailable
	})
	if took := time.Since(restarted); took > 40*time.Second {
		t.Errorf("the timer was fired after %v, by the poll of all timers that follows each minute", took)
	}
}
