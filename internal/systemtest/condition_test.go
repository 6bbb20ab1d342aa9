package systemtest_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// Each fault degrades the status while it lasts, with a cure, and not longer. The log has how soon.
func TestConditionsAppearAndGo(t *testing.T) {
	t.Parallel()
	d := newDepot(t)
	stopRelay := d.startStoppable("relay", newRelay)
	d.start("projector", newProjector)
	d.start("dispatcher", newDispatcher)
	var isWell atomic.Bool
	d.start("letters", func(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error) {
		p, err := workers.New(workers.Config{DB: db, NATS: nc, Logger: log, LeaseTTL: 2 * time.Second})
		if err != nil {
			return nil, err
		}
		return p, p.Register(workers.Handle(letter, func(
			ctx context.Context, tx pgx.Tx, _ *workers.Job, _ struct{},
		) error {
			if isWell.Load() {
				return nil
			}
			_, err := tx.Exec(ctx, "do $$ begin raise exception using errcode = 'serialization_failure'; end $$")
			return err
		}, nil))
	})
	js := d.jetStream()
	c := health.Config{DB: d.db, JetStream: js}
	c.Thresholds = map[health.Name]time.Duration{health.TasksUnbegun: time.Second}
	condition := func(name health.Name) (found health.Condition, ok bool) {
		r, err := health.Read(t.Context(), c)
		if err != nil {
			return found, false
		}
		i := slices.IndexFunc(r.Degraded, func(c health.Condition) bool { return c.Name == name })
		if i < 0 {
			return found, false
		}
		return r.Degraded[i], true
	}
	appears := func(name health.Name, threshold time.Duration) {
		t.Helper()
		begun := time.Now()
		d.await(string(name), func() bool {
			found, ok := condition(name)
			if ok && found.Cure == "" {
				t.Errorf("%s has no cure", name)
			}
			return ok
		})
		t.Logf("%s after %v, threshold %v", name, time.Since(begun).Round(10*time.Millisecond), threshold)
	}
	goes := func(name health.Name) {
		t.Helper()
		d.await("the end of "+string(name), func() bool {
			_, ok := condition(name)
			return !ok
		})
	}
	d.await("the services", func() bool {
		r, err := health.Read(t.Context(), c)
		return err == nil && len(r.Degraded) == 0
	})

	d.enqueue(letter, "1")
	appears(health.AttemptsRepeated, 0)
	isWell.Store(true)
	goes(health.AttemptsRepeated)

	// A worker in SQL lives and claims nothing.
	const heartbeat = "select taskledger.heartbeat('idle', '{parcel.send}')"
	if _, err := d.pool("worker").Exec(t.Context(), heartbeat); err != nil {
		t.Fatal(err)
	}
	d.enqueue(parcel, "1")
	appears(health.TasksUnbegun, time.Second)
	d.start("parcels", sends)
	goes(health.TasksUnbegun)

	ledgertest.ExecAsOwner(t, d.db, `
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id)
		select 9, 1, e.shard, 'succeeded', e.kind, e.biz_id
		  from taskledger.event e where e.kind = 'letter.send' and e.version = 1`)
	appears(health.EventsIllegal, 0)
	key := ledger.Key{Kind: letter.Name(), BizID: "1"}
	if _, err := projection.DismissIllegal(t.Context(), d.pool("operator"), key, "alice", "forged"); err != nil {
		t.Fatal(err)
	}
	goes(health.EventsIllegal)

	limited, err := js.Stream(t.Context(), stream.Name)
	if err != nil {
		t.Fatal(err)
	}
	config := limited.CachedInfo().Config
	config.MaxMsgs, config.Discard = 1, jetstream.DiscardNew
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		d.enqueue(parcel, ledger.BizID(fmt.Sprintf("limited-%d", i)))
	}
	appears(health.RelayBlocked, 0)
	config.MaxMsgs, config.Discard = -1, jetstream.DiscardOld
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	goes(health.RelayBlocked)

	stopRelay()
	d.enqueue(parcel, "2")
	appears(health.RelayStopped, 0)
	lag, _ := health.Define(health.RelayLag)
	appears(health.RelayLag, lag.Threshold)
	d.start("second relay", newRelay)
	goes(health.RelayStopped)
	goes(health.RelayLag)
}
