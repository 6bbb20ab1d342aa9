package ledgertest_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/migrations"
)

func TestDatabasesAreMigratedAndSeparate(t *testing.T) {
	const clones = 8
	pools := make([]*pgxpool.Pool, clones)
	var group sync.WaitGroup
	for i := range clones {
		group.Go(func() { pools[i] = ledgertest.Pool(t) })
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for i, pool := range pools {
		if err := migrations.Check(t.Context(), pool.Config().ConnString()); err != nil {
			t.Errorf("database %d: %v", i, err)
		}
		if _, err := pool.Exec(t.Context(), fmt.Sprintf("create table only_in_%d ()", i)); err != nil {
			t.Fatal(err)
		}
	}
	for i, pool := range pools {
		var tables string
		const others = `select string_agg(relname, ' ') from pg_class where relname like 'only\_in\_%'`
		if err := pool.QueryRow(t.Context(), others).Scan(&tables); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("only_in_%d", i); tables != want {
			t.Errorf("database %d has tables %q, want %q", i, tables, want)
		}
	}
}

func TestDatabaseIsDroppedAfterTheTest(t *testing.T) {
	watch := ledgertest.Pool(t)
	var address string
	t.Run("user", func(t *testing.T) {
		address = ledgertest.URL(t)
		// Left open on purpose.
		if _, err := pgx.Connect(t.Context(), address); err != nil {
			t.Fatal(err)
		}
	})
	name := database(t, address)
	var left int
	if err := watch.QueryRow(t.Context(), "select count(*) from pg_database where datname = $1", name).Scan(&left); err != nil {
		t.Fatal(err)
	}
	if left != 0 {
		t.Errorf("%s is still there", name)
	}
}

func TestPoolNamesConnectionsThatAreNotReleased(t *testing.T) {
	ledgertest.SetRelease(t, 50*time.Millisecond)
	recorder := &recorder{TB: t}
	if _, err := ledgertest.Pool(recorder).Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	recorder.cleanup()
	if want := "1 connections of the pool were not released"; !strings.Contains(recorder.said.String(), want) {
		t.Errorf("said %q, want %q", recorder.said.String(), want)
	}
}

func TestClusterIsItsOwnAndCanBeKilled(t *testing.T) {
	server := ledgertest.Cluster(t, map[string]string{"max_prepared_transactions": "10"})
	address := server.URL(ledgertest.Database)
	if err := migrations.Check(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	execute := func(sql string) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	execute("begin; create table kept (); prepare transaction 'left open'")
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	execute("commit prepared 'left open'")
	execute("select from kept")
}

// With an address in the environment, the databases are made on that server,
// and a failed test's database stays there.
func TestDatabaseOfAFailedTestIsKept(t *testing.T) {
	server, err := pgserver.Start(t.Context(), pgserver.Config{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Setenv(ledgertest.Variable, server.URL("postgres"))
	ledgertest.ForgetServer(t)

	var group sync.WaitGroup
	for range 3 { // as three test processes would
		group.Go(func() {
			if err := ledgertest.MakeTemplate(t.Context(), server.URL("postgres")); err != nil {
				t.Errorf("make the template: %v", err)
			}
		})
	}
	group.Wait()

	failing := &recorder{TB: t}
	address := ledgertest.URL(failing)
	failing.Errorf("something was wrong")
	failing.cleanup()
	if err := migrations.Check(t.Context(), address); err != nil {
		t.Errorf("the database of the failed test: %v", err)
	}
	if !strings.Contains(failing.said.String(), address) {
		t.Errorf("said %q, want the address", failing.said.String())
	}
}

func TestAddressMustBeAURL(t *testing.T) {
	err := ledgertest.MakeTemplate(t.Context(), "host=localhost dbname=postgres")
	if err == nil || !strings.Contains(err.Error(), "postgres://") {
		t.Errorf("got %v, want the form of an address", err)
	}
}

func BenchmarkURL(b *testing.B) {
	for b.Loop() {
		recorder := &recorder{TB: b}
		ledgertest.URL(recorder)
		recorder.cleanup()
	}
}

// recorder is a test within a test, whose failure and end the outer one sees.
type recorder struct {
	testing.TB
	said     strings.Builder
	failed   bool
	cleanups []func()
}

func (r *recorder) Logf(format string, a ...any) { fmt.Fprintf(&r.said, format+"\n", a...) }
func (r *recorder) Errorf(format string, a ...any) {
	r.failed = true
	r.Logf(format, a...)
}
func (r *recorder) Failed() bool     { return r.failed }
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) cleanup() {
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
}

// database returns the name of the database at an address.
func database(t *testing.T, address string) string {
	t.Helper()
	config, err := pgx.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	return config.Database
}
