package migrations_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/poolertest"
	"github.com/taskledger/taskledger/migrations"
)

// Behind a pooler in transaction mode a migration is refused before it changes anything, and leaves no lock in a
// session of the pooler. A pooler in session mode is as good as a direct connection, also if it has a single session.
func TestPoolerIsRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, mode string
		size       int
		want       error
	}{
		{name: "transaction mode", mode: "transaction", size: 20, want: migrations.ErrPooler},
		{name: "transaction mode, one session", mode: "transaction", size: 1, want: migrations.ErrPooler},
		{name: "session mode", mode: "session", size: 20},
		{name: "session mode, one session", mode: "session", size: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			address := emptyDatabase(t, "UTF8")
			behind := poolertest.Start(t, address, test.mode, test.size)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for range 2 {
				if err := migrations.Up(ctx, behind); !errors.Is(err, test.want) {
					t.Fatalf("%v, want %v", err, test.want)
				}
			}
			direct, err := pgx.Connect(ctx, address)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = direct.Close(context.WithoutCancel(ctx)) }()
			var locks int
			var isMigrated bool
			if err := direct.QueryRow(ctx, `
				select (select count(*) from pg_locks l
				         where l.locktype = 'advisory'
				           and l.database = (select d.oid from pg_database d where d.datname = current_database())),
				       to_regnamespace('taskledger') is not null`).Scan(&locks, &isMigrated); err != nil {
				t.Fatal(err)
			}
			if locks != 0 || isMigrated != (test.want == nil) {
				t.Errorf("%d locks are left; migrated: %t", locks, isMigrated)
			}
		})
	}
}
