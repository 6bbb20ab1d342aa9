package scheduler_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/scheduler"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
)

// slowPoll has one poll take delay, as if the database stood still.
type slowPoll struct {
	statementCounter
	delay atomic.Int64
}

func (p *slowPoll) TraceBatchEnd(_ context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) {
	time.Sleep(time.Duration(p.delay.Swap(0)))
}

// A poll that took long puts off the next one by a bounded time: a timer that commits after it was due waits for less
// than the poll took, not for ten times as long.
func TestTimerAfterASlowPoll(t *testing.T) {
	t.Parallel()
	b := setup(t)
	slow := &slowPoll{statementCounter: statementCounter{n: make(map[string]int)}}
	config := b.As("relay").Config()
	config.ConnConfig.Tracer = slow
	db := servicetest.Try(pgxpool.NewWithConfig(t.Context(), config))(t)
	defer db.Close()
	s := servicetest.Try(scheduler.New(scheduler.Config{DB: db}))(t)
	b.step(s)

	const delay = 4 * time.Second
	late := ledger.Key{Kind: "test.later", BizID: "late"}
	tx := servicetest.Try(b.DB.Begin(t.Context()))(t)
	defer func() { _ = tx.Rollback(context.Background()) }()
	servicetest.Try(ledger.Enqueue(t.Context(), tx, late, nil, &ledger.EnqueueOptions{RunIn: time.Microsecond}))(t)
	slow.delay.Store(int64(delay))
	s.PollAlways()
	for range 2 { // the slow poll, and a batch without one, behind which the timer is due
		if err := s.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	committed := time.Now()
	b.Await("the timer to be fired", func() bool {
		if err := s.Step(t.Context()); err != nil {
			t.Error(err)
		}
		return b.Task(late).State == ledger.StateAvailable
	})
	if took := time.Since(committed); took > delay {
		t.Errorf("the timer was fired %s after its commit, because a poll had taken %s", took, delay)
	}
}
