package systemtest_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/scheduler"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// maxPlannings is how often PostgreSQL plans a statement of a connection before it compares the plan for all
// parameters with those that know them.
const maxPlannings = 5

// No statement of an everyday task, nor of an idle service, is planned at each execution: with the lists of a group as
// constants, the plan of append_many took 774 µs of PostgreSQL's CPU and its execution 159.
func TestEverydayStatementsArePlannedOnce(t *testing.T) {
	t.Parallel()
	d := newDepot(t)
	pools := map[string]*pgxpool.Pool{"producer": d.db}
	start := func(name string, build newRunner) {
		d.start(name, func(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error) {
			if name == "owner" { // no policies of rows, so the planner has other costs
				db = d.pool(ledgertest.Owner)
			}
			pools[name] = db
			return build(db, nc, log)
		})
	}
	start("relay", newRelay)
	start("projector", newProjector)
	start("dispatcher", newDispatcher)
	start("scheduler", func(db *pgxpool.Pool, _ *nats.Conn, log *slog.Logger) (runner, error) {
		return scheduler.New(scheduler.Config{DB: db, Logger: log})
	})
	works := func(exactly, atLeast ledger.TypedKind[struct{}]) newRunner {
		return func(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error) {
			p, err := workers.New(workers.Config{DB: db, NATS: nc, Logger: log})
			if err != nil {
				return nil, err
			}
			inTx := func(ctx context.Context, tx pgx.Tx, job *workers.Job, _ struct{}) error {
				return insertEffect(ctx, tx, job)
			}
			alone := func(ctx context.Context, job *workers.Job, _ struct{}) error { return insertEffect(ctx, db, job) }
			return p, p.Register(workers.Handle(exactly, inTx, nil), workers.Handle(atLeast, alone, nil))
		}
	}
	start("workers", works(parcel, letter))
	ownParcel, ownLetter := ledger.MustKind[struct{}]("own.parcel"), ledger.MustKind[struct{}]("own.letter")
	start("owner", works(ownParcel, ownLetter))
	for i := range 120 {
		id := ledger.BizID(fmt.Sprint(i))
		for _, kind := range []ledger.TypedKind[struct{}]{parcel, letter, ownParcel, ownLetter} {
			d.enqueue(kind, id)
		}
		time.Sleep(10 * time.Millisecond) // so that each task is alone, and the services also poll without events
	}
	d.allDone()
	statements := 0
	for name, pool := range pools {
		for _, conn := range pool.AcquireAllIdle(t.Context()) {
			rows, err := conn.Query(t.Context(),
				"select statement, custom_plans, generic_plans from pg_prepared_statements")
			if err != nil {
				t.Fatal(err)
			}
			var statement string
			var custom, generic int
			_, err = pgx.ForEachRow(rows, []any{&statement, &custom, &generic}, func() error {
				if custom+generic <= 3*maxPlannings {
					return nil
				}
				statements++
				if custom > maxPlannings {
					first, _, _ := strings.Cut(statement, "\n")
					t.Errorf("%s: of %d executions, %d were planned: %s", name, custom+generic, custom, first)
				}
				return nil
			})
			conn.Release()
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if statements < 10 {
		t.Errorf("only %d statements were executed often", statements)
	}
}
