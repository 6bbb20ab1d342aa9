package scheduler_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/scheduler"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
)

func TestMain(m *testing.M) { servicetest.Main(m, program) }

// program returns the program of a child process.
func program(name string) servicetest.Program {
	return func(ctx context.Context, db *pgxpool.Pool) error {
		if name != "scheduler" {
			return fmt.Errorf("unknown program %q", name)
		}
		s, err := scheduler.New(scheduler.Config{DB: db})
		if err != nil {
			return err
		}
		return s.Run(ctx)
	}
}

// fixture is the shared bundle, without NATS, which a scheduler does not need.
type fixture struct{ *servicetest.Bundle }

func setup(t testing.TB) *fixture {
	t.Helper()
	return &fixture{servicetest.NewDatabase(t)}
}

// scheduler returns a scheduler that works when the test calls it.
func (b *fixture) scheduler() *scheduler.Scheduler {
	b.T.Helper()
	return servicetest.Try(scheduler.New(scheduler.Config{DB: b.As("relay")}))(b.T)
}

// step makes a scheduler poll, and fire one batch.
func (b *fixture) step(s *scheduler.Scheduler) {
	b.T.Helper()
	s.PollAlways()
	if err := s.Step(b.Context()); err != nil {
		b.T.Fatal(err)
	}
}

func (b *fixture) append(r ledger.AppendRequest) ledger.Event {
	b.T.Helper()
	return servicetest.Try(ledger.Append(b.Context(), b.DB, r))(b.T)
}

// awaitNoTimers waits until the table of timers is empty.
func (b *fixture) awaitNoTimers() {
	b.T.Helper()
	b.Await("the timers to go", func() bool {
		return servicetest.One[int](b, "select count(*)::integer from taskledger.timer") == 0
	})
}
