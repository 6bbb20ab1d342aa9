package ledgertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
)

// Key returns the key that is written "kind/biz_id".
func Key(t testing.TB, text string) ledger.Key {
	t.Helper()
	for i := range len(text) {
		if text[i] == '/' {
			return ledger.Key{Kind: ledger.Kind(text[:i]), BizID: ledger.BizID(text[i+1:])}
		}
	}
	t.Fatalf("ledgertest: %q is not kind/biz_id", text)
	return ledger.Key{}
}

// Enqueue enqueues a task that must be new; args of "" are none.
func Enqueue(t testing.TB, db ledger.DB, k ledger.Key, args string) ledger.Enqueued {
	t.Helper()
	var text json.RawMessage
	if args != "" {
		text = json.RawMessage(args)
	}
	answer, err := ledger.Enqueue(t.Context(), db, k, text, nil)
	if err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
	if !answer.New {
		t.Fatalf("ledgertest: %s exists already", k)
	}
	return answer
}

// Append appends events of these types, one after the other, to a task, which is enqueued
// first if it does not exist, and returns the task after them. What is scheduled or snoozed is
// due in an hour.
func Append(t testing.TB, db ledger.DB, k ledger.Key, types ...ledger.EventType) ledger.Task {
	t.Helper()
	task, err := ledger.Load(t.Context(), db, k)
	if errors.Is(err, ledger.ErrUnknownTask) {
		Enqueue(t, db, k, "")
		task, err = ledger.Load(t.Context(), db, k)
	}
	for _, eventType := range types {
		if err != nil {
			break
		}
		var e ledger.Event
		e, err = ledger.Append(t.Context(), db, Request(k, task.Version, eventType))
		if err == nil {
			task, err = task.Apply(e)
		}
	}
	if err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
	return task
}

// Request returns the append of an event of any type; one that needs a due time is due in an
// hour.
func Request(k ledger.Key, expected ledger.Version, eventType ledger.EventType) ledger.AppendRequest {
	r := ledger.AppendRequest{Key: k, Expected: expected, Type: eventType}
	if eventType == ledger.EventScheduled || eventType == ledger.EventSnoozed {
		r.After = time.Hour
	}
	return r
}

// BackendPID returns the process id of the connection in the server. db must be a connection
// or a transaction.
func BackendPID(t testing.TB, db ledger.DB) int {
	t.Helper()
	pid, err := one[int](t.Context(), db, "select pg_backend_pid()")
	if err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
	return pid
}

// AwaitBlocked waits until the connection of this process id waits for a lock that another
// one holds. db must be another connection.
func AwaitBlocked(t testing.TB, db ledger.DB, pid int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		blocked, err := one[bool](ctx, db, fmt.Sprintf("select cardinality(pg_blocking_pids(%d)) > 0", pid))
		if err != nil {
			t.Fatalf("ledgertest: connection %d does not wait for a lock: %v", pid, err)
		}
		if blocked {
			return
		}
		time.Sleep(time.Millisecond) // between two looks at the condition
	}
}

// one returns the only value that a statement answers.
func one[T any](ctx context.Context, db ledger.DB, sql string) (T, error) {
	rows, err := db.Query(ctx, sql)
	if err != nil {
		var none T
		return none, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
}
