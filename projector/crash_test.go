package projector_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/longtest"
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
	"projector stopped in a page": func(ctx context.Context, db *pgxpool.Pool) error {
		defer projector.SetPageStall(100 * time.Millisecond)()
		fault.Set("projector.applied", sync.OnceFunc(func() {
			continued := make(chan os.Signal, 1)
			signal.Notify(continued, syscall.SIGCONT)
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			<-continued // the call may return before the process has stopped
		}))
		p, err := projector.New(projector.Config{DB: db})
		if err != nil {
			return err
		}
		return p.Run(ctx)
	},
}

func TestMain(m *testing.M) {
	program, ok := programs[os.Getenv(childVariable)]
	if !ok {
		os.Exit(longtest.Run(m))
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

// A projector that is stopped in the transaction of a page does not keep another one from the projection. When it
// continues, it writes nothing of that page.
func TestProjectorStoppedInAPage(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	scribble(t, pool, 1, 2, 40)
	stopped := exec.Command(os.Args[0])
	stopped.Env = append(os.Environ(), childVariable+"=projector stopped in a page",
		"DATABASE_URL="+pool.Config().ConnString())
	stopped.Stderr = os.Stderr
	if err := stopped.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stopped.Process.Kill()
		_ = stopped.Wait()
	})
	for { // until the process has stopped
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(stopped.Process.Pid, &status, syscall.WUNTRACED|syscall.WNOHANG, nil)
		if err != nil || pid != 0 && !status.Stopped() {
			t.Fatalf("the process has not stopped: %v, %v", status, err)
		}
		if pid != 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	project(t, pool)
	check(t, pool)
	if err := stopped.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	scribble(t, pool, 2, 2, 40)
	project(t, pool)
	check(t, pool)
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

// shapeOf returns everything about the tables of the built-in projection that a rebuild must keep.
func shapeOf(tb testing.TB, owner *pgxpool.Pool) (shape string) {
	tb.Helper()
	err := owner.QueryRow(tb.Context(), `
		with t as (
		  select c.* from pg_class c
		   where c.oid in ('taskledger.task'::regclass, 'taskledger.task_count'::regclass,
		                   'taskledger.kind_stats'::regclass, 'taskledger.kind_hour'::regclass,
		                   'taskledger.illegal_event'::regclass)
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
		    from pg_class v
		   where v.relnamespace::regnamespace::text in ('taskledger', 'taskledger_internal') and v.relkind = 'v'
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
		     + (select count(*) from taskledger.cursor where reader like 'rebuild/%')`).Scan(&left)
	if err != nil || left != 0 {
		tb.Errorf("%d schemas and cursors are left, %v", left, err)
	}
}
