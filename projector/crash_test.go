package projector_test

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
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// childVariable is the environment variable that makes the test binary one of the programs below.
const childVariable = "TASKLEDGER_PROJECTOR_TEST_CHILD"

var programs = map[string]func(context.Context, *pgxpool.Pool) error{
	"rebuild tasks": func(ctx context.Context, db *pgxpool.Pool) error {
		defer projector.SetLoadBatch(30)()
		return projector.RebuildTasks(ctx, db, nil)
	},
	"rebuild tasks by alice": func(ctx context.Context, db *pgxpool.Pool) error {
		defer projector.SetLoadBatch(30)()
		return projector.RebuildTasksAs(ctx, db, alice, nil)
	},
	"rebuild coupons": func(ctx context.Context, db *pgxpool.Pool) error {
		return projector.Rebuild(ctx, db, coupons(), &projector.RebuildOptions{PageSize: 20})
	},
	"verify coupons": func(ctx context.Context, db *pgxpool.Pool) error {
		_, err := projector.VerifyProjection(ctx, db, coupons(), &projector.RebuildOptions{PageSize: 20})
		return err
	},
	"run coupons": func(ctx context.Context, db *pgxpool.Pool) error {
		r, err := projector.New(quick(db, coupons()))
		if err != nil {
			return err
		}
		return r.Run(ctx)
	},
}

func TestMain(m *testing.M) {
	program, ok := programs[os.Getenv(childVariable)]
	if !ok {
		os.Exit(m.Run())
	}
	db, err := pgxpool.New(context.Background(), os.Getenv("DATABASE_URL"))
	if err == nil {
		err = program(context.Background(), db)
	}
	fmt.Fprintln(os.Stderr, "child ended:", err)
	os.Exit(1)
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
func TestRebuildOfTasksKilled(t *testing.T) {
	t.Parallel()
	for i, point := range append(buildPoints, fault.BuildIndex) {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
			owner := ledgertest.As(t, pool, ledgertest.Owner)
			scribble(t, pool, uint64(i), 2, 80)
			project(t, pool)
			scribble(t, pool, uint64(100+i), 2, 20)
			before := shapeOf(t, owner)
			runUntilKilled(t, "rebuild tasks", ledgertest.URLAs(t, pool.Config().ConnString(), ledgertest.Owner), point)
			if have := shapeOf(t, owner); have != before {
				t.Errorf("tables after the kill:\n%s\nwant\n%s", have, before)
			}
			project(t, pool)
			check(t, pool)
			scribble(t, pool, uint64(200+i), 2, 20)
			if err := projector.RebuildTasks(t.Context(), owner, nil); err != nil {
				t.Fatal(err)
			}
			if have := shapeOf(t, owner); have != before {
				t.Errorf("tables after the rebuild:\n%s\nwant\n%s", have, before)
			}
			project(t, pool)
			check(t, pool)
			checkNothingLeft(t, owner)
		})
	}
}

