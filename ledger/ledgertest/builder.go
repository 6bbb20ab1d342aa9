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

// Key parses "kind/biz_id". It fails the test if text has no slash; it does not validate the key.
func Key(t testing.TB, text string) ledger.Key {
	t.Helper()
	for i := range len(text) {
		if text[i] == '/' {
			return ledger.Key{Kind: ledger.Kind(text[:i]), BizID: ledger.BizID(text[i+1:])}
		}
	}
	t.Fatalf("ledgertest: key must be kind/biz_id, got %q", text)
	return ledger.Key{}
}

// Enqueue enqueues a task and fails the test if the task exists. args is JSON, or "" for no args.
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

// Append appends events of these types to a task and returns the task after them. It enqueues the task if it
// does not exist. A scheduled or snoozed event is due in an hour. It fails the test if an event cannot follow.
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

// Request returns a request to append an event of a type. A scheduled or snoozed event is due in an hour.
func Request(k ledger.Key, expected ledger.Version, eventType ledger.EventType) ledger.AppendRequest {
	r := ledger.AppendRequest{Key: k, Expected: expected, Type: eventType}
	if eventType == ledger.EventScheduled || eventType == ledger.EventSnoozed {
		r.In = time.Hour
	}
	return r
}

// BackendPID returns the ID of the server process of a connection. db must be a connection or a transaction.
func BackendPID(t testing.TB, db ledger.DB) int {
	t.Helper()
	pid, err := queryOne[int](t.Context(), db, "select pg_backend_pid()")
	if err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
	return pid
}

// AwaitBlocked waits until the connection of the server process pid waits for a lock of another connection.
// It fails the test after a minute. db must be another connection or a pool.
func AwaitBlocked(t testing.TB, db ledger.DB, pid int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), setupTimeout)
	defer cancel()
	for {
		isBlocked, err := queryOne[bool](ctx, db, fmt.Sprintf("select cardinality(pg_blocking_pids(%d)) > 0", pid))
		if err != nil {
			t.Fatalf("ledgertest: connection %d does not wait for a lock: %v", pid, err)
		}
		if isBlocked {
			return
		}
		time.Sleep(time.Millisecond) // polls the condition
	}
}

// queryOne returns the value of a statement that returns one row with one column.
func queryOne[T any](ctx context.Context, db ledger.DB, sql string) (T, error) {
	rows, err := db.Query(ctx, sql)
	if err != nil {
		var zero T
		return zero, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
}
