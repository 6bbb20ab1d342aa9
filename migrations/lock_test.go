package migrations_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pressly/goose/v3/lock"

	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/migrations"
)

// A login that may only connect cannot stop migrations or the making of roles by advisory locks.
func TestStrangersLocksStopNoMigration(t *testing.T) {
	t.Parallel()
	address := emptyDatabase(t, "UTF8")
	pool, err := pgxpool.New(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	stranger, err := ledgertest.As(t, pool, "reader").Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stranger.Conn().Close(context.WithoutCancel(t.Context())) // the locks end with the connection
		stranger.Release()
	})
	const hold = "select pg_advisory_lock($1), pg_advisory_lock(hashtextextended('taskledger.roles', 0))"
	if _, err := stranger.Exec(t.Context(), hold, lock.DefaultLockID); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := migrations.Up(ctx, address); err != nil {
		t.Errorf("Up: %v", err)
	}
	if _, err := migrations.MakeRoles(ctx, address, "taskledger_test"); err != nil {
		t.Errorf("MakeRoles: %v", err)
	}
}

// Only the login of the NATS server's lease proves by the nonce that the server belongs to this database: in a copy, a
// login that has read the nonce must not lead programs to the original's server.
func TestStrangersLocksProveNoServer(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	const nonce = 1<<40 + 7
	stranger, service := ledgertest.As(t, owner, "worker"), ledgertest.As(t, owner, "relay")
	_, err := service.Exec(t.Context(), `
		insert into taskledger.lease (name, holder, alive_until, detail)
		values ('broker', 'b', clock_timestamp() + interval '1 hour', json_build_object('nonce', $1::bigint))`, nonce)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		db   *pgxpool.Pool
		want bool
	}{{name: "stranger", db: stranger}, {name: "service", db: service, want: true}} {
		conn, err := c.db.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), "select pg_advisory_lock($1)", nonce); err != nil {
			t.Fatal(err)
		}
		var isHere bool
		if err := stranger.QueryRow(t.Context(), "select is_here from taskledger.broker").Scan(&isHere); err != nil {
			t.Fatal(err)
		}
		if isHere != c.want {
			t.Errorf("with the lock of the %s: is_here is %t", c.name, isHere)
		}
		if _, err := conn.Exec(t.Context(), "select pg_advisory_unlock($1)", nonce); err != nil {
			t.Fatal(err)
		}
		conn.Release()
	}
}
