package dispatcher_test

import (
	"context"
	"encoding/hex"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/dispatch"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
)

// rogue is a client with the rights of a worker.
type rogue struct {
	t        *testing.T
	db       *pgxpool.Pool
	nc       *nats.Conn
	id       string
	identity dispatch.Identity
	begun    time.Time
}

func newRogue(t *testing.T, b *servicetest.Bundle, id string) *rogue {
	t.Helper()
	return &rogue{
		t: t, db: ledgertest.As(t, b.DB), nc: b.Connect(), id: id, identity: servicetest.Try(dispatch.NewIdentity())(t),
		begun: time.Now(),
	}
}

// lease takes a lease as a worker of a kind.
func (r *rogue) lease(kind ledger.Kind) {
	r.t.Helper()
	servicetest.Try(r.db.Exec(r.t.Context(), `
		insert into taskledger.lease as l (name, holder, alive_until, term, detail)
		values ('worker/' || $1::text, $1::text, clock_timestamp() + interval '1 minute', interval '1 minute',
		        json_build_object('kinds', json_build_array($2::text), 'shards', 'all', 'key', $3::text,
		                          'capacity', 1000))`,
		r.id, string(kind), hex.EncodeToString(r.identity.Public())))(r.t)
}

// publish publishes reports in the present epoch. It returns the epoch.
func (r *rogue) publish(reports ...dispatch.Report) (epoch int64) {
	r.t.Helper()
	var incarnation, key string
	err := r.db.QueryRow(r.t.Context(), `
		select coalesce(taskledger_internal.session_incarnation(), ''), d.epoch, d.key
		  from taskledger_internal.dispatcher d`).
		Scan(&incarnation, &epoch, &key)
	if err != nil {
		r.t.Fatal(err)
	}
	public := servicetest.Try(hex.DecodeString(key))(r.t)
	session := dispatch.SessionName(r.id, r.identity.Public())
	seal := servicetest.Try(dispatch.NewSeal(dispatch.WorkerSide, r.identity, public, dispatch.Conversation{
		Session: session, Incarnation: incarnation, Epoch: epoch}))(r.t)
	for _, report := range reports {
		report.Session, report.Incarnation, report.Epoch = session, incarnation, epoch
		report.Sent = time.Since(r.begun)
		text := servicetest.Try(report.MarshalBinary())(r.t)
		if err := r.nc.Publish(stream.None.ReportSubject(session), seal.Seal(text)); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := r.nc.Flush(); err != nil {
		r.t.Fatal(err)
	}
	return epoch
}

// A worker lists keys that PostgreSQL refuses or that do not exist, and gives them back. The others get their tasks
// from the same dispatcher.
func TestMadeUpKeysDoNotEndTheEpoch(t *testing.T) {
	t.Parallel()
	b := servicetest.NewServed(t, outbox.StreamConfig{})
	b.Work(workers.Config{}, b.Exactly(servicetest.InsertEffect, nil))
	b.AwaitState(b.Enqueue("before"), ledger.StateSucceeded)
	r := newRogue(t, b, "rogue")
	kind := servicetest.Order.Name()
	r.lease(kind)
	epoch := r.publish()
	for i := range 50 {
		for _, id := range []ledger.BizID{"\xff", "\x00", "", "none"} {
			r.publish(dispatch.Report{After: -1, Held: []dispatch.Range{{}},
				Listed: []dispatch.Holding{{Key: ledger.Key{Kind: kind, BizID: id}, Version: 1}}}, dispatch.Report{})
		}
		b.AwaitState(b.Enqueue(strconv.Itoa(i)), ledger.StateSucceeded)
	}
	if now := r.publish(); now != epoch {
		t.Errorf("epoch %d, want %d still", now, epoch)
	}
}

// A lease of another kind contains a number that jsonb refuses. A worker cannot take such a lease. If the owner writes
// one, the others can still claim.
func TestALeaseOfAnotherKindDoesNotStopClaims(t *testing.T) {
	t.Parallel()
	b := servicetest.NewServed(t, outbox.StreamConfig{})
	db := ledgertest.As(t, b.DB)
	const insert = `
		insert into taskledger.lease (name, holder, alive_until, term, detail)
		values ('worker/rogue', 'rogue', clock_timestamp() + interval '60 s', interval '60 s',
		        '{"kinds":["rogue.kind"],"shards":"all","key":"ab","records":[1e1000000]}')`
	if _, err := db.Exec(t.Context(), insert); !pgerr.Is(err, "42501") {
		t.Errorf("a worker takes the lease: %v", err)
	}
	b.Forge(insert)
	key := b.Enqueue("x")
	servicetest.Try(db.Exec(t.Context(), "select taskledger.heartbeat('sql', array[$1::text])", string(key.Kind)))(t)
	servicetest.Try(db.Exec(t.Context(), "select * from taskledger.claim_next($1::text, 'sql')", string(key.Kind)))(t)
	if s := b.Task(key).State; s != ledger.StateRunning {
		t.Errorf("the task is %s", s)
	}
}

// A worker is cut off from the database. A task whose head it has read before waits for its slot, and does not begin.
func TestAReadTaskWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	b := servicetest.NewServed(t, outbox.StreamConfig{})
	freezer, db := servicetest.NewFreezer(t, b.As(ledgertest.App))
	kind := ledger.MustKind[string]("test.large")
	begun, goOn := make(chan string, 100), make(chan struct{})
	w := b.Work(workers.Config{DB: db, LeaseTTL: 30 * time.Second}, func(p *workers.Pool) error {
		return p.Register(workers.Handle(kind, func(_ context.Context, job *workers.Job, _ string) error {
			begun <- string(job.BizID)
			if job.BizID == "long" {
				<-goOn
			}
			return nil
		}, &workers.KindConfig{Slots: 1}))
	})
	large := strings.Repeat("x", 600) // more than an offer carries
	enqueue := func(id string) ledger.Key {
		servicetest.Try(kind.Enqueue(b.Context(), b.As("producer"), ledger.BizID(id), large, nil))(t)
		return ledger.Key{Kind: kind.Name(), BizID: ledger.BizID(id)}
	}
	for i := range 20 { // it is quick, so it takes tasks ahead
		enqueue(strconv.Itoa(i))
		<-begun
	}
	long := enqueue("long")
	if id := <-begun; id != "long" {
		t.Fatal(id)
	}
	enqueue("next")
	b.Await("the next task in the worker", func() bool { return w.Pool.Status().Kinds[0].InFlight == 2 })
	b.AwaitState(long, ledger.StateRunning)
	freezer.Freeze()
	time.Sleep(dispatch.Freshness + time.Second) // as long as it trusts its last view
	close(goOn)
	select {
	case id := <-begun:
		t.Errorf("%s has begun without the database", id)
	case <-time.After(time.Second):
	}
	freezer.Thaw()
	if id := <-begun; id != "next" {
		t.Error(id)
	}
}
