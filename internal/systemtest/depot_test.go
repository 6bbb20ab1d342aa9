// Package systemtest holds tests of the whole product: a relay, a projector and workers run
// together through outages of their servers, and with the rights of docs/nats.conf.
package systemtest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/dispatcher"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/projector"
	"github.com/taskledger/taskledger/workers"
)

// patience bounds every wait; each normally takes seconds.
const patience = 2 * time.Minute

// parcel is the kind of task that [sends] handles.
var parcel = ledger.MustKind[struct{}]("parcel.send")

// depot is a ledger with all services that work on it, in this process.
type depot struct {
	t    *testing.T
	pg   *pgserver.Server
	db   *pgxpool.Pool
	nats *natsserver.Server // nil: the test connects to another NATS server

	enqueued atomic.Int64
}

// newDepot returns a depot with servers of its own.
func newDepot(t *testing.T) *depot {
	t.Helper()
	d := newLedger(t)
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	d.nats = server
	return d
}

// newLedger returns a depot without a NATS server. Its table effect has no unique constraint: only
// the ledger prevents a second effect of a task.
func newLedger(t *testing.T) *depot {
	t.Helper()
	d := &depot{t: t, pg: ledgertest.Cluster(t, nil)}
	d.db = d.pool(ledgertest.App, "relay", "operator")
	if _, err := d.db.Exec(t.Context(), `create table effect (kind text not null, biz_id text not null)`); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *depot) pool(roles ...string) *pgxpool.Pool {
	d.t.Helper()
	config, err := pgxpool.ParseConfig(ledgertest.URLAs(d.t, d.pg.URL(ledgertest.Database), roles...))
	if err != nil {
		d.t.Fatal(err)
	}
	config.MaxConns = 12
	db, err := pgxpool.NewWithConfig(d.t.Context(), config)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(db.Close)
	return db
}

// runner is a relay, a projector, a dispatcher or a pool of workers.
type runner interface{ Run(context.Context) error }

// newRunner makes a runner on the given connections.
type newRunner func(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error)

// start runs a runner on connections of its own until the test ends. It fails the test if the
// runner returns earlier, or with an error.
func (d *depot) start(name string, build newRunner) runner {
	d.t.Helper()
	nc, err := outbox.Connect(d.nats.URL())
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(nc.Close)
	return d.startOn(name, nc, build)
}

// startOn is start with a given connection to NATS.
func (d *depot) startOn(name string, nc *nats.Conn, build newRunner) runner {
	d.t.Helper()
	r, err := build(d.pool(roleOf(name)), nc, slog.New(slog.NewTextHandler(d.t.Output(), nil)).With("runner", name))
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := startRun(ctx, r)
	d.t.Cleanup(func() {
		select {
		case err := <-done:
			d.t.Errorf("%s returned before the end of the test: %v", name, err)
		default:
			cancel()
			if err := <-done; err != nil {
				d.t.Errorf("%s: %v", name, err)
			}
		}
	})
	return r
}

// roleOf returns the role of a runner: that of serve for its services, and that of a worker for all others.
func roleOf(name string) string {
	switch name {
	case "relay", "second relay", "projector", "dispatcher", "scheduler":
		return "relay"
	}
	return "worker"
}

func startRun(ctx context.Context, r runner) <-chan error {
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return done
}

// startServing starts a relay, a projector and a dispatcher.
func (d *depot) startServing() {
	d.t.Helper()
	d.start("relay", newRelay)
	d.start("projector", newProjector)
	d.start("dispatcher", newDispatcher)
}

func newDispatcher(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error) {
	return dispatcher.New(dispatcher.Config{DB: db, NATS: nc, Logger: log})
}

func newRelay(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error) {
	return outbox.New(outbox.Config{DB: db, NATS: nc, Logger: log, LeaseTTL: time.Second, CheckEvery: time.Second})
}

func newProjector(db *pgxpool.Pool, _ *nats.Conn, log *slog.Logger) (runner, error) {
	return projector.New(projector.Config{DB: db, Logger: log})
}

// sends makes workers that insert an effect for each parcel.
func sends(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error) {
	p, err := workers.New(workers.Config{DB: db, NATS: nc, Logger: log, LeaseTTL: 2 * time.Second})
	if err != nil {
		return nil, err
	}
	return p, p.Register(workers.Handle(parcel, func(
		ctx context.Context, tx pgx.Tx, job *workers.Job, _ struct{},
	) error {
		return insertEffect(ctx, tx, job)
	}, nil))
}

// insertEffect records that a task's handler ran.
func insertEffect(ctx context.Context, db ledger.DB, job *workers.Job) error {
	_, err := db.Exec(ctx, `insert into effect (kind, biz_id) values ($1, $2)`, string(job.Kind), string(job.BizID))
	return err
}

// produce runs one producer for each kind until stop is closed. A producer waits for pause before
// each task.
func (d *depot) produce(
	stop <-chan struct{}, pause time.Duration, kinds ...ledger.TypedKind[struct{}],
) *sync.WaitGroup {
	var producers sync.WaitGroup
	for p, kind := range kinds {
		producers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(pause):
				}
				d.enqueue(kind, ledger.BizID(fmt.Sprintf("%d-%d", p, i)))
			}
		})
	}
	return &producers
}

// enqueue enqueues a task, and retries until the database confirms it.
func (d *depot) enqueue(kind ledger.TypedKind[struct{}], id ledger.BizID) {
	d.await("an enqueue", func() bool {
		_, err := kind.Enqueue(context.Background(), d.db, id, struct{}{}, nil)
		if err != nil && !ledger.Retryable(err) && !errors.Is(err, ledger.ErrUnavailable) {
			d.t.Errorf("enqueue: %v", err)
			return true // a retry cannot succeed
		}
		return err == nil
	})
	d.enqueued.Add(1)
}

// allDone waits until every task has succeeded and has an effect. It verifies the ledger and its
// projection.
func (d *depot) allDone() {
	d.t.Helper()
	tasks := int(d.enqueued.Load())
	d.await("every task to be done", func() bool {
		return d.count(`select count(distinct (kind, biz_id)) from effect`) == tasks
	})
	d.await("the projection to catch up", func() bool {
		return d.count(`select count(*) from taskledger.task where state = 'succeeded'`) == tasks
	})
	verified, err := projector.Verify(d.t.Context(), d.db, nil)
	if err != nil || !verified.Equal() {
		d.t.Errorf("the projection differs from the events: %+v, %v", verified, err)
	}
	ledgertest.Check(d.t, d.db)
	d.t.Logf("%d tasks", tasks)
}

// count returns the one number that a query returns, or -1 while the database is unavailable.
func (d *depot) count(sql string) (n int) {
	if d.db.QueryRow(context.Background(), sql).Scan(&n) != nil {
		return -1
	}
	return n
}

// await polls until ok returns true. After [patience] it fails the test.
func (d *depot) await(what string, ok func() bool) {
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			d.t.Errorf("timed out waiting for %s", what)
			return
		}
	}
}
