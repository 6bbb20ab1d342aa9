package systemtest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// The kinds of tasks that a restore or a promotion finds running, one for each guarantee.
var (
	heldExactly = ledger.MustKind[struct{}]("held.exactly")
	heldAtLeast = ledger.MustKind[struct{}]("held.at-least")
	heldAtMost  = ledger.MustKind[struct{}]("held.at-most")
)

// moving is the address of the primary, which a restore or a promotion changes under live services and workers.
type moving struct {
	to atomic.Pointer[pgserver.Server]
}

// on has a runner use a pool whose new connections go to the current primary.
func (m *moving) on(build newRunner) newRunner {
	return func(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error) {
		c := db.Config()
		c.BeforeConnect = func(_ context.Context, conn *pgx.ConnConfig) error {
			server := m.to.Load()
			if server == nil {
				return nil
			}
			now, err := pgx.ParseConfig(server.URL(ledgertest.Database))
			if err == nil {
				conn.Host, conn.Port, conn.Fallbacks = now.Host, now.Port, nil
			}
			return err
		}
		moved, err := pgxpool.NewWithConfig(context.Background(), c)
		if err != nil {
			return nil, err
		}
		r, err := build(moved, nc, log)
		return closing{r, moved}, err
	}
}

// closing closes the pool of a runner at its end.
type closing struct {
	runner
	db *pgxpool.Pool
}

func (c closing) Run(ctx context.Context) error {
	defer c.db.Close()
	return c.runner.Run(ctx)
}

// holding makes workers whose handlers wait until release is closed.
func holding(release <-chan struct{}) newRunner {
	wait := func(ctx context.Context) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return func(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error) {
		p, err := workers.New(workers.Config{DB: db, NATS: nc, Logger: log, LeaseTTL: 2 * time.Second})
		if err != nil {
			return nil, err
		}
		act := func(ctx context.Context, _ *workers.Job, _ struct{}) error { return wait(ctx) }
		for _, err := range []error{
			p.Register(workers.Handle(heldExactly, func(
				ctx context.Context, tx pgx.Tx, j *workers.Job, _ struct{},
			) error {
				if err := insertEffect(ctx, tx, j); err != nil {
					return err
				}
				return wait(ctx)
			}, nil)),
			p.Register(workers.Handle(heldAtLeast, act, nil)),
			p.Register(workers.Handle(heldAtMost, act, &workers.KindConfig{Guarantee: workers.AtMostOnce})),
		} {
			if err != nil {
				return nil, err
			}
		}
		return p, nil
	}
}

// Tasks are running in a dump, or on an asynchronous standby, and end afterwards. The dump is restored, or the standby
// promoted, under the workers that ended them and live on: each task ends again, with one effect, and a task that must
// not run twice is buried.
func TestOutcomesUndoneUnderLiveWorkers(t *testing.T) {
	t.Parallel()
	t.Run("restore", func(t *testing.T) {
		t.Parallel()
		undo(t, func(r *recovered, end func()) *pgserver.Server {
			dump := r.tool(r.pg, nil, "pg_dump", r.pg.URL(ledgertest.Database))
			end()
			to := ledgertest.Cluster(r.t, nil)
			r.tool(to, nil, "psql", to.URL("postgres"), "-qc", "drop database "+ledgertest.Database)
			r.tool(to, nil, "psql", to.URL("postgres"), "-qc", "create database "+ledgertest.Database)
			r.tool(to, dump, "psql", to.URL(ledgertest.Database), "-q", "-v", "ON_ERROR_STOP=1")
			owner, err := pgxpool.New(r.t.Context(), to.URL(ledgertest.Database))
			if err != nil {
				r.t.Fatal(err)
			}
			defer owner.Close()
			if needed, err := feed.Rebase(r.t.Context(), owner, nil); err != nil || !needed {
				r.t.Fatalf("rebase: %t, %v", needed, err)
			}
			return to
		}, func(*pgserver.Server) error { return nil })
	})
	t.Run("asynchronous standby", func(t *testing.T) {
		t.Parallel()
		undo(t, func(r *recovered, end func()) *pgserver.Server {
			if _, err := r.pg.Tool("pg_basebackup"); errors.Is(err, pgserver.ErrNotInstalled) {
				r.t.Skip(err)
			}
			standby, err := r.pg.Standby(r.t.Context())
			if err != nil {
				r.t.Fatal(err)
			}
			r.t.Cleanup(func() { _ = standby.Close() })
			owner, err := pgxpool.New(r.t.Context(), standby.URL(ledgertest.Database))
			if err != nil {
				r.t.Fatal(err)
			}
			defer owner.Close()
			for _, sql := range []string{"alter system set primary_conninfo = ''", "select pg_reload_conf()"} {
				if _, err := owner.Exec(r.t.Context(), sql); err != nil {
					r.t.Fatal(err)
				}
			}
			r.await("the replication to end", func() (ok bool) {
				const sql = "select not exists (select from pg_stat_wal_receiver)"
				return owner.QueryRow(r.t.Context(), sql).Scan(&ok) == nil && ok
			})
			end()
			return standby
		}, func(standby *pgserver.Server) error { return standby.Promote(t.Context()) })
	})
}

// undo ends tasks between a copy of the database and its use. replace makes the copy, calls end, and returns it.
// become makes the copy a primary.
func undo(
	t *testing.T, replace func(r *recovered, end func()) *pgserver.Server, become func(*pgserver.Server) error,
) {
	d := newDepot(t)
	var at moving
	r := &recovered{depot: d}
	for name, build := range map[string]newRunner{
		"relay": newRelay, "projector": newProjector, "dispatcher": newDispatcher,
	} {
		r.run(name, at.on(build))
	}
	release := make(chan struct{})
	for i := range 2 {
		r.run(fmt.Sprintf("worker %d", i), at.on(holding(release)))
	}
	kinds := []ledger.TypedKind[struct{}]{heldExactly, heldAtLeast, heldAtMost}
	for _, k := range kinds {
		r.enqueue(k, "held")
	}
	r.await("the tasks to run", func() bool {
		return r.count("select count(*) from taskledger.event where type = 'started'") == len(kinds)
	})
	old := d.pg
	to := replace(r, func() {
		close(release)
		r.await("the tasks to end", func() bool {
			return r.count("select count(*) from taskledger.event where type = 'succeeded'") == len(kinds)
		})
		r.published()
	})
	if err := old.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := become(to); err != nil {
		t.Fatal(err)
	}
	r.adopt(to)
	at.to.Store(to)
	began := time.Now()
	r.await("the tasks to end again", func() bool {
		return r.count("select count(*) from taskledger.event where type in ('succeeded', 'buried')") == len(kinds)
	})
	t.Logf("ended after %s", time.Since(began))
	if n := r.count("select count(*) from effect"); n != 1 {
		t.Errorf("%d effects, want 1", n)
	}
	task, err := ledger.Load(t.Context(), r.db, heldAtMost.Key("held"))
	if err != nil || task.State != ledger.StateDead {
		t.Errorf("the task that must not run twice is %s, %v", task.State, err)
	}
	ledgertest.Check(t, r.db)
}
