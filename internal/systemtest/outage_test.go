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

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/projector"
	"github.com/taskledger/taskledger/workers"
)

// patience bounds what normally takes seconds.
const patience = 2 * time.Minute

var parcel = ledger.MustKind[struct{}]("parcel.send")

// depot is a ledger with everything that works on it, in this process.
type depot struct {
	t    *testing.T
	pg   *pgserver.Server
	db   *pgxpool.Pool
	nats *natsserver.Server

	enqueued atomic.Int64
}

// PostgreSQL goes and comes back, in order and by SIGKILL, under a relay, a projector and workers
// at once, while tasks are being enqueued: each is done, exactly once, and the projection is what
// the events say.
func TestPostgresRestartsUnderEverything(t *testing.T) {
	t.Parallel()
	d := newDepot(t)
	d.startServing()
	for i := range 2 {
		d.start(fmt.Sprintf("worker-%d", i+1), sends)
	}
	stop := make(chan struct{})
	producers := d.produce(stop, time.Millisecond, parcel, parcel, parcel)
	for i, end := range []func() error{
		func() error { return d.pg.Stop(t.Context()) }, d.pg.Kill,
		func() error { return d.pg.Stop(t.Context()) }, d.pg.Kill,
	} {
		before := d.count(`select count(*) from effect`)
		d.await("effects between the outages", func() bool { return d.count(`select count(*) from effect`) > before+100 })
		if err := end(); err != nil {
			t.Fatalf("outage %d: %v", i+1, err)
		}
		if err := d.pg.Restart(t.Context()); err != nil {
			t.Fatalf("outage %d: %v", i+1, err)
		}
	}
	close(stop)
	producers.Wait()
	d.allDone()
	if tasks, effects := int(d.enqueued.Load()), d.count(`select count(*) from effect`); effects != tasks {
		t.Errorf("%d effects of %d tasks", effects, tasks)
	}
}

// startServing starts a relay and a projector.
func (d *depot) startServing() {
	d.t.Helper()
	d.start("relay", func(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error) {
		return outbox.New(outbox.Config{DB: db, NATS: nc, Logger: log, LeaseTTL: time.Second, CheckEvery: time.Second})
	})
	d.start("projector", func(db *pgxpool.Pool, _ *nats.Conn, log *slog.Logger) (runner, error) {
		return projector.New(projector.Config{DB: db, Logger: log})
	})
}

// allDone waits until every task has succeeded and left an effect, and checks the ledger and its
// projection.
func (d *depot) allDone() {
	d.t.Helper()
	tasks := int(d.enqueued.Load())
	d.await("every task to be done", func() bool { return d.count(`select count(distinct (kind, biz_id)) from effect`) == tasks })
	d.await("the projection to follow", func() bool {
		return d.count(`select count(*) from taskledger.task where state = 'succeeded'`) == tasks
	})
	verified, err := projector.Verify(d.t.Context(), d.db)
	if err != nil || !verified.Equal() {
		d.t.Errorf("the projection is not what the events say: %+v, %v", verified, err)
	}
	ledgertest.Check(d.t, d.db)
	d.t.Logf("%d tasks", tasks)
}

func newDepot(t *testing.T) *depot {
	t.Helper()
	pg := ledgertest.Cluster(t, nil)
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	d := &depot{t: t, pg: pg, nats: server}
	d.db = d.pool()
	if _, err := d.db.Exec(t.Context(), `create table effect (kind text not null, biz_id text not null)`); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *depot) pool() *pgxpool.Pool {
	d.t.Helper()
	config, err := pgxpool.ParseConfig(d.pg.URL(ledgertest.Database))
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

// runner is a relay, a projector or a pool of workers.
type runner interface{ Run(context.Context) error }

// start runs one with connections of its own until the test ends; it must not end before, nor with
// an error. It returns what was built.
func (d *depot) start(name string, build func(*pgxpool.Pool, *nats.Conn, *slog.Logger) (runner, error)) runner {
	d.t.Helper()
	nc, err := outbox.Connect(d.nats.URL())
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(nc.Close)
	return d.startOn(name, nc, build)
}

// startOn is start with a connection to NATS.
func (d *depot) startOn(name string, nc *nats.Conn, build func(*pgxpool.Pool, *nats.Conn, *slog.Logger) (runner, error)) runner {
	d.t.Helper()
	r, err := build(d.pool(), nc, slog.New(slog.NewTextHandler(d.t.Output(), nil)).With("runner", name))
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	d.t.Cleanup(func() {
		select {
		case err := <-done:
			d.t.Errorf("%s ended by itself: %v", name, err)
		default:
			cancel()
			if err := <-done; err != nil {
				d.t.Errorf("%s: %v", name, err)
			}
		}
	})
	return r
}

// sends makes workers that leave an effect for each parcel; nothing but the ledger keeps them from
// leaving two.
func sends(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error) {
	p, err := workers.New(workers.Config{DB: db, NATS: nc, Logger: log, AckWait: 2 * time.Second})
	if err != nil {
		return nil, err
	}
	return p, workers.Register(p, parcel, func(ctx context.Context, tx pgx.Tx, job *workers.Job, _ struct{}) error {
		return leaveEffect(ctx, tx, job)
	}, nil)
}

// leaveEffect leaves an effect, wherever db is.
func leaveEffect(ctx context.Context, db ledger.DB, job *workers.Job) error {
	_, err := db.Exec(ctx, `insert into effect (kind, biz_id) values ($1, $2)`, string(job.Kind), string(job.BizID))
	return err
}

// produce has a producer for each of the kinds, which enqueues a task at a time, pausing between them,
// until stop is closed.
func (d *depot) produce(stop <-chan struct{}, pause time.Duration, kinds ...ledger.TypedKind[struct{}]) *sync.WaitGroup {
	var producers sync.WaitGroup
	for p, kind := range kinds {
		producers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(pause):
				}
				id := ledger.BizID(fmt.Sprintf("%d-%d", p, i))
				d.enqueue(kind, id)
			}
		})
	}
	return &producers
}

// enqueue makes a task, again until the database has said that it is there.
func (d *depot) enqueue(kind ledger.TypedKind[struct{}], id ledger.BizID) {
	d.await("an enqueue", func() bool {
		_, err := kind.Enqueue(context.Background(), d.db, id, struct{}{}, nil)
		if err != nil && !ledger.Retryable(err) && !errors.Is(err, ledger.ErrUnavailable) {
			d.t.Errorf("enqueue: %v", err)
		}
		return err == nil
	})
	d.enqueued.Add(1)
}

// count is the answer of a query, -1 while the database is away.
func (d *depot) count(sql string) (n int) {
	if d.db.QueryRow(context.Background(), sql).Scan(&n) != nil {
		return -1
	}
	return n
}

func (d *depot) await(what string, ok func() bool) {
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			d.t.Errorf("in vain: %s", what)
			return
		}
	}
}
