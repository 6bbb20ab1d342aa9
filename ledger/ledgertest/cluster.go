package ledgertest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/migrations"
)

// clusterTemplate returns a stopped server with the database of a [Cluster]. Its files go with this process. A copy
// takes a tenth of the CPU time of initdb and the migrations.
var clusterTemplate = sync.OnceValues(func() (*pgserver.Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	server, err := newCluster(ctx, nil)
	if err != nil {
		return nil, err
	}
	return server, server.Stop(ctx)
})

// copiedFor has the running tests that have a copy of the template.
var copiedFor sync.Map

// startCluster starts a server for t. The first one of a test is a copy. Others are not, because copies have one
// system identifier, and tests that restore a ledger elsewhere depend on it.
func startCluster(ctx context.Context, t testing.TB, settings map[string]string) (*pgserver.Server, error) {
	if _, has := copiedFor.LoadOrStore(t, nil); has {
		return newCluster(ctx, settings)
	}
	t.Cleanup(func() { copiedFor.Delete(t) })
	template, err := clusterTemplate()
	if err != nil {
		return nil, err
	}
	return template.Copy(ctx, settings)
}

// newCluster starts a server with initdb and migrates its database.
func newCluster(ctx context.Context, settings map[string]string) (_ *pgserver.Server, err error) {
	server, err := pgserver.Start(ctx, pgserver.Config{NoSync: true, Settings: settings, Fetch: fetchPostgres()})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, server.Close())
		}
	}()
	if err := execute(ctx, server.URL("postgres"), "create database "+Database); err != nil {
		return nil, err
	}
	if err := migrations.Up(ctx, server.URL(Database)); err != nil {
		return nil, err
	}
	return server, makeLogins(ctx, server.URL(Database))
}
