package dispatcher

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// keeperTest is a test of the turns in lines without a feed.
type keeperTest struct {
	*testing.T

	users  *pgxpool.Pool
	keeper lines
}

func newKeeperTest(t *testing.T, mode pgx.QueryExecMode) *keeperTest {
	t.Helper()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	config := ledgertest.As(t, owner, "relay").Config()
	config.ConnConfig.DefaultQueryExecMode = mode
	db, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return &keeperTest{t, ledgertest.As(t, owner, "producer", "worker", "operator"),
		lines{db: db, turns: new(turns), wake: feed.NewWake(), log: slog.New(slog.DiscardHandler)}}
}

func (k *keeperTest) key(line, n int) ledger.Key {
	return ledger.Key{Kind: "test.line", BizID: ledger.BizID(fmt.Sprintf("%d-%d", line, n))}
}

// enqueue enqueues this many tasks in each line, and returns the order keys.
func (k *keeperTest) enqueue(lines, depth int) (keys []string) {
	k.Helper()
	var entries []ledger.Entry
	for line := range lines {
		keys = append(keys, fmt.Sprint("line/", line))
		for n := range depth {
			entries = append(entries, ledger.Entry{Key: k.key(line, n), Args: json.RawMessage(`{"n":1}`),
				Options: &ledger.EnqueueOptions{OrderKey: keys[line]}})
		}
	}
	if _, err := ledger.EnqueueMany(k.Context(), k.users, entries); err != nil {
		k.Fatal(err)
	}
	return keys
}

func (k *keeperTest) mustBe(line, n int, want ledger.State) {
	k.Helper()
	task, err := ledger.Load(k.Context(), k.users, k.key(line, n))
	if err != nil || task.State != want {
		k.Errorf("task %d of line %d: %v, %v, want %s", n, line, task.State, err, want)
	}
}

// Turns are given in each query mode, with the contents of their tasks.
func TestTurnsInEachQueryMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			k := newKeeperTest(t, mode)
			if err := k.keeper.advance(t.Context(), k.enqueue(3, 2), linePatience); err != nil {
				t.Fatal(err)
			}
			for line := range 3 {
				k.mustBe(line, 0, ledger.StateAvailable)
				k.mustBe(line, 1, ledger.StateInLine)
			}
			if n := len(k.keeper.turns.contents); n != 3 {
				t.Errorf("%d contents", n)
			}
		})
	}
}

// The archive keeps the tasks with order keys that the keeper has not passed. So its cursor moves behind the last one,
// although no event follows.
func TestCursorOfLinesMovesWithoutAFurtherEvent(t *testing.T) {
	t.Parallel()
	k := newKeeperTest(t, pgx.QueryExecModeCacheStatement)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.keeper.run(ctx) }()
	for line := range 2 {
		o := &ledger.EnqueueOptions{OrderKey: fmt.Sprint("line/", line)}
		answer, err := ledger.Enqueue(ctx, k.users, k.key(line, 0), nil, o)
		if err != nil {
			t.Fatal(err)
		}
		for passed, began := false, time.Now(); !passed; time.Sleep(10 * time.Millisecond) {
			if passed, _, err = feed.Passed(ctx, k.keeper.db, feed.LineReader, answer.Position); err != nil {
				t.Fatal(err)
			}
			if time.Since(began) > time.Minute {
				t.Fatal("the cursor stays before the last event")
			}
		}
	}
	if cancel(); <-done != nil {
		t.Error("the keeper has failed")
	}
}

// A task that another transaction has changed and not committed delays its own line only. The line is tried again.
func TestLockedTaskDelaysItsLineOnly(t *testing.T) {
	t.Parallel()
	k := newKeeperTest(t, pgx.QueryExecModeCacheStatement)
	keys := k.enqueue(7, 2)
	tx, err := k.users.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	r := ledgertest.Request(k.key(4, 0), 1, ledger.EventCancelled)
	if _, err := ledger.Append(t.Context(), tx, r); err != nil {
		t.Fatal(err)
	}
	if err := k.keeper.advance(t.Context(), keys, 20*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for line := range keys {
		want := ledger.StateAvailable
		if line == 4 {
			want = ledger.StateInLine
		}
		k.mustBe(line, 0, want)
	}
	if l := k.keeper.locked; len(l) != 1 || l[0] != keys[4] {
		t.Errorf("locked: %v", l)
	}
	if n := len(k.keeper.turns.contents); n != 6 { // none of the transactions that failed
		t.Errorf("%d contents", n)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := k.keeper.advance(t.Context(), k.keeper.locked, linePatience); err != nil {
		t.Fatal(err)
	}
	k.mustBe(4, 0, ledger.StateCancelled)
	k.mustBe(4, 1, ledger.StateAvailable)
}
