package dispatcher

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/migrations"
)

// keeperOn returns a test of the turns in a database.
func keeperOn(t *testing.T, address string) *keeperTest {
	t.Helper()
	db, err := pgxpool.New(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return &keeperTest{t, db,
		lines{db: db, turns: new(turns), wake: feed.NewWake(), log: slog.New(slog.DiscardHandler)}}
}

// add enqueues task n of line 0.
func (k *keeperTest) add(db ledger.DB, n int) {
	k.Helper()
	o := &ledger.EnqueueOptions{OrderKey: "line/0"}
	if _, err := ledger.Enqueue(k.Context(), db, k.key(0, n), nil, o); err != nil {
		k.Fatal(err)
	}
}

// end ends task n of line 0, and advances the line.
func (k *keeperTest) end(n int) {
	k.Helper()
	ledgertest.Append(k.T, k.users, k.key(0, n), ledger.EventSucceeded)
	k.advance()
}

func (k *keeperTest) advance() {
	k.Helper()
	if err := k.keeper.advance(k.Context(), []string{"line/0"}, time.Minute); err != nil {
		k.Fatal(err)
	}
}

// A dump is restored in the middle of a line into a cluster with lower transaction ids. The task that had its turn
// keeps it, and the line goes on in order, with tasks that are enqueued afterwards and that commit late.
func TestRestoreInTheMiddleOfALine(t *testing.T) {
	t.Parallel()
	from, to := ledgertest.Cluster(t, nil), ledgertest.Cluster(t, nil)
	tool := func(input []byte, name string, arguments ...string) []byte {
		t.Helper()
		path, err := from.Tool(name)
		if errors.Is(err, pgserver.ErrNotInstalled) {
			t.Skip(err)
		}
		cmd := exec.CommandContext(t.Context(), path, arguments...)
		cmd.Stdin, cmd.Stderr = bytes.NewReader(input), t.Output()
		output, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return output
	}
	before := keeperOn(t, from.URL(ledgertest.Database))
	for range 300 { // transaction ids that the other cluster does not reach
		if _, err := before.users.Exec(t.Context(), "select pg_current_xact_id()"); err != nil {
			t.Fatal(err)
		}
	}
	lost, err := before.users.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before.add(lost, 9) // never commits
	for n := range 4 {
		before.add(before.users, n)
	}
	before.advance()
	before.end(0)
	ledgertest.Append(t, before.users, before.key(0, 1), ledger.EventStarted)
	dump := tool(nil, "pg_dump", from.URL(ledgertest.Database))
	_ = lost.Rollback(t.Context())
	before.users.Close()
	tool(nil, "psql", to.URL("postgres"), "-qc", "drop database "+ledgertest.Database)
	tool(nil, "psql", to.URL("postgres"), "-qc", "create database "+ledgertest.Database)
	tool(dump, "psql", to.URL(ledgertest.Database), "-qo", "/dev/null", "-v", "ON_ERROR_STOP=1")
	k := keeperOn(t, to.URL(ledgertest.Database))
	if needed, err := feed.Rebase(t.Context(), k.users, nil); err != nil || !needed {
		t.Fatalf("rebase: %t, %v", needed, err)
	}
	k.advance()
	k.mustBe(0, 1, ledger.StateRunning)
	k.mustBe(0, 2, ledger.StateInLine)
	late, err := k.users.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = late.Rollback(context.WithoutCancel(t.Context())) }()
	k.add(late, 4)
	k.add(k.users, 5)
	k.end(1)
	k.mustBe(0, 2, ledger.StateAvailable)
	k.end(2)
	k.mustBe(0, 3, ledger.StateAvailable)
	k.end(3)
	k.mustBe(0, 5, ledger.StateAvailable)
	k.add(k.users, 6)
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.end(5)
	k.mustBe(0, 4, ledger.StateAvailable)
	k.mustBe(0, 6, ledger.StateInLine)
	k.end(4)
	k.mustBe(0, 6, ledger.StateAvailable)
	ledgertest.Check(t, k.users)
}

// The order of a line does not depend on the database's clock: it is stepped back and forth between the turns.
func TestStepsOfTheClockInALine(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "line-clock") // not t.TempDir, which user postgres cannot enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // the server does not run as root
		t.Fatal(err)
	}
	clock, err := pgserver.NewClock(dir)
	if errors.Is(err, pgserver.ErrNotInstalled) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	server, err := pgserver.Start(t.Context(), pgserver.Config{NoSync: true, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	if err := migrations.Up(t.Context(), server.URL("postgres")); err != nil {
		t.Fatal(err)
	}
	k := keeperOn(t, server.URL("postgres"))
	set := func(ahead time.Duration) {
		t.Helper()
		if err := clock.Set(ahead); err != nil {
			t.Fatal(err)
		}
		for {
			var now time.Time
			if err := k.users.QueryRow(t.Context(), "select clock_timestamp()").Scan(&now); err != nil {
				t.Fatal(err)
			}
			if off := time.Until(now) - ahead; off.Abs() < 30*time.Second {
				return
			}
			time.Sleep(20 * time.Millisecond) // polls the condition
		}
	}
	k.add(k.users, 0)
	set(-10 * time.Minute)
	k.add(k.users, 1)
	late, err := k.users.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = late.Rollback(context.WithoutCancel(t.Context())) }()
	k.add(late, 2)
	set(10 * time.Minute)
	k.add(k.users, 3)
	k.advance()
	k.mustBe(0, 0, ledger.StateAvailable)
	set(-time.Hour)
	k.end(0)
	k.mustBe(0, 1, ledger.StateAvailable)
	k.end(1)
	k.mustBe(0, 3, ledger.StateAvailable)
	k.add(k.users, 4)
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	set(0)
	k.end(3)
	k.mustBe(0, 2, ledger.StateAvailable)
	k.end(2)
	k.mustBe(0, 4, ledger.StateAvailable)
	ledgertest.Check(t, k.users)
}
