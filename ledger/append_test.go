package ledger_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/unexported"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// appending returns a request to append an event to the task append/id.
func appending(id ledger.BizID, expected ledger.Version, eventType ledger.EventType) ledger.AppendRequest {
	return ledger.AppendRequest{Key: ledger.Key{Kind: "append", BizID: id}, Expected: expected, Type: eventType}
}

// IsConflict finds conflicts in wrapped errors, and reports false for other errors.
func TestIsConflict(t *testing.T) {
	t.Parallel()
	for _, err := range []error{&ledger.ConflictError{}, &ledger.TransitionError{}, ledger.ErrUnknownTask} {
		if !ledger.IsConflict(fmt.Errorf("append: %w", err)) {
			t.Errorf("%T %v is not a conflict", err, err)
		}
	}
	for _, err := range []error{nil, &ledger.InvalidError{}, ledger.ErrUnavailable, context.Canceled} {
		if ledger.IsConflict(err) {
			t.Errorf("%T %v is a conflict", err, err)
		}
	}
}

// In every state of a task, an event is appended if and only if the transition table allows it. The caller's
// transaction stays usable in both cases. The test is the owner, because no role may append all of them.
func TestAppendFollowsTheTransitionTable(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	histories := map[ledger.State][]ledger.EventType{
		ledger.StateAvailable: {},
		ledger.StateScheduled: {ledger.EventSnoozed},
		ledger.StateRunning:   {ledger.EventStarted},
		ledger.StateRetrying:  {ledger.EventFailed},
		ledger.StateSucceeded: {ledger.EventSucceeded},
		ledger.StateDead:      {ledger.EventBuried},
		ledger.StateCancelled: {ledger.EventCancelled},
		ledger.StateExpired:   {ledger.EventExpired},
		ledger.StateDiscarded: {ledger.EventDiscarded},
	}
	tx := beginTx(t, pool, pgx.ReadCommitted)
	for state, types := range histories {
		for _, row := range ledger.Transitions() {
			if row.Type == ledger.EventEnqueued || row.Type == ledger.EventLinedUp { // is not appended
				continue
			}
			k := ledger.Key{Kind: "append", BizID: ledger.BizID(state) + "/" + ledger.BizID(row.Type)}
			before := ledgertest.Append(t, tx, k, types...)
			if before.State != state {
				t.Fatalf("%s is %s", k, before.State)
			}
			e, err := ledger.Append(t.Context(), tx, ledgertest.Request(k, before.Version, row.Type))
			if slices.Contains(row.From, state) {
				if after, applyErr := before.Apply(e); err != nil || applyErr != nil || after.State != row.To {
					t.Errorf("%s: %v, %v, state %s", k, err, applyErr, after.State)
				}
				continue
			}
			want := &ledger.TransitionError{Key: k, Type: row.Type, State: state}
			if diff := difference.Of(want, wantErrorAs[*ledger.TransitionError](t, err)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
	}
	wantUsable(t, tx)
	ledgertest.Check(t, pool)
}

func TestAppendRefusesBeforeSending(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	tx := beginTx(t, pool, pgx.ReadCommitted)
	ledgertest.Append(t, tx, ledger.Key{Kind: "append", BizID: "1"})
	for name, change := range map[string]func(*ledger.AppendRequest){
		"kind":             func(r *ledger.AppendRequest) { r.Key.Kind = "a\x00b" },
		"biz_id":           func(r *ledger.AppendRequest) { r.Key.BizID = "a\x00b" },
		"type":             func(r *ledger.AppendRequest) { r.Type = "finished" },
		"begins a task":    func(r *ledger.AppendRequest) { r.Type = ledger.EventEnqueued },
		"expected version": func(r *ledger.AppendRequest) { r.Expected = 0 },
		"actor":            func(r *ledger.AppendRequest) { r.Actor = "a\x00b" },
		"actor long":       func(r *ledger.AppendRequest) { r.Actor = strings.Repeat("é", 128) },
		"data":             func(r *ledger.AppendRequest) { r.Data = json.RawMessage(`{"a":}`) },
		"data empty":       func(r *ledger.AppendRequest) { r.Data = json.RawMessage{} },
		"meta":             func(r *ledger.AppendRequest) { r.Meta = json.RawMessage("\xff") },
	} {
		r := appending("1", 1, ledger.EventSucceeded)
		change(&r)
		invalid := wantErrorAs[*ledger.InvalidError](t, errorOf(ledger.Append(t.Context(), tx, r)))
		if field := strings.Fields(name)[0]; name != "begins a task" && !strings.HasPrefix(invalid.Field, field) {
			t.Errorf("%s: %v", name, invalid)
		}
		group := ledger.AppendEach(t.Context(), tx, []ledger.AppendRequest{r})
		wantErrorAs[*ledger.InvalidError](t, group[0].Err)
	}
	_, err := ledger.Append(t.Context(), tx, appending("unknown", 1, ledger.EventSucceeded))
	wantError(t, err, ledger.ErrUnknownTask)
	_, err = ledger.Append(t.Context(), tx, appending("1", 7, ledger.EventSucceeded))
	conflict := wantErrorAs[*ledger.ConflictError](t, err)
	if conflict.Found != 1 || conflict.State != ledger.StateAvailable {
		t.Errorf("%+v", conflict)
	}
	wantUsable(t, tx)
}

// A request that conflicts, one of an unknown task and one of a locked key do not affect the other requests of
// their group.
func TestAppendEachKeepsFaultsApart(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	for _, id := range []ledger.BizID{"z", "conflict", "locked", "state", "a"} {
		ledgertest.Enqueue(t, pool, ledger.Key{Kind: "append", BizID: id}, "")
	}
	ledgertest.Append(t, pool, ledger.Key{Kind: "append", BizID: "conflict"}, ledger.EventStarted)
	ledgertest.Append(t, pool, ledger.Key{Kind: "append", BizID: "state"}, ledger.EventSucceeded)
	requests := []ledger.AppendRequest{
		appending("z", 1, ledger.EventSucceeded),
		appending("conflict", 1, ledger.EventSucceeded),
		appending("unknown", 1, ledger.EventSucceeded),
		appending("locked", 1, ledger.EventSucceeded),
		appending("not\x00valid", 1, ledger.EventSucceeded),
		appending("state", 2, ledger.EventFailed),
		appending("a", 1, ledger.EventFailed),
	}
	requests[0].Data, requests[0].Actor = json.RawMessage(`{"result": "\\\"{}NULL,"}`), `w'"\{}`

	rival := beginTx(t, pool, pgx.ReadCommitted)
	if _, err := ledger.Append(t.Context(), rival, requests[3]); err != nil {
		t.Fatal(err)
	}
	results := ledger.AppendEach(t.Context(), pool, requests)
	if err := rival.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}

	wantErrorAs[*ledger.ConflictError](t, results[1].Err)
	wantError(t, results[2].Err, ledger.ErrUnknownTask)
	lockErr := results[3].Err
	if code := wantErrorAs[*pgconn.PgError](t, lockErr).Code; code != "55P03" || !ledger.Retryable(lockErr) {
		t.Errorf("locked: %v, want a retryable lock_not_available", lockErr)
	}
	wantErrorAs[*ledger.InvalidError](t, results[4].Err)
	wantErrorAs[*ledger.TransitionError](t, results[5].Err)
	for _, i := range []int{0, 6} {
		stored, err := ledger.History(t.Context(), pool, requests[i].Key)
		if err != nil || results[i].Err != nil {
			t.Fatalf("%v, %v", err, results[i].Err)
		}
		if diff := difference.Of(results[i].Event, stored[1]); diff != "" {
			t.Errorf("(-returned +stored):\n%s", diff)
		}
	}

	again := ledger.AppendEach(t.Context(), pool, requests[3:4])
	if again[0].Err != nil {
		t.Errorf("after the rival rolled back: %v", again[0].Err)
	}
	ledgertest.Check(t, pool)
}

// The second request for a key is invalid and does not succeed.
func TestAppendEachRefusesAKeyTwice(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	ledgertest.Enqueue(t, pool, ledger.Key{Kind: "append", BizID: "1"}, "")
	results := ledger.AppendEach(t.Context(), pool, []ledger.AppendRequest{
		appending("1", 1, ledger.EventSucceeded), appending("1", 1, ledger.EventFailed)})
	if results[0].Err != nil || results[0].Event.Type != ledger.EventSucceeded {
		t.Errorf("first: %+v", results[0])
	}
	wantErrorAs[*ledger.InvalidError](t, results[1].Err)
	if none := ledger.AppendEach(t.Context(), pool, nil); len(none) != 0 {
		t.Errorf("results without requests: %v", none)
	}
	ledgertest.Check(t, pool)
}

// commitFixture is a transaction of a handler with a guard: tx has inserted a business row. check is another
// connection.
type commitFixture struct {
	conn  *pgx.Conn
	tx    *ledger.Tx
	check *pgx.Conn
	last  unexported.LastEvent // for the append, if it was read
}

// eachFixture runs a test with a fixture that has read the last event of the task, and with a fixture that has not.
func eachFixture(t *testing.T, test func(*testing.T, *commitFixture)) {
	t.Helper()
	t.Run("the last event is read by the append", func(t *testing.T) {
		t.Parallel()
		test(t, newCommitFixture(t))
	})
	t.Run("it was read before", func(t *testing.T) {
		t.Parallel()
		f := newCommitFixture(t)
		requests := []ledger.AppendRequest{appending("1", 1, ledger.EventSucceeded)}
		beginIncarnation(t, f.conn.Config().ConnString())
		readLast(t, f.check, requests)
		f.last = requests[0].LastEvent()
		test(t, f)
	})
}

func newCommitFixture(t *testing.T) *commitFixture {
	t.Helper()
	url := ledgertest.URL(t)
	const mode = pgx.QueryExecModeCacheStatement
	f := &commitFixture{conn: connectIn(t, url, mode), check: connectIn(t, url, mode)}
	f.exec(t, createBusiness)
	ledgertest.Enqueue(t, f.conn, ledger.Key{Kind: "append", BizID: "1"}, "")
	f.tx = ledger.BeginOn(t.Context(), f.conn, &ledger.TxOptions{Guard: true})
	if _, err := f.tx.Exec(t.Context(), "insert into business (id) values (1)"); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *commitFixture) exec(t *testing.T, sql string) {
	t.Helper()
	if _, err := f.conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// want checks the number of committed business rows, the version of the task, and that the connection is idle or
// closed.
func (f *commitFixture) want(t *testing.T, businessRows int, version ledger.Version) {
	t.Helper()
	if status := f.conn.PgConn().TxStatus(); status != 'I' && !f.conn.IsClosed() {
		t.Errorf("the connection is in transaction status %q", status)
	}
	var rows int
	if err := f.check.QueryRow(t.Context(), "select count(*) from business").Scan(&rows); err != nil {
		t.Fatal(err)
	}
	task, err := ledger.Load(t.Context(), f.check, ledger.Key{Kind: "append", BizID: "1"})
	if err != nil {
		t.Fatal(err)
	}
	if rows != businessRows || task.Version != version {
		t.Errorf("%d business rows and version %d, want %d and %d", rows, task.Version, businessRows, version)
	}
	ledgertest.Check(t, f.check)
}

func (f *commitFixture) finish(t *testing.T, ctx context.Context) (ledger.Event, error) {
	t.Helper()
	r := appending("1", 1, ledger.EventSucceeded)
	unexported.SetLastEvent(&r, f.last)
	events, err := f.tx.AppendAndCommit(ctx, r)
	if err != nil {
		return ledger.Event{}, err
	}
	return events[0], nil
}

// AppendAndCommit works in a transaction that has not begun.
func TestAppendAndCommitAlone(t *testing.T) {
	t.Parallel()
	f := newCommitFixture(t)
	f.exec(t, "rollback")
	f.tx = ledger.BeginOn(t.Context(), f.conn, &ledger.TxOptions{Guard: true})
	if open, err := f.tx.IsOpen(t.Context()); open || err != nil {
		t.Errorf("before the begin: open is %v, %v", open, err)
	}
	if _, err := f.finish(t, t.Context()); err != nil {
		t.Fatal(err)
	}
	f.want(t, 0, 2)
}

func TestIsOpen(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		sql  string
		want bool
	}{
		{name: "untouched", want: true},
		{name: "savepoint", sql: "savepoint s", want: true},
		{name: "committed", sql: "commit"},
		{name: "another transaction", sql: "commit; begin"},
		{name: "chained", sql: "rollback and chain"},
		{name: "aborted", sql: "select 1/0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newCommitFixture(t)
			if test.sql != "" {
				_, _ = f.conn.Exec(t.Context(), test.sql) // select 1/0 fails
			}
			if open, err := f.tx.IsOpen(t.Context()); open != test.want || err != nil {
				t.Errorf("open is %v, want %v; %v", open, test.want, err)
			}
		})
	}
}

