package projector_test

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

	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// quick is a configuration whose retries a test need not wait for.
func quick(pool *pgxpool.Pool, p ...projector.Projection) projector.Config {
	return projector.Config{
		DB: pool, Projections: p, PageSize: 20, Standby: 50 * time.Millisecond, RetryFailed: 50 * time.Millisecond,
	}
}

// Several runners of one projection apply each event once.
func TestOwnProjectionAppliesEachEventOnce(t *testing.T) {
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
	await(t, "the projection is registered", func() bool { return registered(t, pool).Version == 1 })
	awaitApplied(t, pool)
	for _, stop := range stops {
		stop()
	}
	if have, want := campaigns(t, pool), "spring 300 300, summer 300 300"; have != want {
		t.Errorf("campaigns: %s, want %s", have, want)
	}
	verifyCoupons(t, pool, coupons())
}

// A projection whose cursor is refused, as after a restore of it alone, keeps no other one from its events.
func TestRefusedProjectionStopsAlone(t *testing.T) {
	t.Parallel()
	pool := ownPool(t)
	other := coupons()
	other.Name = "coupons_again"
	stop := start(t, quick(pool, coupons(), other))
	enqueueCoupons(t, pool, "spring", 0, 10)
	await(t, "the projection is registered", func() bool { return registered(t, pool).Version == 1 })
	awaitApplied(t, pool)
	stop()
	ledgertest.ExecAsOwner(t, pool, `update taskledger.cursor set origin = '1/1' where reader = 'projection/coupons'`)
	defer start(t, quick(pool, coupons(), other))()
	enqueueCoupons(t, pool, "spring", 10, 10)
	awaitCaughtUp(t, pool) // the built-in projection
	await(t, "the other projection has tables", func() bool {
		var has bool
		const sql = `select to_regclass('coupons_again.campaign') is not null`
		if err := pool.QueryRow(t.Context(), sql).Scan(&has); err != nil {
			t.Fatal(err)
		}
		return has
	})
	await(t, "the other projection has caught up", func() bool {
		var n int
		const sql = `select coalesce(sum(sent), 0) from coupons_again.campaign`
		if err := pool.QueryRow(t.Context(), sql).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 20
	})
}

// An event that fails stops its projection alone, and is reported. After it is skipped the projection continues.
func TestFailingEventStopsItsProjectionOnly(t *testing.T) {
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
	awaitCaughtUp(t, pool) // the built-in projection
	if _, err := projector.RetryParkedTask(t.Context(), pool, "coupons", f.Key, projector.Act{}); !errors.Is(err,
		projector.ErrNotParked) {
		t.Errorf("retry of an event that is not parked: %v", err)
	}
	act := projector.Act{Actor: "alice", Reason: "test"}
	n, err := projector.SkipParkedTask(t.Context(), pool, "coupons", f.Key, act)
	if n != 1 || err != nil {
		t.Fatalf("skip: %d, %v", n, err)
	}
	awaitApplied(t, pool)
	stop()
	after := registered(t, pool)
	if after.Failing != nil || after.Skipped != 1 || after.Parked != 0 {
		t.Errorf("after the skip: %+v", after)
	}
	if have, want := campaigns(t, pool), "spring 100 100"; have != want {
		t.Errorf("campaigns: %s, want %s", have, want)
	}
	const record = `select count(*) from taskledger.event where kind = 'taskledger.operation' and actor = 'alice'
		and type = 'enqueued' and data->>'action' = 'projection.skip' and data->>'reason' = 'test'`
	var recorded int
	if err := pool.QueryRow(t.Context(), record).Scan(&recorded); err != nil || recorded != 1 {
		t.Errorf("the record has %d acts, %v", recorded, err)
	}
	verifyCoupons(t, pool, coupons()) // skips it as well
}

