package outbox_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// records returns the events of the records of rebuilds, in order.
func records(tb testing.TB, pool *pgxpool.Pool) []string {
	tb.Helper()
	rows, err := pool.Query(tb.Context(), `
		select e.type || ' by ' || e.actor || coalesce(': ' || (e.data->>'reason'), '')
		  from taskledger.event e
		 where e.kind = 'taskledger.operation' and starts_with(e.biz_id, 'subscriber.rebuild/')
		 order by e.position`)
	if err != nil {
		tb.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// The record of a rebuild succeeds with the tables, also if the program that does it is killed, and not before.
func TestRecordOfAKilledRebuild(t *testing.T) {
	t.Parallel()
	const begun, done = "enqueued by alice: test", "succeeded by subscriber"
	for point, want := range map[string][]string{
		fault.BuildMade:  {begun},
		fault.BuildBatch: {begun},
		fault.SwapHeld:   {begun},
		fault.SwapMoved:  {begun},
		fault.SwapDone:   {begun, done},
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			pool := tablesPool(t)
			registerCoupons(1)(t, pool)
			enqueueCoupons(t, pool, "spring", 0, 60)
			operator := ledgertest.As(t, pool, "operator")
			if err := subscribers.RequestRebuild(t.Context(), operator, "coupons", "alice", "test"); err != nil {
				t.Fatal(err)
			}
			runUntilKilled(t, "run coupons", pool.Config().ConnString(), point)
			if diff := difference.Of(want, records(t, pool)); diff != "" {
				t.Errorf("after the kill (-want +got):\n%s", diff)
			}
			stop := start(t, quick(pool, coupons()))
			defer stop()
			await(t, "the rebuild has ended", func() bool { return registered(t, pool).Wanted == "" })
			if diff := difference.Of([]string{begun, done}, records(t, pool)); diff != "" {
				t.Errorf("at the end (-want +got):\n%s", diff)
			}
		})
	}
}

// The record of a rebuild that fails is dead, with the error.
func TestRecordOfAFailedRebuild(t *testing.T) {
	t.Parallel()
	pool := tablesPool(t)
	registerCoupons(1)(t, pool)
	enqueueCoupons(t, pool, "spring", 0, 10)
	fixed := make(chan struct{})
	p := coupons()
	p.Handle = func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
		select {
		case <-fixed:
			return applyCoupons(ctx, tx, events)
		default:
			return errPoison
		}
	}
	if err := subscribers.RequestRebuild(t.Context(), pool, "coupons", "alice", "test"); err != nil {
		t.Fatal(err)
	}
	defer start(t, quick(pool, p))()
	await(t, "the rebuild has failed", func() bool { return registered(t, pool).Wanted == "" })
	have := records(t, pool)
	want := []string{"enqueued by alice: test", "buried by subscriber: " + registered(t, pool).Work.Failure()}
	if diff := difference.Of(want, have); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	close(fixed)
	if err := subscribers.RequestRebuild(t.Context(), pool, "coupons", "alice", "test"); err != nil {
		t.Fatal(err)
	}
	await(t, "another rebuild", func() bool { return registered(t, pool).Wanted == "" })
	want = append(want, "enqueued by alice: test", "succeeded by subscriber")
	if diff := difference.Of(want, records(t, pool)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A program ends the records of rebuilds and of no other act.
func TestRelayEndsRecordsOfRebuildsOnly(t *testing.T) {
	t.Parallel()
	pool := tablesPool(t)
	registerCoupons(1)(t, pool)
	if err := subscribers.RequestRebuild(t.Context(), pool, "coupons", "alice", "test"); err != nil {
		t.Fatal(err)
	}
	relay := ledgertest.As(t, pool, "relay")
	var id ledger.BizID
	if err := pool.QueryRow(t.Context(), `select biz_id from taskledger.event
		where kind = 'taskledger.operation'`).Scan((*string)(&id)); err != nil {
		t.Fatal(err)
	}
	key := ledger.Key{Kind: "taskledger.operation", BizID: id}
	for _, of := range []ledger.EventType{ledger.EventCancelled, ledger.EventStarted} {
		if _, err := ledger.Append(t.Context(), relay, ledger.AppendRequest{Key: key, Expected: 1,
			Type: of}); err == nil {
			t.Errorf("%s was appended", of)
		}
	}
	if _, err := ledger.Append(t.Context(), relay, ledger.AppendRequest{Key: key, Expected: 1,
		Type: ledger.EventSucceeded}); err != nil {
		t.Error(err)
	}
}
