package systemtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/broker"
	"github.com/taskledger/taskledger/internal/natsclient"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A copy of a database has the address and the passwords of the original's NATS server, and its workers do not find it:
// neither in a physical copy, nor in a dump, on another server or beside the original.
func TestCopiesFindNoServer(t *testing.T) {
	t.Parallel()
	pg := ledgertest.Cluster(t, nil)
	connect := func(address string) *pgxpool.Pool {
		t.Helper()
		db, err := pgxpool.New(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(db.Close)
		return db
	}
	original := connect(pg.URL(ledgertest.Database))
	// A long lease: that of a copy is alive.
	server, err := broker.New(broker.Config{DB: original, Dir: t.TempDir(), TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	find := func(db *pgxpool.Pool) error {
		_, err := natsclient.Find(t.Context(), db, natsconfig.Worker)
		return err
	}
	for deadline := time.Now().Add(time.Minute); find(original) != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the original's server is not found: %v", find(original))
		}
	}
	check := func(name string, copied *pgxpool.Pool) {
		t.Helper()
		var hasPassword, isAlive bool
		if err := copied.QueryRow(t.Context(), `
			select exists (select from taskledger.broker_user), b.is_alive and b.address is not null
			  from taskledger.broker b`).Scan(&hasPassword, &isAlive); err != nil || !hasPassword || !isAlive {
			t.Fatalf("%s has the password %t and the lease %t: %v", name, hasPassword, isAlive, err)
		}
		var none *natsclient.NotFoundError
		if err := find(copied); !errors.As(err, &none) {
			t.Errorf("%s: found: %v", name, err)
		}
		if err := find(original); err != nil {
			t.Errorf("beside %s the original does not find its server: %v", name, err)
		}
	}

	tool := func(server *pgserver.Server, input []byte, name string, arguments ...string) []byte {
		return (&recovered{depot: &depot{t: t}}).tool(server, input, name, arguments...)
	}
	dump := tool(pg, nil, "pg_dump", pg.URL(ledgertest.Database))
	tool(pg, nil, "psql", pg.URL("postgres"), "-qc", "create database beside")
	tool(pg, dump, "psql", pg.URL("beside"), "-q", "-v", "ON_ERROR_STOP=1")
	check("a dump beside the original", connect(pg.URL("beside")))

	backup, err := pg.Backup(t.Context())
	if errors.Is(err, pgserver.ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	physical, err := backup.Start(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = physical.Close() })
	check("a physical copy", connect(physical.URL(ledgertest.Database)))
}