func TestAppendAndCommit(t *testing.T) {
	t.Parallel()
	eachFixture(t, func(t *testing.T, f *commitFixture) {
		e, err := f.finish(t, t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f.want(t, 1, 2)
		stored, err := ledger.History(t.Context(), f.check, e.Key)
		if err != nil {
			t.Fatal(err)
		}
		if diff := difference.Of(e, stored[1]); diff != "" {
			t.Errorf("(-returned +stored):\n%s", diff)
		}
		if e.Shard != stored[0].Shard || e.Attempt != 1 {
			t.Errorf("shard %d and attempt %d, want %d and 1", e.Shard, e.Attempt, stored[0].Shard)
		}
	})
}

// A handler may set the form of times in its transaction, in a session that has noted no incarnation yet.
func TestAppendAndCommitAfterSettings(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{
		"timezone = 'Asia/Kathmandu'", "datestyle = 'SQL, DMY'", "extra_float_digits = -15",
	} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			eachFixture(t, func(t *testing.T, f *commitFixture) {
				if _, err := f.tx.Exec(t.Context(), "set local "+setting); err != nil {
					t.Fatal(err)
				}
				if _, err := f.finish(t, t.Context()); err != nil {
					t.Fatal(err)
				}
				f.want(t, 1, 2)
			})
		})
	}
}

