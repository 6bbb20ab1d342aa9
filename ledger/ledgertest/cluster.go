package ledgertest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/migrations"
)

// copiedFor contains the running tests that use a copy of the prepared server.
var copiedFor sync.Map

// startCluster starts a server for t. A test's first server is a copy. Others are not, because copies share one system
// identifier, and tests that restore a ledger elsewhere depend on it.
func startCluster(ctx context.Context, t testing.TB, settings map[string]string) (*pgserver.Server, error) {
	config := pgserver.Config{NoSync: true, Settings: settings, Fetch: fetchPostgres()}
	if _, has := copiedFor.LoadOrStore(t, nil); !has {
		t.Cleanup(func() { copiedFor.Delete(t) })
		sum, err := templateHash()
		if err != nil {
			return nil, err
		}
		return pgserver.StartPrepared(ctx, config, "cluster-"+sum, migrateCluster)
	}
	server, err := pgserver.Start(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := migrateCluster(ctx, server); err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return server, nil
}

// migrateCluster makes the database of a [Cluster].
func migrateCluster(ctx context.Context, server *pgserver.Server) error {
	if err := execute(ctx, server.URL("postgres"), "create database "+Database); err != nil {
		return err
	}
	if err := migrations.Up(ctx, server.URL(Database)); err != nil {
		return err
	}
	return makeLogins(ctx, server.URL(Database))
}
