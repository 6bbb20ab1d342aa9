package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/rebuild"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// couponsV2 counts each coupon twice.
func couponsV2() outbox.Subscription {
	p := coupons()
	p.Tables.Version = 2
	p.Tables.DDL += "; alter table campaign add column note text"
	apply := p.Handle
	p.Handle = func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
		if err := apply(ctx, tx, events); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `update campaign set note = 'v2'`)
		return err
	}
	return p
}

// A new version is built beside the old one, which serves readers meanwhile. Views and rights are kept, and no reader
// finds an empty table.
func TestNewVersionReplacesTheOld(t *testing.T) {
	t.Parallel()
	pool := tablesPool(t)
	enqueueCoupons(t, pool, "spring", 0, 300)
	var log logText
	old := quick(pool, coupons())
	old[0].Logger = log.logger()
	stopOld := start(t, old)
	defer stopOld()
	await(t, "the subscriber is registered", func() bool { return registered(t, pool).Version == 1 })
	awaitApplied(t, pool)
	reader := ledgertest.As(t, pool, "reader")
	if _, err := pool.Exec(t.Context(), `grant usage on schema coupons to public; grant select (name, sent)
		on coupons.campaign to taskledger_test_reader; create view public.sent with (security_barrier) as
		select name, sent from coupons.campaign; grant select on public.sent to taskledger_test_reader`); err != nil {
		t.Fatal(err)
	}
	least := func() (direct, view int) {
		t.Helper()
		err := reader.QueryRow(t.Context(), `select (select coalesce(sum(sent), 0) from coupons.campaign),
			(select coalesce(sum(sent), 0) from public.sent)`).Scan(&direct, &view)
		if err != nil {
			t.Error(err)
		}
		return direct, view
	}
	stop := start(t, quick(pool, couponsV2()))
	defer stop()
	await(t, "the new version is in use", func() bool {
		if direct, view := least(); direct < 300 || view < 300 {
			t.Errorf("a reader found %d and %d coupons", direct, view)
		}
		return registered(t, pool).Version == 2
	})
	enqueueCoupons(t, pool, "spring", 1000, 50)
	awaitApplied(t, pool)
	if direct, view := least(); direct != 350 || view != 350 {
		t.Errorf("readers find %d and %d coupons", direct, view)
	}
	await(t, "the old program reports the new version", func() bool {
		return strings.Contains(log.all(), "the tables have version 2, the program has version 1")
	})
	stop()
	verifyCoupons(t, pool, couponsV2())
	var version *outbox.VersionError
	if err := outbox.RebuildTables(t.Context(), on(pool, coupons()), nil); !errors.As(err, &version) {
		t.Errorf("rebuild of the old version: %v", err)
	}
	if _, err := outbox.VerifyTables(t.Context(), on(pool, coupons()), nil); !errors.As(err, &version) {
		t.Errorf("verification by the old version: %v", err)
	}
}

// An object that depends on the old tables and cannot be kept stops the replacement, with its name.
func TestDependentsStopTheSwap(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ dependent, name string }{
		{"create table public.mine (name text references coupons.campaign)", "mine"},
		{"create view public.mine as select sent from coupons.campaign", "mine"},
	} {
		pool := tablesPool(t)
		registerCoupons(1)(t, pool)
		ledgertest.ExecAsOwner(t, pool, test.dependent)
		p := couponsV2()
		p.Tables.DDL = strings.Replace(coupons().Tables.DDL, "sent bigint not null", "shipped bigint not null", 1)
		p.Handle = func(context.Context, pgx.Tx, []ledger.Event) error { return nil }
		var tables *outbox.TablesError
		err := outbox.RebuildTables(t.Context(), on(pool, p), nil)
		if !errors.As(err, &tables) || !strings.Contains(err.Error(), test.name) {
			t.Errorf("%s: %v", test.dependent, err)
		}
		if have := registered(t, pool).Version; have != 1 {
			t.Errorf("version %d is in use", have)
		}
	}
}

// A long read of a table delays the replacement, and other readers do not wait behind it for long.
func TestSwapWaitsForReaders(t *testing.T) {
	t.Parallel()
	pool := tablesPool(t)
	registerCoupons(1)(t, pool)
	enqueueCoupons(t, pool, "spring", 0, 5)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `select count(*) from coupons.campaign`); err != nil {
		t.Fatal(err)
	}
	var log logText
	done := make(chan error, 1)
	go func() {
		done <- outbox.RebuildTables(t.Context(), on(pool, coupons()), &rebuild.Options{Logger: log.logger()})
	}()
	await(t, "the rebuild waits", func() bool { return strings.Contains(log.all(), "the tables are in use") })
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if have := campaigns(t, pool); have != "spring 5 5" {
		t.Errorf("campaigns: %s", have)
	}
}

