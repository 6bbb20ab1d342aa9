package scheduler_test

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/scheduler"
	"github.com/taskledger/taskledger/internal/servicetest"
)

// An idle scheduler polls for all its loops at once: the others read nothing of their own meanwhile.
func TestIdleSchedulerPollsOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	counter := &statementCounter{n: make(map[string]int)}
	config := b.DB.Config()
	config.ConnConfig.Tracer = counter
	db := servicetest.Try(pgxpool.NewWithConfig(t.Context(), config))(t)
	defer db.Close()
	s := servicetest.Try(scheduler.New(scheduler.Config{DB: db}))(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	b.Await("forty polls", func() bool { return counter.count("timers_lowest.sql") >= 40 })
	polls, others := counter.count("timers_lowest.sql"), counter.count("awaiting.sql")+counter.count("overloads.sql")
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if others > polls/2 {
		t.Errorf("%d other statements beside %d polls", others, polls)
	}
}

// statementCounter counts the statements of batches.
type statementCounter struct {
	mu sync.Mutex
	n  map[string]int // guarded by mu
}

func (c *statementCounter) count(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[scheduler.Statements[name]]
}

func (c *statementCounter) TraceQueryStart(
	ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData,
) context.Context {
	return ctx
}

func (c *statementCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *statementCounter) TraceBatchStart(
	ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData,
) context.Context {
	return ctx
}

func (c *statementCounter) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[d.SQL]++
}

func (c *statementCounter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
