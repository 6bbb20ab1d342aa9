package broker_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/broker"
	"github.com/taskledger/taskledger/internal/poolertest"
)

// Behind a pooler in transaction mode the server is refused: its lock would be that of another transaction's session.
func TestPoolerIsRefused(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s, err := broker.New(broker.Config{
		DB: d.behindPgBouncer(), Dir: t.TempDir(), TTL: 3 * time.Second,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Run(ctx); !errors.Is(err, broker.ErrPooler) {
		t.Errorf("%v, want %v", err, broker.ErrPooler)
	}
	d.run(broker.Config{}) // on a direct connection nothing is in the way
	d.found("worker", "worker")
}

// behindPgBouncer returns a pool whose connections go through PgBouncer in transaction mode.
func (d *database) behindPgBouncer() *pgxpool.Pool {
	t := d.t
	t.Helper()
	config, err := pgxpool.ParseConfig(poolertest.Start(t, d.db.Config().ConnString(), "transaction", 20))
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
