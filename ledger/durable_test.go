package ledger_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The start of an attempt outlives a crash of PostgreSQL, whatever synchronous_commit is, and however it is appended.
// An attempt that must not be repeated depends on it.
func TestStartOutlivesACrash(t *testing.T) {
	server := ledgertest.Cluster(t, map[string]string{
		"autovacuum": "off", "wal_writer_delay": "10s", "synchronous_commit": "off"})
	pool, err := pgxpool.New(t.Context(), ledgertest.URLAs(t, server.URL(ledgertest.Database), ledgertest.App))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	ctx := t.Context()
	start := func(id string) ledger.AppendRequest {
		return ledgertest.Request(ledger.Key{Kind: "pay", BizID: ledger.BizID(id)}, 1, ledger.EventStarted)
	}
	for name, begin := range map[string]func(id string) error{
		"append": func(id string) error { _, err := ledger.Append(ctx, pool, start(id)); return err },
		"append each": func(id string) error {
			return ledger.AppendEach(ctx, pool, []ledger.AppendRequest{start(id)})[0].Err
		},
		"append each after what was read": func(id string) error {
			beginIncarnation(t, server.URL(ledgertest.Database)) // a crash has ended that of before
			requests := []ledger.AppendRequest{start(id)}
			readLast(t, pool, requests)
			return ledger.AppendEach(ctx, pool, requests)[0].Err
		},
		"claim": func(id string) error {
			if _, err := pool.Exec(ctx, "select taskledger.heartbeat('w-1', '{pay}')"); err != nil {
				return err
			}
			var version int
			const claim = "select version from taskledger.claim('pay', $1, 'w-1')"
			_, err := pgquery.Row(ctx, pool, claim, []any{id}, &version)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := start(name).Key
			ledgertest.Enqueue(t, pool, k, "")
			if err := begin(name); err != nil {
				t.Fatal(err)
			}
			if err := server.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			pool.Reset()
			if task, err := ledger.Load(ctx, pool, k); err != nil || task.State != ledger.StateRunning {
				t.Errorf("after the crash: %s, %v, want %s", task.State, err, ledger.StateRunning)
			}
		})
	}
}
