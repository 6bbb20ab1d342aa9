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

var natsAway = flag.Duration("nats-away", 4*time.Second, "how long TestNATSAwayUnderEverything has NATS away; AckWait is half of it")

// Parcels of each guarantee.
var (
	parcelExactly = ledger.MustKind[struct{}]("parcel.exactly")
	parcelAtLeast = ledger.MustKind[struct{}]("parcel.at-least")
	parcelAtMost  = ledger.MustKind[struct{}]("parcel.at-most")
	parcels       = []ledger.TypedKind[struct{}]{parcelExactly, parcelAtLeast, parcelAtMost}
)

// slowParcels are those of each kind whose handlers run when NATS goes: half of them return while it is
// away, half of them only once it is back and their messages have come again.
const slowParcels = 4

// NATS goes under a relay and workers of all guarantees, for twice AckWait, while handlers run and tasks
// are being enqueued: what runs goes on, and everything is done once.
func TestNATSAwayUnderEverything(t *testing.T) {
	t.Parallel()
	d := newDepot(t)
	d.startServing()
	o := &outage{gone: make(chan struct{}), back: make(chan struct{})}
	for i := range 2 {
		d.start(fmt.Sprintf("worker-%d", i+1), o.works)
	}
	for _, kind := range parcels {
		for i := range slowParcels / 2 {
			for _, until := range []string{"gone", "back"} {
				d.enqueue(kind, ledger.BizID(fmt.Sprintf("%s-%d", until, i)))
			}
		}
	}
	stop := make(chan struct{})
	producers := d.produce(stop, *natsAway/1000, parcels...)
	slow := len(parcels) * slowParcels
	d.await("slow handlers to run, and others beside them", func() bool {
		return int(o.waiting.Load()) == slow && d.count(`select count(*) from effect`) > 100
	})

	d.nats.Stop()
	begun, before := time.Now(), d.enqueued.Load()
	close(o.gone)
	d.await("handlers to finish without NATS", func() bool {
		return d.count(`select count(*) from taskledger.event where type = 'succeeded' and biz_id like 'gone-%'`) == slow/2
	})
	d.await("tasks to be enqueued without NATS", func() bool { return d.enqueued.Load() > before+100 })
	time.Sleep(time.Until(begun.Add(*natsAway)))
	if err := d.nats.Restart(); err != nil {
		t.Fatal(err)
	}
	t.Logf("NATS was away for %s, AckWait is %s; %d tasks were enqueued meanwhile", time.Since(begun).Round(time.Millisecond), *natsAway/2, d.enqueued.Load()-before)
	for _, kind := range parcels {
		d.await("messages of "+string(kind.Name())+" to come again", func() bool { return o.redelivered(kind) > 0 })
	}
	close(o.back)
	close(stop)
	producers.Wait()
	d.allDone()
	t.Logf("done %s after NATS came back", time.Since(begun.Add(*natsAway)).Round(time.Millisecond))

	for _, kind := range parcels {
		count := func(what string) int {
			return d.count(strings.ReplaceAll(what, "$kind", "kind = '"+string(kind.Name())+"'"))
		}
		effects, tasks := count(`select count(*) from effect where $kind`), count(`select count(distinct biz_id) from effect where $kind`)
		if kind.Name() != parcelAtLeast.Name() && effects != tasks {
			t.Errorf("%s: %d effects of %d tasks", kind.Name(), effects, tasks)
		}
		if n := count(`select count(*) from taskledger.event where $kind and (type in ('failed', 'buried') or attempt > 1)`); n != 0 {
			t.Errorf("%s: %d events of attempts that failed, or had one before them", kind.Name(), n)
		}
		t.Logf("%s: %d effects of %d tasks; %d messages came again", kind.Name(), effects, tasks, o.redelivered(kind))
	}
}

// outage is what handlers that run in it wait for, and the workers that run them.
type outage struct {
	gone, back chan struct{} // closed when NATS is

	waiting atomic.Int32 // handlers
	pools   []*workers.Pool
}

// works makes workers of all guarantees, each with a handler that leaves an effect at its end.
func (o *outage) works(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error) {
	p, err := workers.New(workers.Config{DB: db, NATS: nc, Logger: log, AckWait: *natsAway / 2})
	if err != nil {
		return nil, err
	}
	o.pools = append(o.pools, p)
	outside := func(ctx context.Context, job *workers.Job, _ struct{}) error {
		return errors.Join(o.await(ctx, job), leaveEffect(ctx, db, job))
	}
	return p, errors.Join(
		workers.Register(p, parcelExactly, func(ctx context.Context, tx pgx.Tx, job *workers.Job, _ struct{}) error {
			return errors.Join(o.await(ctx, job), leaveEffect(ctx, tx, job))
		}, nil),
		workers.RegisterAtLeastOnce(p, parcelAtLeast, outside, nil),
		workers.RegisterAtMostOnce(p, parcelAtMost, outside, nil),
	)
}

// await returns when a task is to go on: most at once.
func (o *outage) await(ctx context.Context, job *workers.Job) error {
	until, _, _ := strings.Cut(string(job.BizID), "-")
	event := map[string]chan struct{}{"gone": o.gone, "back": o.back}[until]
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

// redelivered is how many messages of a kind came to the workers that had come before.
func (o *outage) redelivered(kind ledger.TypedKind[struct{}]) (n int64) {
	for _, p := range o.pools {
		for _, k := range p.Status().Kinds {
			if k.Kind == kind.Name() {
				n += k.Redelivered
			}
		}
	}
	return n
}
