package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/rebuild"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

// childVariable is the environment variable that makes the test binary one of the programs below.
const childVariable = "OUTBOX_TEST_TABLES"

// tablePrograms are programs of a subscriber with tables.
var tablePrograms = map[string]func(context.Context, *pgxpool.Pool) error{
	"rebuild coupons": func(ctx context.Context, db *pgxpool.Pool) error {
		return outbox.RebuildTables(ctx, on(db, coupons()), &rebuild.Options{PageSize: 20})
	},
	"verify coupons": func(ctx context.Context, db *pgxpool.Pool) error {
		_, err := outbox.VerifyTables(ctx, on(db, coupons()), &rebuild.Options{PageSize: 20})
		return err
	},
	"run coupons": func(ctx context.Context, db *pgxpool.Pool) error {
		return outbox.Subscribe(ctx, quick(db, coupons())[0])
	},
}

// tableProcess runs a program of a subscriber with tables.
func tableProcess() error {
	db, err := pgxpool.New(context.Background(), os.Getenv("DATABASE_URL"))
	if err == nil {
		err = tablePrograms[os.Getenv(childVariable)](context.Background(), db)
	}
	return fmt.Errorf("child ended: %w", err)
}

// runUntilKilled runs a program in a process of its own until a crash point kills it.
func runUntilKilled(t *testing.T, program, address, point string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(),
		childVariable+"="+program, "DATABASE_URL="+address, fault.Variable+"="+point)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer late.Stop()
	_ = cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the child was not killed at %s: %v", point, cmd.ProcessState)
	}
}

var buildPoints = []string{
	fault.BuildMade, fault.BuildBatch, fault.BuildBatch + ":3", fault.SwapHeld,
	fault.SwapMoved, fault.SwapDone,
}

// A rebuild that is killed has replaced nothing or everything, and the next call finishes it.
func TestRebuildOfTablesKilled(t *testing.T) {
	t.Parallel()
	for _, point := range buildPoints {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			pool := tablesPool(t)
			registerCoupons(1)(t, pool)
			enqueueCoupons(t, pool, "spring", 0, 60)
			before := campaigns(t, pool)
			runUntilKilled(t, "rebuild coupons", pool.Config().ConnString(), point)
			have := campaigns(t, pool)
			want := before
			if point == fault.SwapDone {
				want = "spring 60 60"
			}
			if have != want {
				t.Errorf("campaigns after the kill: %s, want %s", have, want)
			}
			enqueueCoupons(t, pool, "spring", 100, 20)
			counted, applied := coupons(), 0
			counted.Handle = func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
				applied += len(events)
				return applyCoupons(ctx, tx, events)
			}
			if err := outbox.RebuildTables(t.Context(), on(pool, counted), nil); err != nil {
				t.Fatal(err)
			}
			if point == fault.BuildBatch+":3" && applied != 160-3*20 {
				t.Errorf("%d events were applied after three pages of 20 were", applied)
			}
			if have := campaigns(t, pool); have != "spring 80 80" {
				t.Errorf("campaigns after the rebuild: %s", have)
			}
			verifyCoupons(t, pool, coupons())
			checkNothingLeft(t, pool)
		})
	}
}

// A verification that is killed holds up no other, which removes what it has left.
func TestVerificationOfTablesKilled(t *testing.T) {
	t.Parallel()
	pool := tablesPool(t)
	registerCoupons(1)(t, pool)
	enqueueCoupons(t, pool, "spring", 0, 60)
	stop := start(t, quick(pool, coupons()))
	awaitApplied(t, pool)
	stop()
	for _, point := range []string{"subscriber.handled", "subscriber.handled:3"} {
		runUntilKilled(t, "verify coupons", pool.Config().ConnString(), point)
	}
	await(t, "the connections of the process have ended", func() bool {
		_, err := outbox.VerifyTables(t.Context(), on(pool, coupons()), nil)
		return !errors.Is(err, feed.ErrSuperseded)
	})
	verifyCoupons(t, pool, coupons())
	checkNothingLeft(t, pool)
}

// A process that is killed in a page has applied all of it or nothing.
func TestSubscriberWithTablesKilled(t *testing.T) {
	t.Parallel()
	pool := tablesPool(t)
	enqueueCoupons(t, pool, "spring", 0, 60)
	for _, point := range []string{"subscriber.handled", "subscriber.handled:3"} {
		runUntilKilled(t, "run coupons", pool.Config().ConnString(), point)
	}
	stop := start(t, quick(pool, coupons()))
	await(t, "the subscriber is registered", func() bool { return registered(t, pool).Version == 1 })
	awaitApplied(t, pool)
	stop()
	if have := campaigns(t, pool); have != "spring 60 60" {
		t.Errorf("campaigns: %s", have)
	}
	verifyCoupons(t, pool, coupons())
}

// checkNothingLeft fails the test if a rebuild has left something behind.
func checkNothingLeft(tb testing.TB, pool *pgxpool.Pool) {
	tb.Helper()
	var left int
	err := pool.QueryRow(tb.Context(), `
		select (select count(*) from pg_namespace where nspname like 'taskledger\_build\_%')
		     + (select count(*) from taskledger.cursor where not starts_with(reader, 'subscriber/'))
		     + (select count(*) from taskledger.subscriber_parked
		         where not starts_with(reader, 'subscriber/'))`).Scan(&left)
	if err != nil || left != 0 {
		tb.Errorf("%d schemas, cursors and parked events are left, %v", left, err)
	}
}
