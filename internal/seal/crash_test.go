package seal_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A checkpoint outlives a crash of PostgreSQL right after it was returned, although commits of the sealer's login,
// like producers' commits, do not wait for the disk.
func TestCheckpointOutlivesACrash(t *testing.T) {
	server := ledgertest.Cluster(t, map[string]string{"autovacuum": "off", "wal_writer_delay": "10s",
		"synchronous_commit": "off"})
	connect := func(roles ...string) *pgxpool.Pool {
		pool, err := pgxpool.New(t.Context(), ledgertest.URLAs(t, server.URL(ledgertest.Database), roles...))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		return pool
	}
	f := &fixture{t: t, app: connect(ledgertest.App), archiver: connect("archiver"), reader: connect("reader"),
		forger: connect(ledgertest.Owner)}
	f.finish(1, 3)
	kept := f.seal().Checkpoint
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, pool := range []*pgxpool.Pool{f.app, f.archiver, f.reader, f.forger} {
		pool.Reset()
	}
	f.expect([]seal.Checkpoint{kept})
	f.finish(4, 4)
	if next := f.seal(); next.Checkpoint.Size != 12 {
		t.Errorf("%d events are sealed after the crash, want 12", next.Checkpoint.Size)
	}
	f.expect([]seal.Checkpoint{kept})
}