// After a fault AppendAndCommit commits nothing and returns the error of that fault.
func TestAppendAndCommitOrNeither(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		spoil    func(*testing.T, *commitFixture)
		sentinel error  // the error, or
		code     string // its SQLSTATE, or neither for a conflict
		rows     int
		version  ledger.Version
	}{
		{name: "conflict", version: 2, spoil: func(t *testing.T, f *commitFixture) {
			ledgertest.Append(t, f.check, ledger.Key{Kind: "append", BizID: "1"}, ledger.EventStarted)
		}},
		{
			name: "commit in SQL", sentinel: ledger.ErrTransactionEnded, rows: 1, version: 1,
			spoil: func(t *testing.T, f *commitFixture) {
				f.exec(t, "commit")
			},
		},
		{
			name: "rollback in SQL", sentinel: ledger.ErrTransactionEnded, version: 1,
			spoil: func(t *testing.T, f *commitFixture) {
				f.exec(t, "rollback")
			},
		},
		{
			name: "commit and chain", sentinel: ledger.ErrTransactionEnded, rows: 1, version: 1,
			spoil: func(t *testing.T, f *commitFixture) {
				f.exec(t, "commit and chain")
				f.exec(t, "insert into business (id) values (2)")
			},
		},
		{
			name: "commit and begin", sentinel: ledger.ErrTransactionEnded, rows: 1, version: 1,
			spoil: func(t *testing.T, f *commitFixture) {
				f.exec(t, "commit; begin; insert into business (id) values (2)")
			},
		},
		{
			name: "another guard", sentinel: ledger.ErrTransactionEnded, version: 1,
			spoil: func(t *testing.T, f *commitFixture) {
				f.exec(t, "set local taskledger.attempt = 'of a nested call'")
			},
		},
		{
			name: "swallowed error", sentinel: ledger.ErrTransactionAborted, version: 1,
			spoil: func(t *testing.T, f *commitFixture) {
				if _, err := f.conn.Exec(t.Context(), "select 1/0"); err == nil {
					t.Fatal("no error")
				}
			},
		},
		{name: "commit fails", code: "23503", version: 1, spoil: func(t *testing.T, f *commitFixture) {
			f.exec(t, "insert into business values (2, 77)")
		}},
		{name: "read-only", code: "25006", version: 1, spoil: func(t *testing.T, f *commitFixture) {
			f.exec(t, "set transaction read only")
		}},
	} {
		spoiled := func(t *testing.T, f *commitFixture) {
			test.spoil(t, f)
			_, err := f.finish(t, t.Context())
			switch {
			case test.sentinel != nil:
				wantError(t, err, test.sentinel)
			case test.code != "":
				if code := wantErrorAs[*pgconn.PgError](t, err).Code; code != test.code {
					t.Errorf("%v, want SQLSTATE %s", err, test.code)
				}
			default:
				if conflict := wantErrorAs[*ledger.ConflictError](t, err); conflict.Found != 2 {
					t.Errorf("%v", conflict)
				}
			}
			if f.conn.IsClosed() {
				t.Error("the connection was closed")
			}
			f.want(t, test.rows, test.version)
		}
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			eachFixture(t, spoiled)
		})
	}
}