// With Park, the task of a failing event waits, and others continue. A retry applies its events in order.
func TestFailingEventIsParked(t *testing.T) {
	t.Parallel()
	pool := ownPool(t)
	p := coupons()
	p.OnFailure = projector.Park
	fixed := make(chan struct{})
	p.Apply = func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
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
	parked, err := projector.ReadProjectionParked(t.Context(), pool, "coupons", projector.EventName{}, 10)
	if err != nil || len(parked) != 2 || !strings.Contains(parked[0].Error, "not yet") || parked[1].Error != "" {
		t.Fatalf("parked: %+v, %v", parked, err)
	}
	if have, want := campaigns(t, pool), "spring 100 100"; have != want {
		t.Errorf("campaigns: %s, want %s", have, want)
	}
	retry := func() {
		t.Helper()
		n, err := projector.RetryParkedTask(t.Context(), pool, "coupons", key, projector.Act{})
		if n != 2 || err != nil {
			t.Fatalf("retry: %d, %v", n, err)
		}
	}
	retry()
	await(t, "the event fails again", func() bool {
		parked, err := projector.ReadProjectionParked(t.Context(), pool, "coupons", projector.EventName{}, 10)
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

// Skipping a parked event applies those that wait for it.
func TestSkippedParkedEvent(t *testing.T) {
	t.Parallel()
	pool := ownPool(t)
	p := coupons()
	p.OnFailure = projector.Park
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
	if n, err := projector.SkipParkedTask(t.Context(), pool, "coupons", key, projector.Act{}); n != 1 || err != nil {
		t.Fatalf("skip: %d, %v", n, err)
	}
	await(t, "the other event is applied", func() bool {
		r := registered(t, pool)
		return r.Parked == 0 && r.Skipped == 1
	})
	stop()
	verifyCoupons(t, pool, p)
}

// A projection with invalid tables, or of an older version, is not run, and the others are.
func TestOwnProjectionRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		before func(*testing.T, *pgxpool.Pool)
		change func(*projector.Projection)
		logged string
	}{
		{name: "older version", before: registerCoupons(3),
			logged: "the tables have version 3, the program has version 1"},
		{name: "changed DDL", before: registerCoupons(1), logged: "the DDL differs",
			change: func(p *projector.Projection) { p.DDL += "; create index on campaign (sent)" }},
		{name: "wrong DDL", logged: "syntax error", change: func(p *projector.Projection) { p.DDL = "create tabel x" }},
		{name: "DDL of a view", logged: "let the DDL make tables",
			change: func(p *projector.Projection) { p.DDL += "; create view v as select 1" }},
		{name: "DDL of nothing", logged: "it makes no table",
			change: func(p *projector.Projection) { p.DDL = "select 1" }},
		{name: "no right", logged: "CREATE on the database", before: func(t *testing.T, pool *pgxpool.Pool) {
			ledgertest.ExecAsOwner(t, pool, "revoke create on database "+pool.Config().ConnConfig.Database+" from "+
				pool.Config().ConnConfig.User)
		}},
		{name: "schema of others", logged: "give the projection another Name",
			before: func(t *testing.T, pool *pgxpool.Pool) {
				ledgertest.ExecAsOwner(t, pool, "create schema coupons")
			}},
		{name: "dropped table", logged: "campaign: missing: taskledger rebuild projection coupons",
			before: func(t *testing.T, pool *pgxpool.Pool) {
				registerCoupons(1)(t, pool)
				ledgertest.ExecAsOwner(t, pool, "drop table coupons.campaign")
			}},
		{name: "commit", logged: "must not commit", before: func(t *testing.T, pool *pgxpool.Pool) {
			enqueueCoupons(t, pool, "spring", 0, 1)
		}, change: func(p *projector.Projection) {
			p.Apply = func(ctx context.Context, tx pgx.Tx, _ []ledger.Event) error { return tx.Commit(ctx) }
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
			c.Logger = log.logger()
			stop := start(t, c)
			defer stop()
			await(t, "the refusal is logged", func() bool { return strings.Contains(log.text(), test.logged) })
			enqueueAndSucceed(t, pool, 0, 3)
			awaitCaughtUp(t, pool)
		})
	}
}

// registerCoupons runs a version of the projection.
func registerCoupons(version int) func(*testing.T, *pgxpool.Pool) {
	return func(t *testing.T, pool *pgxpool.Pool) {
		t.Helper()
		p := coupons()
		p.Version = version
		stop := start(t, quick(pool, p))
		await(t, "the projection is registered", func() bool { return registered(t, pool).Version == version })
		stop()
	}
}

// A slow projection delays no other.
func TestSlowProjectionHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	pool := ownPool(t)
	slow, release := coupons(), make(chan struct{})
	slow.Name = "slow"
	slow.Apply = func(ctx context.Context, _ pgx.Tx, _ []ledger.Event) error {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	stop := start(t, quick(pool, slow, coupons()))
	defer stop()
	enqueueCoupons(t, pool, "spring", 0, 50)
	await(t, "the projection is registered", func() bool { return registered(t, pool).Version == 1 })
	awaitApplied(t, pool)
	awaitCaughtUp(t, pool)
	close(release)
}

// Pages are bounded by number and by size.
func TestPagesAreBounded(t *testing.T) {
	t.Parallel()
	pool := ownPool(t)
	enqueueCoupons(t, pool, "x", 0, 60)
	p := coupons()
	most, apply := 0, p.Apply
	p.Apply = func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
		most = max(most, len(events))
		return apply(ctx, tx, events)
	}
	c := quick(pool, p)
	c.PageSize = 50
	stop := start(t, c)
	await(t, "the projection is registered", func() bool { return registered(t, pool).Version == 1 })
	awaitApplied(t, pool)
	stop()
	if most < 10 || most > 50 {
		t.Errorf("a page had %d events", most)
	}
}

