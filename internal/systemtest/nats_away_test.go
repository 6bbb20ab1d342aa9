package systemtest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

var natsAway = flag.Duration("nats-away", 4*time.Second,
	"duration of the NATS outage in TestNATSAwayUnderEverything; LeaseTTL is half of it")

// Kinds of parcels, one for each guarantee.
var (
	parcelExactly = ledger.MustKind[struct{}]("parcel.exactly")
	parcelAtLeast = ledger.MustKind[struct{}]("parcel.at-least")
	parcelAtMost  = ledger.MustKind[struct{}]("parcel.at-most")
	parcels       = []ledger.TypedKind[struct{}]{parcelExactly, parcelAtLeast, parcelAtMost}
)

// slowParcels is the number of tasks of each kind whose handlers run when the outage begins. Half
// of them return during the outage, the others after it.
const slowParcels = 4

// NATS is down for twice LeaseTTL under a relay and workers of all guarantees, while handlers run and
// tasks are being enqueued. Running handlers are not disturbed, and no attempt is repeated.
func TestNATSAwayUnderEverything(t *testing.T) {
	t.Parallel()
	d := newDepot(t)
	d.startServing()
	o := &outage{begun: make(chan struct{}), over: make(chan struct{})}
	for i := range 2 {
		d.start(fmt.Sprintf("worker-%d", i+1), o.newWorkers)
	}
	o.enqueueSlow(d)
	stop := make(chan struct{})
	producers := d.produce(stop, *natsAway/1000, parcels...)
	slow := len(parcels) * slowParcels
	d.await("slow handlers to run, and other tasks to finish", func() bool {
		return int(o.waiting.Load()) == slow && d.count(`select count(*) from effect`) > 100
	})

	d.nats.Stop()
	stopped, before := time.Now(), d.enqueued.Load()
	close(o.begun)
	d.await("handlers to finish without NATS", func() bool {
		return d.count(`
			select count(*) from taskledger.event where type = 'succeeded' and biz_id like 'begun-%'`) == slow/2
	})
	d.await("tasks to be enqueued without NATS", func() bool { return d.enqueued.Load() > before+100 })
	time.Sleep(time.Until(stopped.Add(*natsAway)))
	if err := d.nats.Restart(); err != nil {
		t.Fatal(err)
	}
	t.Logf("NATS was down for %s, LeaseTTL is %s; %d tasks were enqueued meanwhile",
		time.Since(stopped).Round(time.Millisecond), *natsAway/2, d.enqueued.Load()-before)
	close(o.over)
	close(stop)
	producers.Wait()
	d.allDone()
	t.Logf("done %s after the restart of NATS", time.Since(stopped.Add(*natsAway)).Round(time.Millisecond))
	for _, kind := range parcels {
		o.check(d, kind)
	}
}

// outage is the outage that slow handlers wait for, and the workers that run them.
type outage struct {
	begun, over chan struct{} // closed when NATS is stopped, and after it is back

	waiting atomic.Int32 // handlers
}

// enqueueSlow enqueues the tasks whose handlers wait, half of them for each end of the outage.
func (o *outage) enqueueSlow(d *depot) {
	for _, kind := range parcels {
		for i := range slowParcels / 2 {
			for _, until := range []string{"begun", "over"} {
				d.enqueue(kind, ledger.BizID(fmt.Sprintf("%s-%d", until, i)))
			}
		}
	}
}

// newWorkers makes workers of all guarantees, whose handlers end by inserting an effect.
func (o *outage) newWorkers(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error) {
	p, err := workers.New(workers.Config{DB: db, NATS: nc, Logger: log, LeaseTTL: *natsAway / 2})
	if err != nil {
		return nil, err
	}
	outside := func(ctx context.Context, job *workers.Job, _ struct{}) error {
		return errors.Join(o.await(ctx, job), insertEffect(ctx, db, job))
	}
	return p, errors.Join(
		p.Register(workers.Handle(parcelExactly, func(
			ctx context.Context, tx pgx.Tx, job *workers.Job, _ struct{},
		) error {
			return errors.Join(o.await(ctx, job), insertEffect(ctx, tx, job))
		}, nil)),
		p.Register(workers.Handle(parcelAtLeast, outside, nil)),
		p.Register(workers.Handle(parcelAtMost, outside, &workers.KindConfig{Guarantee: workers.AtMostOnce})),
	)
}

// await waits for the event that begins the task's biz_id. It returns at once for other tasks.
func (o *outage) await(ctx context.Context, job *workers.Job) error {
	until, _, _ := strings.Cut(string(job.BizID), "-")
	event := map[string]chan struct{}{"begun": o.begun, "over": o.over}[until]
	if event == nil {
		return nil
	}
	o.waiting.Add(1)
	select {
	case <-event:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// check fails the test if a task of the kind has failed or was attempted twice. It also fails if a
// task has two effects, which only at-least-once permits.
func (o *outage) check(d *depot, kind ledger.TypedKind[struct{}]) {
	count := func(query string) int {
		return d.count(strings.ReplaceAll(query, "$kind", "kind = '"+string(kind.Name())+"'"))
	}
	effects := count(`select count(*) from effect where $kind`)
	tasks := count(`select count(distinct biz_id) from effect where $kind`)
	if kind.Name() != parcelAtLeast.Name() && effects != tasks {
		d.t.Errorf("%s: %d effects of %d tasks", kind.Name(), effects, tasks)
	}
	failed := count(`
		select count(*) from taskledger.event where $kind and (type in ('failed', 'buried') or attempt > 1)`)
	if failed != 0 {
		d.t.Errorf("%s: %d events of failed or repeated attempts, want 0", kind.Name(), failed)
	}
	d.t.Logf("%s: %d effects of %d tasks", kind.Name(), effects, tasks)
}