func TestRebuildOfCouponsKilled(t *testing.T) {
	t.Parallel()
	for _, point := range buildPoints {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			pool := ownPool(t)
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
			counted.Apply = func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
				applied += len(events)
				return applyCoupons(ctx, tx, events)
			}
			if err := projector.Rebuild(t.Context(), pool, counted, nil); err != nil {
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
func TestVerificationKilled(t *testing.T) {
	t.Parallel()
	pool := ownPool(t)
	registerCoupons(1)(t, pool)
	enqueueCoupons(t, pool, "spring", 0, 60)
	stop := start(t, quick(pool, coupons()))
	awaitApplied(t, pool)
	stop()
	for _, point := range []string{"projector.applied", "projector.applied:3"} {
		runUntilKilled(t, "verify coupons", pool.Config().ConnString(), point)
	}
	await(t, "the connections of the process have ended", func() bool {
		_, err := projector.VerifyProjection(t.Context(), pool, coupons(), nil)
		return !errors.Is(err, feed.ErrSuperseded)
	})
	verifyCoupons(t, pool, coupons())
	checkNothingLeft(t, pool)
}

// A runner that is killed in a page has applied all of it or nothing.
func TestRunnerKilled(t *testing.T) {
	t.Parallel()
	pool := ownPool(t)
	enqueueCoupons(t, pool, "spring", 0, 60)
	for _, point := range []string{"projector.applied", "projector.applied:3"} {
		runUntilKilled(t, "run coupons", pool.Config().ConnString(), point)
	}
	stop := start(t, quick(pool, coupons()))
	await(t, "the projection is registered", func() bool { return registered(t, pool).Version == 1 })
	awaitApplied(t, pool)
	stop()
	if have := campaigns(t, pool); have != "spring 60 60" {
		t.Errorf("campaigns: %s", have)
	}
	verifyCoupons(t, pool, coupons())
}

// shapeOf returns everything about the tables of the built-in projection that a rebuild must keep.
func shapeOf(tb testing.TB, owner *pgxpool.Pool) (shape string) {
	tb.Helper()
	err := owner.QueryRow(tb.Context(), `
		with t as (
		  select c.* from pg_class c
		   where c.oid in ('taskledger.task'::regclass, 'taskledger.task_count'::regclass,
		                   'taskledger.kind_stats'::regclass, 'taskledger.illegal_event'::regclass)
		)
		select string_agg(line, e'\n' order by line) from (
		  select t.relname || ' ' || coalesce(t.reloptions::text, '') || ' owner ' || t.relowner::regrole
		         || ' persistence ' || t.relpersistence::text || ' '
		         || coalesce(obj_description(t.oid, 'pg_class'), '') as line
		    from t
		   union all
		  select t.relname || ' ' || a.grantee::regrole || ' ' || a.privilege_type || ' ' || a.is_grantable
		    from t, aclexplode(t.relacl) a
		   union all
		  select t.relname || '.' || c.attname || ' ' || format_type(c.atttypid, c.atttypmod) || ' ' || c.attnotnull
		         || ' ' || c.attcollation::regcollation || ' ' || coalesce(pg_get_expr(d.adbin, d.adrelid), '')
		         || coalesce((select string_agg(a.grantee::regrole || ' ' || a.privilege_type, ', ' order by 1)
		                        from aclexplode(c.attacl) a), '')
		    from t join pg_attribute c on c.attrelid = t.oid and c.attnum > 0
		    left join pg_attrdef d on d.adrelid = t.oid and d.adnum = c.attnum
		   union all
		  select pg_get_indexdef(i.indexrelid) || coalesce(' ' || k.conname, '')
		    from t join pg_index i on i.indrelid = t.oid left join pg_constraint k on k.conindid = i.indexrelid
		   union all
		  select v.relname || ' ' || v.relowner::regrole || ' ' || coalesce(v.reloptions::text, '') || ' '
		         || coalesce(v.relacl::text, '') || pg_get_viewdef(v.oid)
		    from pg_class v where v.relnamespace = 'taskledger'::regnamespace and v.relkind = 'v'
		   union all
		  select p.proname || ' ' || p.proowner::regrole || ' ' || coalesce(p.proacl::text, '')
		         || pg_get_functiondef(p.oid)
		    from pg_proc p
		   where p.pronamespace::regnamespace::text in ('taskledger', 'taskledger_internal')) s`).Scan(&shape)
	if err != nil {
		tb.Fatal(err)
	}
	return shape
}

// checkNothingLeft fails the test if a rebuild has left something behind.
func checkNothingLeft(tb testing.TB, pool *pgxpool.Pool) {
	tb.Helper()
	var left int
	err := pool.QueryRow(tb.Context(), `
		select (select count(*) from pg_namespace where nspname like 'taskledger\_build\_%')
		     + (select count(*) from taskledger.cursor where reader like '%+%')
		     + (select count(*) from taskledger.projection_parked where projection like '%+%')`).Scan(&left)
	if err != nil || left != 0 {
		tb.Errorf("%d schemas, cursors and parked events are left, %v", left, err)
	}
}