// An operator asks a running program for a rebuild and a verification.
func TestOperatorAsks(t *testing.T) {
	t.Parallel()
	pool := tablesPool(t)
	stop := start(t, quick(pool, coupons()))
	defer stop()
	enqueueCoupons(t, pool, "spring", 0, 100)
	await(t, "the subscriber is registered", func() bool { return registered(t, pool).Version == 1 })
	awaitApplied(t, pool)
	ask := func(work string) json.RawMessage {
		t.Helper()
		err := subscribers.RequestVerify(t.Context(), pool, "coupons")
		if work == rebuild.WorkRebuild {
			err = subscribers.RequestRebuild(t.Context(), pool, "coupons", "alice", "")
		}
		if err != nil {
			t.Fatal(err)
		}
		await(t, work, func() bool {
			r := registered(t, pool)
			return r.Wanted == "" && r.Work != nil && r.Work.Name == work && r.Work.Result != nil
		})
		return registered(t, pool).Work.Result
	}
	different := func() (report rebuild.Report) {
		t.Helper()
		if err := json.Unmarshal(ask(rebuild.WorkVerify), &report); err != nil {
			t.Fatal(err)
		}
		return report
	}
	if r := different(); r.Different != 0 || r.Rows != 101 || r.Events != 200 {
		t.Errorf("before the damage: %+v", r)
	}
	ledgertest.ExecAsOwner(t, pool, `update coupons.campaign set sent = 7;
		delete from coupons.coupon where id = 'order-5';
		insert into coupons.coupon values ('order-5000', 'spring', 1)`)
	r := different()
	want := []rebuild.Difference{
		{Subject: `campaign ["spring"]`, Table: `{"name":"spring","enqueued":100,"sent":7}`,
			Events: `{"name":"spring","enqueued":100,"sent":100}`},
		{Subject: `coupon ["order-5"]`, Events: `{"id":"order-5","campaign":"spring","last":2}`},
		{Subject: `coupon ["order-5000"]`, Table: `{"id":"order-5000","campaign":"spring","last":1}`},
	}
	if len(r.Differences) != 3 || r.Differences[0] != want[0] || r.Differences[1] != want[1] ||
		r.Differences[2] != want[2] {
		t.Errorf("differences:\n%+v", r.Differences)
	}
	ledgertest.ExecAsOwner(t, pool, `drop table coupons.coupon`)
	ask(rebuild.WorkRebuild)
	awaitApplied(t, pool)
	if r := different(); r.Different != 0 {
		t.Errorf("after the rebuild: %+v", r)
	}
	stop()
	checkNothingLeft(t, pool)
}

// Of two rebuilds at a time, one works.
func TestTwoRebuilds(t *testing.T) {
	t.Parallel()
	pool := tablesPool(t)
	registerCoupons(1)(t, pool)
	enqueueCoupons(t, pool, "spring", 0, 200)
	results := make(chan error)
	for range 2 {
		go func() {
			results <- outbox.RebuildTables(t.Context(), on(pool, coupons()), &rebuild.Options{PageSize: 7})
		}()
	}
	done := 0
	for range 2 {
		err := <-results
		if err == nil {
			done++
		}
		t.Log(err)
	}
	if done == 0 {
		if err := outbox.RebuildTables(t.Context(), on(pool, coupons()), nil); err != nil {
			t.Error(err)
		}
	}
	verifyCoupons(t, pool, coupons())
	if have := campaigns(t, pool); have != "spring 200 200" {
		t.Errorf("campaigns: %s", have)
	}
}

// An upcast brings old data to the shape of today; one that panics is an event that fails.
func TestSubscriberUpcasts(t *testing.T) {
	t.Parallel()
	pool := tablesPool(t)
	p := coupons()
	old := ledger.Shape{Kind: "coupon.send", Type: ledger.EventEnqueued, Version: 1}
	p.Upcasts = ledger.Upcasts{old: func(e ledger.Event) (json.RawMessage, error) {
		if e.BizID == "order-9" {
			panic("unknown shape")
		}
		return json.RawMessage(`{"campaign":"upcast"}`), nil
	}}
	enqueueCoupons(t, pool, "spring", 0, 9)
	stop := start(t, quick(pool, p))
	defer stop()
	await(t, "the subscriber is registered", func() bool { return registered(t, pool).Version == 1 })
	awaitApplied(t, pool)
	if have := campaigns(t, pool); have != "upcast 9 9" {
		t.Errorf("campaigns: %s", have)
	}
	enqueueCoupons(t, pool, "spring", 9, 1)
	await(t, "the panic is reported", func() bool {
		f := registered(t, pool).Failing
		return f != nil && strings.Contains(f.Error, "data version 1 cannot be upcast: panic: unknown shape")
	})
}

