// Package ledgertest provides databases with a migrated ledger for tests, of taskledger and of its users.
//
//	func TestOrder(t *testing.T) {
//		pool := ledgertest.Pool(t)
//		…
//	}
//
// Each test gets its own database, so tests may run in parallel and need not clean up. By default the databases are in
// a PostgreSQL server that ledgertest starts for the test process, from the binaries installed on the machine. The
// server ends with the process. Its migrated data is prepared once, and kept in the user's cache directory, in
// taskledger/prepared: 50 to 100 MB, which are removed after a week without use.
//
// The login of a test is not the owner of the ledger. It has the roles that `taskledger migrate roles` creates for a
// program that enqueues tasks and works on them ([App]), or the roles that the test names, so a test fails if the
// program lacks a right. Tables of the program are created in the schema public, and all logins may use them. A test
// that needs an owner's rights names [Owner]:
//
//	pool := ledgertest.Pool(t, "producer", "operator")
//	owner := ledgertest.As(t, pool, ledgertest.Owner)
//
// To use a running server, set the environment variable TASKLEDGER_TEST_DATABASE_URL to the address of a
// superuser. The database of a failed test is then kept.
package ledgertest

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/backends"
	"github.com/taskledger/taskledger/internal/pgfetch"
	"github.com/taskledger/taskledger/internal/pgserver"
)

// Variable is the environment variable with the address of a running server, as
// postgres://user:password@host:port/database. The databases of the tests are created next to that database, which is
// not changed.
const Variable = "TASKLEDGER_TEST_DATABASE_URL"

// setupTimeout bounds operations that normally take milliseconds.
const setupTimeout = time.Minute

// releaseTimeout bounds the wait for connections of a pool that are in use after the test.
var releaseTimeout = 5 * time.Second

// maxConns is the number of connections of a [Pool]: enough for a test with many writers, and few enough for
// several such tests at once.
const maxConns = 16

// URL creates a migrated database and returns its address, for a login that has these roles of the ledger and owns the
// database. roles are names of [migrations.Roles], [App], or [Owner] alone. Default: App. Each call creates a new
// database. URL fails the test if there is no server.
func URL(t testing.TB, roles ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	templates, err := sharedTemplates()
	if err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
	d, address, err := templates.open(ctx, roles)
	if err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() && os.Getenv(Variable) != "" {
			t.Logf("ledgertest: the test failed, so its database is kept: %s", address)
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
		defer cancel()
		if err := templates.close(ctx, d, !t.Failed()); err != nil {
			t.Errorf("ledgertest: drop the database: %v", err)
		}
	})
	return address
}

// Pool returns a pool of up to 16 connections to a new database, as a login with these roles, see [URL]. The pool is
// closed after the test. The test fails if one of its connections is not released within 5 s.
func Pool(t testing.TB, roles ...string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(URL(t, roles...))
	if err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
	config.MaxConns = maxConns
	return openPool(t, config, true)
}

// opened contains the pools of openPool whose connections go on in a later test.
var opened sync.Map

// openPool opens a pool. If mayKeep is set and it is one to a database of [URL], its connections go on in a later test.
func openPool(t testing.TB, config *pgxpool.Config, mayKeep bool) *pgxpool.Pool {
	t.Helper()
	var dialer *backends.Dialer
	if mayKeep {
		dialer = dialerFor(config.ConnConfig)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
	if dialer != nil {
		opened.Store(pool, nil)
	}
	t.Cleanup(func() {
		opened.Delete(pool)
		if dialer != nil {
			dialer.Keep() // connections that the test closes itself end
		}
		closePool(t, pool)
	})
	return pool
}

// dialerFor lets connections to a database of [URL] come from its shelf. It returns nil for others.
func dialerFor(config *pgx.ConnConfig) *backends.Dialer {
	templates, err := sharedTemplates()
	if err != nil || serverOf(config) != templates.server.Host || templates.reuse == nil {
		return nil
	}
	shelf := templates.reuse.shelfOf(config.Database)
	if shelf == nil {
		return nil
	}
	dialer := shelf.Dialer()
	config.DialFunc = dialer.Dial
	return dialer
}

// closePool closes the pool, and fails the test if a connection is not released. Without this bound the whole process
// would end in its timeout, without naming the test.
func closePool(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	closed := make(chan struct{})
	go func() {
		pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(releaseTimeout):
		t.Errorf("ledgertest: %d connections of the pool were not released", pool.Stat().AcquiredConns())
	}
}

// Database is the name of the migrated database of a [Cluster].
const Database = "taskledger"

// Cluster starts a PostgreSQL server for one test, with these settings in addition to the defaults. A test needs its
// own server if it would disturb other tests on a shared server: it stops or kills the server, adds a standby, or
// changes a setting such as max_prepared_transactions. The server is closed after the test. Its migrated database is
// at server.URL([Database]), as the owner; [URLAs] returns the address for other logins.
func Cluster(t testing.TB, settings map[string]string) *pgserver.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	server, err := startCluster(ctx, t, settings)
	if err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("ledgertest: %v", err)
		}
	})
	if err := storeOwner(server.URL(Database)); err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
	return server
}

// fetchPostgres returns the function that fetches PostgreSQL where it is not installed; nil: it is refused.
func fetchPostgres() func(context.Context) (string, error) {
	if os.Getenv(pgfetch.RefuseVariable) != "" {
		return nil
	}
	return func(ctx context.Context) (string, error) {
		return pgfetch.Binaries(ctx, pgfetch.Config{
			Begin: func(n pgfetch.Notice) {
				fmt.Fprintf(os.Stderr, "PostgreSQL is not installed: %s; %s=1 refuses\n", n, pgfetch.RefuseVariable)
			},
		})
	}
}

// sharedTemplates returns the templates of this test process.
var sharedTemplates = sync.OnceValues(findServer)

// findServer returns the templates of the server that the environment names. If the environment names no server, it
// starts one, which ends with the process.
func findServer() (*templates, error) {
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	if address := os.Getenv(Variable); address != "" {
		return newTemplates(ctx, address)
	}
	sum, err := templateHash()
	if err != nil {
		return nil, err
	}
	config := pgserver.Config{NoSync: true, Fetch: fetchPostgres(), Settings: map[string]string{
		"max_connections": strconv.Itoa(maxFree*backends.MaxIdle + 200)}}
	server, err := pgserver.StartPrepared(ctx, config, "shared-"+sum,
		func(ctx context.Context, s *pgserver.Server) error {
			t, err := newTemplates(ctx, s.URL("postgres"))
			if err == nil {
				t.admin.Close()
			}
			return err
		})
	if err != nil {
		return nil, fmt.Errorf("%w; to use a running server, set %s", err, Variable)
	}
	templates, err := newTemplates(ctx, server.URL("postgres"))
	if err == nil {
		templates.reuse = newReuse()
	}
	return templates, err
}
