package outbox_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// Several processes of one subscriber with tables handle each event once.
func TestTablesGetEachEventOnce(t *testing.T) {
	t.Parallel()
	pool := ownPool(t)
	var stops []func()
	for range 3 {
		stops = append(stops, start(t, quick(pool, coupons())))
	}
	var group sync.WaitGroup
	for i, campaign := range []string{"spring", "summer"} {
		group.Go(func() {
			for j := range 10 {
				enqueueCoupons(t, pool, campaign, 1000*i+30*j, 30)
				if j == 5 {
					stops[i]() // another one takes over
				}
			}
		})
	}
	group.Wait()
	await(t, "the subscriber is registered", func() bool { return registered(t, pool).Version == 1 })
	awaitApplied(t, pool)
	for _, stop := range stops {
		stop()
	}
	if have, want := campaigns(t, pool), "spring 300 300, summer 300 300"; have != want {
		t.Errorf("campaigns: %s, want %s", have, want)
	}
	verifyCoupons(t, pool, coupons())
}

// An event that fails stops its subscriber alone, and is reported. After it is discarded the subscriber continues.
func TestFailingEventStopsItsSubscriberOnly(t *testing.T) {
	t.Parallel()
	pool := ownPool(t)
	enqueueCoupons(t, pool, "spring", 0, 50)
	bad, err := ledger.Enqueue(t.Context(), pool, ledger.Key{Kind: "coupon.send", BizID: "bad"},
		[]byte(`{"campaign":"poison"}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	enqueueCoupons(t, pool, "spring", 100, 50)
	stop := start(t, quick(pool, coupons()))
	defer stop()
	await(t, "the event fails repeatedly", func() bool {
		f := registered(t, pool).Failing
		return f != nil && f.Failures > 2
	})
	f := registered(t, pool).Failing
	if f.Position != bad.Position || f.Key.BizID != "bad" || f.Version != 1 || f.Since.IsZero() ||
		!f.LastAt.After(f.Since) || !strings.Contains(f.Error, "poison") {
		t.Errorf("failing: %+v", f)
	}
	if _, err := subscribers.RetryParked(t.Context(), pool, "coupons", f.Key, "", ""); !errors.Is(err,
		subscribers.ErrNotParked) {
		t.Errorf("retry of an event that is not parked: %v", err)
	}
	n, err := subscribers.DiscardParked(t.Context(), pool, "coupons", f.Key, "alice", "test")
	if n != 1 || err != nil {
		t.Fatalf("discard: %d, %v", n, err)
	}
	awaitApplied(t, pool)
	stop()
	after := registered(t, pool)
	if after.Failing != nil || after.Discarded != 1 || after.Parked != 0 {
		t.Errorf("after the discard: %+v", after)
	}
	if have, want := campaigns(t, pool), "spring 100 100"; have != want {
		t.Errorf("campaigns: %s, want %s", have, want)
	}
	const record = `select count(*) from taskledger.event where kind = 'taskledger.operation' and actor = 'alice'
		and type = 'enqueued' and data->>'action' = 'subscriber.discard' and data->>'reason' = 'test'`
	var recorded int
	if err := pool.QueryRow(t.Context(), record).Scan(&recorded); err != nil || recorded != 1 {
		t.Errorf("the record has %d acts, %v", recorded, err)
	}
	verifyCoupons(t, pool, coupons()) // leaves it out as well
}

// With Park, the task of a failing event waits, and others continue. A retry applies its events in order.
func TestFailingEventIsParked(t *testing.T) {
	t.Parallel()
	pool := ownPool(t)
	p := coupons()
	p.OnFailure = outbox.Park
	fixed := make(chan struct{})
	p.Handle = func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
		for _, e := range events {
			if e.BizID == "bad" && e.Version == 1 {
				select {
				case <-fixed:
				default:
					panic("not yet")
				}
			}
		}
		return applyCoupons(ctx, tx, events)
	}
	stop := start(t, quick(pool, p))
	defer stop()
	enqueueCoupons(t, pool, "spring", 0, 50)
	key := ledger.Key{Kind: "coupon.send", BizID: "bad"}
	if _, err := ledger.Enqueue(t.Context(), pool, key, []byte(`{"campaign":"spring"}`), nil); err != nil {
		t.Fatal(err)
	}
	finish := ledger.AppendRequest{Key: key, Expected: 1, Type: ledger.EventSucceeded}
	if _, err := ledger.Append(t.Context(), pool, finish); err != nil {
		t.Fatal(err)
	}
	enqueueCoupons(t, pool, "spring", 100, 50)
	await(t, "the events of the task are parked", func() bool { return registered(t, pool).Parked == 2 })
	awaitApplied(t, pool)
	parked, err := subscribers.ReadParked(t.Context(), pool, "coupons", subscribers.EventName{}, 10)
	if err != nil || len(parked) != 2 || !strings.Contains(parked[0].Error, "not yet") || parked[1].Error != "" {
		t.Fatalf("parked: %+v, %v", parked, err)
	}
	if have, want := campaigns(t, pool), "spring 100 100"; have != want {
		t.Errorf("campaigns: %s, want %s", have, want)
	}
	retry := func() {
		t.Helper()
		n, err := subscribers.RetryParked(t.Context(), pool, "coupons", key, "", "")
		if n != 2 || err != nil {
			t.Fatalf("retry: %d, %v", n, err)
		}
	}
	retry()
	await(t, "the event fails again", func() bool {
		parked, err := subscribers.ReadParked(t.Context(), pool, "coupons", subscribers.EventName{}, 10)
		return err == nil && len(parked) == 2 && parked[0].Failures == 2 && parked[0].State == "parked"
	})
	close(fixed)
	retry()
	await(t, "nothing is parked", func() bool { return registered(t, pool).Parked == 0 })
	stop()
	if have, want := campaigns(t, pool), "spring 101 101"; have != want {
		t.Errorf("campaigns: %s, want %s", have, want)
	}
	verifyCoupons(t, pool, p)
}

// Discarding a parked event handles those that wait for it.
func TestDiscardedParkedEvent(t *testing.T) {
	t.Parallel()
	pool := ownPool(t)
	p := coupons()
	p.OnFailure = outbox.Park
	stop := start(t, quick(pool, p))
	defer stop()
	key := ledger.Key{Kind: "coupon.send", BizID: "bad"}
	if _, err := ledger.Enqueue(t.Context(), pool, key, []byte(`{"campaign":"panic"}`), nil); err != nil {
		t.Fatal(err)
	}
	finish := ledger.AppendRequest{Key: key, Expected: 1, Type: ledger.EventSucceeded}
	if _, err := ledger.Append(t.Context(), pool, finish); err != nil {
		t.Fatal(err)
	}
	await(t, "the events are parked", func() bool { return registered(t, pool).Parked == 2 })
	if n, err := subscribers.DiscardParked(t.Context(), pool, "coupons", key, "", ""); n != 1 || err != nil {
		t.Fatalf("discard: %d, %v", n, err)
	}
	await(t, "the other event is applied", func() bool {
		r := registered(t, pool)
		return r.Parked == 0 && r.Discarded == 1
	})
	stop()
	verifyCoupons(t, pool, p)
}

// A subscriber with invalid tables, or of an older version, is not run.
func TestTablesAreRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		before func(*testing.T, *pgxpool.Pool)
		change func(*outbox.Subscription)
		logged string
	}{
		{name: "older version", before: registerCoupons(3),
			logged: "the tables have version 3, the program has version 1"},
		{name: "changed DDL", before: registerCoupons(1), logged: "the DDL differs",
			change: func(p *outbox.Subscription) { p.Tables.DDL += "; create index on campaign (sent)" }},
		{name: "wrong DDL", logged: "syntax error",
			change: func(p *outbox.Subscription) { p.Tables.DDL = "create tabel x" }},
		{name: "DDL of a view", logged: "let the DDL make tables",
			change: func(p *outbox.Subscription) { p.Tables.DDL += "; create view v as select 1" }},
		{name: "DDL of nothing", logged: "it makes no table",
			change: func(p *outbox.Subscription) { p.Tables.DDL = "select 1" }},
		{name: "no right", logged: "CREATE on the database", before: func(t *testing.T, pool *pgxpool.Pool) {
			ledgertest.ExecAsOwner(t, pool, "revoke create on database "+pool.Config().ConnConfig.Database+" from "+
				pool.Config().ConnConfig.User)
		}},
		{name: "schema of others", logged: "set another Schema",
			before: func(t *testing.T, pool *pgxpool.Pool) {
				ledgertest.ExecAsOwner(t, pool, "create schema coupons")
			}},
		{name: "dropped table", logged: "campaign: missing: taskledger rebuild tables coupons",
			before: func(t *testing.T, pool *pgxpool.Pool) {
				registerCoupons(1)(t, pool)
				ledgertest.ExecAsOwner(t, pool, "drop table coupons.campaign")
			}},
		{name: "commit", logged: "must not commit", before: func(t *testing.T, pool *pgxpool.Pool) {
			enqueueCoupons(t, pool, "spring", 0, 1)
		}, change: func(p *outbox.Subscription) {
			p.Handle = func(ctx context.Context, tx pgx.Tx, _ []ledger.Event) error { return tx.Commit(ctx) }
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			pool := ownPool(t)
			if test.before != nil {
				test.before(t, pool)
			}
			p := coupons()
			if test.change != nil {
				test.change(&p)
			}
			c := quick(pool, p)
			var log logText
			c[0].Logger = log.logger()
			stop := start(t, c)
			defer stop()
			await(t, "the refusal is logged", func() bool { return strings.Contains(log.all(), test.logged) })
		})
	}
}

// registerCoupons runs a version of the projection.
func registerCoupons(version int) func(*testing.T, *pgxpool.Pool) {
	return func(t *testing.T, pool *pgxpool.Pool) {
		t.Helper()
		p := coupons()
		p.Tables.Version = version
		stop := start(t, quick(pool, p))
		await(t, "the subscriber is registered", func() bool { return registered(t, pool).Version == version })
		stop()
	}
}

// A slow subscriber delays no other.
func TestSlowSubscriberHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	pool := ownPool(t)
	slow, release := coupons(), make(chan struct{})
	slow.Name = "slow"
	slow.Handle = func(ctx context.Context, _ pgx.Tx, _ []ledger.Event) error {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	stop := start(t, quick(pool, slow, coupons()))
	defer stop()
	enqueueCoupons(t, pool, "spring", 0, 50)
	await(t, "the subscriber is registered", func() bool { return registered(t, pool).Version == 1 })
	awaitApplied(t, pool)
	close(release)
}

// Pages are bounded by number and by size.
func TestPagesOfTablesAreBounded(t *testing.T) {
	t.Parallel()
	pool := ownPool(t)
	enqueueCoupons(t, pool, "x", 0, 60)
	p := coupons()
	most, apply := 0, p.Handle
	p.Handle = func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
		most = max(most, len(events))
		return apply(ctx, tx, events)
	}
	c := quick(pool, p)
	c[0].PageSize = 50
	stop := start(t, c)
	await(t, "the subscriber is registered", func() bool { return registered(t, pool).Version == 1 })
	awaitApplied(t, pool)
	stop()
	if most < 10 || most > 50 {
		t.Errorf("a page had %d events", most)
	}
}

func TestWaitForSubscriber(t *testing.T) {
	t.Parallel()
	pool := ownPool(t)
	stop := start(t, quick(pool, coupons()))
	defer stop()
	enqueueCoupons(t, pool, "spring", 0, 1)
	awaitApplied(t, pool) // by WaitFor
	if have := campaigns(t, pool); have != "spring 1 1" {
		t.Errorf("after the wait: %s", have)
	}
	stop()
	answer, err := ledger.Enqueue(t.Context(), pool, ledger.Key{Kind: "coupon.send", BizID: "A-2"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := outbox.WaitFor(ctx, pool, "coupons", answer.Position); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a program: %v", err)
	}
	if err := outbox.WaitFor(t.Context(), pool, "coupons", 1<<40); !errors.Is(err, ledger.ErrUnknownPosition) {
		t.Errorf("unknown position: %v", err)
	}
	if err := outbox.WaitFor(t.Context(), pool, "none", answer.Position); !errors.Is(err,
		outbox.ErrUnknownSubscriber) {
		t.Errorf("unknown subscriber: %v", err)
	}
}

func TestInvalidTables(t *testing.T) {
	t.Parallel()
	bad := outbox.Subscription{
		Name: "x", Tables: outbox.Tables{Schema: "Public Schema"}, OnFailure: 7, From: outbox.StartNow(),
		RetryFailed: -1, Upcasts: ledger.Upcasts{ledger.Shape{Type: "none"}: nil},
	}
	err := bad.Validate()
	for _, want := range []string{
		"Tables.Schema must be a letter", "Tables.Version must be between", "Tables.DDL is required",
		"Tables and Park need Handle", "OnFailure must be", "Upcasts must have", "From must be the beginning",
		"RetryFailed must not be negative",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in: %v", want, err)
		}
	}
}

// An outage of the database in Handle is no failure of an event.
func TestOutageParksNothing(t *testing.T) {
	t.Parallel()
	pool := ownPool(t)
	p := coupons()
	p.OnFailure = outbox.Park
	outages := 0
	p.Handle = func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
		switch {
		case len(events) > 1:
			return errPoison // so that one event is applied after the other
		case outages < 3:
			outages++
			return &pgconn.PgError{Code: "40P01", Message: "deadlock detected"}
		}
		return applyCoupons(ctx, tx, events)
	}
	enqueueCoupons(t, pool, "spring", 0, 10)
	stop := start(t, quick(pool, p))
	defer stop()
	await(t, "the subscriber is registered", func() bool { return registered(t, pool).Version == 1 })
	awaitApplied(t, pool)
	stop()
	if r := registered(t, pool); r.Parked != 0 || r.Failing != nil || outages != 3 {
		t.Errorf("%d outages: %+v", outages, r)
	}
	if have := campaigns(t, pool); have != "spring 10 10" {
		t.Errorf("campaigns: %s", have)
	}
}
