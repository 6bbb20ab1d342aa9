// Package ledgertest gives tests a database with the ledger in it: the tests of
// taskledger, and yours.
//
//	func TestOrder(t *testing.T) {
//		pool := ledgertest.Pool(t)
//		…
//	}
//
// Each test gets a database of its own, so tests may run in parallel and leave
// behind what they like. Without any set-up the databases live in a PostgreSQL
// server that is started for the test process from the binaries installed on
// the machine, and that ends with it. To use a running server, give a
// superuser's address in TASKLEDGER_TEST_DATABASE_URL; the database of a failed
// test is then kept.
package ledgertest

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/migrations"
)

// Variable is the environment variable that names a running server, as
// postgres://user:password@host:port/database. That database itself is left as
// it is; those of the tests are made beside it.
const Variable = "TASKLEDGER_TEST_DATABASE_URL"

// patience bounds what normally takes milliseconds.
const patience = time.Minute

// release is how long a connection may take to come back after the test.
var release = 5 * time.Second

// maxConns of a [Pool]: enough for a test's crowd of writers, and few enough
// for several such tests at once.
const maxConns = 16

// URL returns the address of a fresh, migrated database, which is dropped after
// the test. A test that calls it twice has two databases.
func URL(t testing.TB) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	templates, err := shared()
	if err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
	name := "taskledger_test_" + strings.ToLower(rand.Text()[:12])
	if err := templates.clone(ctx, name); err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
	address := templates.url(name)
	t.Cleanup(func() {
		if t.Failed() && os.Getenv(Variable) != "" {
			t.Logf("ledgertest: kept the database %s", address)
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		// By force: a test may have left a connection, of a process it killed
		// for one.
		if err := execute(ctx, templates.url(""), "drop database "+name+" with (force)"); err != nil {
			t.Errorf("ledgertest: drop the database: %v", err)
		}
	})
	return address
}

// Pool returns a pool of up to 16 connections to a database as of [URL], which
// is closed after the test. A connection that the test then still holds is the
// test's failure.
func Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(URL(t))
	if err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
	config.MaxConns = maxConns
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
	t.Cleanup(func() { closePool(t, pool) })
	return pool
}

// closePool closes the pool, but does not wait for ever for a connection that
// nobody gives back: the test would end in the timeout of the whole process,
// and without its own message.
func closePool(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	closed := make(chan struct{})
	go func() {
		pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(release):
		t.Errorf("ledgertest: %d connections of the pool were not released", pool.Stat().AcquiredConns())
	}
}

// Database is the name of the migrated database in a server of [Cluster].
const Database = "taskledger"

// Cluster starts a PostgreSQL server for one test, for what the neighbours of a
// shared one would notice: stopping, killing and restarting it, standbys,
// settings such as max_prepared_transactions. It is closed after the test. Its
// migrated database is at server.URL([Database]).
func Cluster(t testing.TB, settings map[string]string) *pgserver.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	server, err := pgserver.Start(ctx, pgserver.Config{NoSync: true, Settings: settings})
	if err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("ledgertest: %v", err)
		}
	})
	if err := execute(ctx, server.URL("postgres"), "create database "+Database); err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
	if err := migrations.Up(ctx, server.URL(Database)); err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
	return server
}

// shared returns the templates of this test process.
var shared = sync.OnceValues(findServer)

// findServer takes the server of the environment, or starts one, which nobody
// closes: it ends with the process.
func findServer() (*templates, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if address := os.Getenv(Variable); address != "" {
		return newTemplates(ctx, address)
	}
	server, err := pgserver.Start(ctx, pgserver.Config{NoSync: true})
	if err != nil {
		return nil, fmt.Errorf("%w (for tests: %s)", err, Variable)
	}
	return newTemplates(ctx, server.URL("postgres"))
}
