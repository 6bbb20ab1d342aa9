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
	const databases = 8
	pools := make([]*pgxpool.Pool, databases)
	var group sync.WaitGroup
	for i := range databases {
		group.Go(func() { pools[i] = ledgertest.Pool(t) })
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for i, pool := range pools {
		address := ledgertest.URLAs(t, pool.Config().ConnString(), ledgertest.Owner)
		if err := migrations.Check(t.Context(), address); err != nil {
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
	other := ledgertest.Pool(t)
	var address string
	var conn *pgx.Conn
	t.Run("user", func(t *testing.T) {
		address = ledgertest.URL(t)
		var err error
		if conn, err = pgx.Connect(t.Context(), address); err != nil {
			t.Fatal(err)
		}
	})
	// It is open until here: without a reference to it, the garbage collector may have closed its socket, and the
	// database could have been kept for another test.
	defer conn.Close(context.Background())
	name := database(t, address)
	var exists bool
	const sql = "select exists (select from pg_database where datname = $1)"
	if err := other.QueryRow(t.Context(), sql, name).Scan(&exists); err != nil {
		t.Fatal(err)
	}
	if exists {
		t.Errorf("database %s was not dropped", name)
	}
}

func TestPoolReportsConnectionsThatAreNotReleased(t *testing.T) {
	ledgertest.SetReleaseTimeout(t, 50*time.Millisecond)
	recorder := &recorder{TB: t}
	if _, err := ledgertest.Pool(recorder).Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	recorder.cleanup()
	if want := "1 connections of the pool were not released"; !strings.Contains(recorder.log.String(), want) {
		t.Errorf("logged %q, want %q", recorder.log.String(), want)
	}
}

func TestClusterHasItsSettingsAndCanBeKilled(t *testing.T) {
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
	execute("begin; create table durable (); prepare transaction 'durable'")
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	execute("commit prepared 'durable'")
	execute("select from durable")
}

// With an address in the environment, the databases are created on that server, and the database of a failed
// test is not dropped.
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
	for range 3 { // stands for three test processes
		group.Go(func() {
			if err := ledgertest.MakeTemplate(t.Context(), server.URL("postgres")); err != nil {
				t.Errorf("create the template: %v", err)
			}
		})
	}
	group.Wait()

	failing := &recorder{TB: t}
	address := ledgertest.URL(failing)
	failing.Errorf("the test failed")
	failing.cleanup()
	if err := migrations.Check(t.Context(), ledgertest.URLAs(t, address, ledgertest.Owner)); err != nil {
		t.Errorf("the database of the failed test: %v", err)
	}
	if !strings.Contains(failing.log.String(), address) {
		t.Errorf("logged %q, want the address", failing.log.String())
	}
}

func TestAddressMustBeAURL(t *testing.T) {
	err := ledgertest.MakeTemplate(t.Context(), "host=localhost dbname=postgres")
	if err == nil || !strings.Contains(err.Error(), "postgres://") {
		t.Errorf("got %v, want an error with the form of an address", err)
	}
}

func BenchmarkURL(b *testing.B) {
	for b.Loop() {
		recorder := &recorder{TB: b}
		ledgertest.URL(recorder)
		recorder.cleanup()
	}
}

// recorder is a testing.TB that records its log and its failure, and runs its cleanups when the test asks for it.
type recorder struct {
	testing.TB
	log      strings.Builder
	isFailed bool
	cleanups []func()
}

func (r *recorder) Logf(format string, a ...any) { fmt.Fprintf(&r.log, format+"\n", a...) }
func (r *recorder) Errorf(format string, a ...any) {
	r.isFailed = true
	r.Logf(format, a...)
}
func (r *recorder) Failed() bool     { return r.isFailed }
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