// After a rebase the tables are built anew from the first event on.
func TestRebaseBuildsAnew(t *testing.T) {
	t.Parallel()
	pool := tablesPool(t)
	registerCoupons(1)(t, pool)
	stop := start(t, quick(pool, coupons()))
	enqueueCoupons(t, pool, "spring", 0, 40)
	awaitApplied(t, pool)
	stop()
	owner := ledgertest.As(t, pool, ledgertest.Owner)
	err := pgx.BeginFunc(t.Context(), owner, func(tx pgx.Tx) error {
		if err := feed.Forget(t.Context(), tx, "subscriber/coupons"); err != nil {
			return err
		}
		return rebuild.InvalidateAll(t.Context(), tx)
	})
	if err != nil {
		t.Fatal(err)
	}
	stop = start(t, quick(pool, coupons()))
	defer stop()
	await(t, "the tables are built", func() bool { return registered(t, pool).Version == 1 })
	awaitApplied(t, pool)
	stop()
	if have := campaigns(t, pool); have != "spring 40 40" {
		t.Errorf("campaigns: %s", have)
	}
	verifyCoupons(t, pool, coupons())
}

// The event that a reader has waited for stays applied when the tables are replaced.
func TestSwapTakesNothingBack(t *testing.T) {
	pool := tablesPool(t)
	enqueueCoupons(t, pool, "spring", 0, 20)
	stop := start(t, quick(pool, coupons()))
	defer stop()
	await(t, "the subscriber is registered", func() bool { return registered(t, pool).Version == 1 })
	awaitApplied(t, pool)
	var last ledger.Position
	var wasApplied bool
	defer fault.Set(fault.SwapHeld, func() {
		enqueueCoupons(t, pool, "summer", 100, 1)
		if err := pool.QueryRow(t.Context(), `select max(position) from taskledger.event`).Scan(&last); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		wasApplied = outbox.WaitFor(ctx, pool, "coupons", last) == nil
	})()
	defer fault.Set(fault.SwapDone, func() {
		if have := campaigns(t, pool); wasApplied && have != "spring 20 20, summer 1 1" {
			t.Errorf("after the event was applied: %s", have)
		}
	})()
	if err := outbox.RebuildTables(t.Context(), on(pool, coupons()), nil); err != nil {
		t.Fatal(err)
	}
	if last == 0 {
		t.Error("nothing was enqueued before the swap")
	}
	awaitApplied(t, pool)
	stop()
	if have := campaigns(t, pool); have != "spring 20 20, summer 1 1" {
		t.Errorf("campaigns: %s", have)
	}
}

// Tables that are added to a subscriber at work contain the events that it has passed.
func TestTablesOfASubscriberAtWork(t *testing.T) {
	t.Parallel()
	pool := tablesPool(t)
	enqueueCoupons(t, pool, "spring", 0, 30)
	plain := outbox.Subscription{
		Name: "coupons", Handle: func(context.Context, pgx.Tx, []ledger.Event) error { return nil },
	}
	stop := start(t, quick(pool, plain))
	await(t, "the subscriber exists", func() bool {
		_, err := subscribers.Read(t.Context(), pool, "coupons")
		return err == nil
	})
	awaitPassed(t, pool)
	stop()
	stop = start(t, quick(pool, coupons()))
	defer stop()
	await(t, "the tables are built", func() bool { return registered(t, pool).Version == 1 })
	awaitApplied(t, pool)
	stop()
	if have := campaigns(t, pool); have != "spring 30 30" {
		t.Errorf("campaigns: %s", have)
	}
}

// A subscriber with tables is not moved. Once it is removed, its tables are not taken for those of a new one.
func TestTablesAreNotMoved(t *testing.T) {
	t.Parallel()
	pool := tablesPool(t)
	registerCoupons(1)(t, pool)
	enqueueCoupons(t, pool, "spring", 0, 5)
	err := subscribers.Seek(t.Context(), pool, "coupons", feed.Now(), "", "")
	if err == nil || !strings.Contains(err.Error(), "has tables, which a move would make wrong") {
		t.Errorf("seek: %v", err)
	}
	if err := subscribers.Remove(t.Context(), pool, "coupons", "", ""); err != nil {
		t.Fatal(err)
	}
	if s := registered(t, pool); s.Name != "" {
		t.Errorf("after the removal: %+v", s)
	}
	all := quick(pool, coupons())
	var log logText
	all[0].Logger = log.logger()
	defer start(t, all)()
	await(t, "the old tables are reported", func() bool {
		return strings.Contains(log.all(), "drop or rename the schema")
	})
}