// A cancelled context does not prevent the rollback.
func TestAppendAndCommitCancelled(t *testing.T) {
	t.Parallel()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	t.Run("healthy", func(t *testing.T) {
		f := newCommitFixture(t)
		_, err := f.finish(t, cancelled)
		wantError(t, err, context.Canceled)
		f.want(t, 0, 1)
	})
	t.Run("aborted", func(t *testing.T) {
		f := newCommitFixture(t)
		if _, err := f.conn.Exec(t.Context(), "select 1/0"); err == nil {
			t.Fatal("no error")
		}
		_, err := f.finish(t, cancelled)
		wantError(t, err, ledger.ErrTransactionAborted)
		f.want(t, 0, 1)
	})
	t.Run("waiting", func(t *testing.T) {
		f := newCommitFixture(t)
		if _, err := f.check.Exec(t.Context(), "begin"); err != nil {
			t.Fatal(err)
		}
		ledgertest.Append(t, f.check, ledger.Key{Kind: "append", BizID: "1"}, ledger.EventStarted)
		pid := ledgertest.BackendPID(t, f.conn)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := f.finish(t, ctx)
			done <- err
		}()
		ledgertest.AwaitBlocked(t, f.check, pid)
		cancel()
		wantError(t, <-done, context.Canceled)
		if _, err := f.check.Exec(t.Context(), "commit"); err != nil {
			t.Fatal(err)
		}
		f.want(t, 0, 2)
	})
}

func TestAppendAndCommitOnALostConnection(t *testing.T) {
	t.Parallel()
	f := newCommitFixture(t)
	pid := ledgertest.BackendPID(t, f.conn)
	if _, err := f.check.Exec(t.Context(), "select pg_terminate_backend($1, 60000)", pid); err != nil {
		t.Fatal(err)
	}
	_, err := f.finish(t, t.Context())
	if err == nil || !ledger.Retryable(err) {
		t.Errorf("%v, want a retryable error", err)
	}
	if !f.conn.IsClosed() {
		t.Error("the connection is still open")
	}
	f.want(t, 0, 1)
}

func TestAppendAndCommitNeedsAGuard(t *testing.T) {
	t.Parallel()
	f := newCommitFixture(t)
	f.exec(t, "commit") // from now on the setting is '' and not NULL
	tx := ledger.BeginOn(t.Context(), f.conn, nil)
	_, err := tx.AppendAndCommit(t.Context(), appending("1", 1, ledger.EventSucceeded))
	if invalid := wantErrorAs[*ledger.InvalidError](t, err); invalid.Field != "guard" {
		t.Error(invalid)
	}
	f.want(t, 1, 1)
}