func TestWaitFor(t *testing.T) {
	t.Parallel()
	pool := ownPool(t)
	stop := start(t, projector.Config{DB: pool})
	defer stop()
	answer, err := ledger.Enqueue(t.Context(), pool, ledger.Key{Kind: "coupon.send", BizID: "A-1"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := projector.WaitFor(t.Context(), pool, projector.TasksName, answer.Position); err != nil {
		t.Fatal(err)
	}
	counts, err := projector.ReadCounts(t.Context(), pool, "", lists.All)
	if err != nil || len(counts) != 1 {
		t.Errorf("after the wait: %v, %v", counts, err)
	}
	stop()
	answer, err = ledger.Enqueue(t.Context(), pool, ledger.Key{Kind: "coupon.send", BizID: "A-2"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := projector.WaitFor(ctx, pool, projector.TasksName, answer.Position); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Errorf("without a runner: %v", err)
	}
	if err := projector.WaitFor(t.Context(), pool, projector.TasksName, 1<<40); !errors.Is(err,
		ledger.ErrUnknownPosition) {
		t.Errorf("unknown position: %v", err)
	}
	if err := projector.WaitFor(t.Context(), pool, "none", answer.Position); !errors.Is(err,
		projector.ErrUnknownProjection) {
		t.Errorf("unknown projection: %v", err)
	}
}

func TestInvalidConfig(t *testing.T) {
	t.Parallel()
	bad := projector.Projection{Name: "Public Schema", OnFailure: 7,
		Upcasts: ledger.Upcasts{ledger.Shape{Type: "none"}: nil}}
	_, err := projector.New(projector.Config{PageSize: -1, Projections: []projector.Projection{bad, bad}})
	for _, want := range []string{
		"DB is required", "PageSize must not be negative", "Name must be a letter", "Version must be between",
		"DDL is required", "Apply is required", "OnFailure must be", "Upcasts must have", "different names",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in: %v", want, err)
		}
	}
}

// An outage of the database in Apply is no failure of an event.
func TestOutageParksNothing(t *testing.T) {
	t.Parallel()
	pool := ownPool(t)
	p := coupons()
	p.OnFailure = projector.Park
	outages := 0
	p.Apply = func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
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
	await(t, "the projection is registered", func() bool { return registered(t, pool).Version == 1 })
	awaitApplied(t, pool)
	stop()
	if r := registered(t, pool); r.Parked != 0 || r.Failing != nil || outages != 3 {
		t.Errorf("%d outages: %+v", outages, r)
	}
	if have := campaigns(t, pool); have != "spring 10 10" {
		t.Errorf("campaigns: %s", have)
	}
}
