package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/stdsql"
)

// changes are the changes of a task that a producer may make.
var changes = map[ledger.EventType]func(context.Context, ledger.DB, ledger.Key, *ledger.ChangeOptions) (
	ledger.Event, error){
	ledger.EventCancelled: ledger.Cancel,
	ledger.EventReleased:  ledger.Release,
	ledger.EventScheduled: func(
		ctx context.Context, db ledger.DB, k ledger.Key, o *ledger.ChangeOptions,
	) (ledger.Event, error) {
		return ledger.Reschedule(ctx, db, k, ledger.Due{In: time.Hour}, o)
	},
}

// A producer changes its task in its own transaction: the change happens if and only if it commits. A refused change
// does not end the transaction.
func TestChangesInATransaction(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, "producer")
	reader := ledgertest.As(t, pool, "reader")
	k := ledger.Key{Kind: "coupon.send", BizID: "order-17"}
	ledgertest.Enqueue(t, pool, k, `{"n":1}`)
	rolledBack := errors.New("rolled back")
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := ledger.Cancel(t.Context(), tx, k, nil); err != nil {
			t.Error(err)
		}
		return rolledBack
	})
	if task := loaded(t, reader, k); !errors.Is(err, rolledBack) || task.State != ledger.StateAvailable {
		t.Errorf("after a rollback: %+v, %v", task, err)
	}
	o := &ledger.ChangeOptions{Actor: "shop", Reason: `order "17" <withdrawn>`}
	for i, step := range []struct {
		change ledger.EventType
		want   ledger.State
	}{
		{change: ledger.EventCancelled, want: ledger.StateCancelled},
		{change: ledger.EventReleased, want: ledger.StateAvailable},
		{change: ledger.EventScheduled, want: ledger.StateScheduled},
		{change: ledger.EventReleased, want: ledger.StateAvailable},
	} {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			e, err := changes[step.change](t.Context(), tx, k, o)
			if err != nil || e.Actor != "shop" || e.Version != ledger.Version(i+2) || e.Type != step.change ||
				e.Position == 0 || e.RecordedAt.IsZero() {
				t.Errorf("%s: %+v, %v", step.change, e, err)
			}
			if step.change == ledger.EventScheduled && e.DueAt().Before(time.Now().Add(time.Minute)) {
				t.Errorf("due at %s", e.DueAt())
			}
			_, err = ledger.Cancel(t.Context(), tx, k, &ledger.ChangeOptions{IfVersion: 1})
			if c := wantErrorAs[*ledger.ConflictError](t, err); c.Found != e.Version {
				t.Errorf("another version: %+v", c)
			}
			if step.want == ledger.StateAvailable {
				wantErrorAs[*ledger.TransitionError](t, second(ledger.Release(t.Context(), tx, k, nil)))
			}
			unknown := ledger.Key{Kind: "coupon.send", BizID: "unknown"}
			if _, err := ledger.Cancel(t.Context(), tx, unknown, nil); !errors.Is(err, ledger.ErrUnknownTask) {
				t.Errorf("an unknown task: %v", err)
			}
			ledgertest.Enqueue(t, tx, ledger.Key{Kind: "test.other", BizID: ledger.BizID(fmt.Sprint(i))}, "")
			return nil
		})
		task := loaded(t, reader, k)
		if err != nil || task.State != step.want || string(task.Args) != `{"n":1}` {
			t.Errorf("%s: %+v, %v", step.change, task, err)
		}
	}
	events, err := ledger.History(t.Context(), reader, k)
	if err != nil || events[1].ErrorText() != o.Reason {
		t.Errorf("the reason is %q, %v", events[1].ErrorText(), err)
	}
	ledgertest.Check(t, reader)
}

// second returns the error of a call.
func second[A any](_ A, err error) error { return err }

// A change is bad input, and is refused before anything is sent.
func TestChangesAreChecked(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, "producer")
	k := ledger.Key{Kind: "coupon.send", BizID: "order-17"}
	ledgertest.Enqueue(t, pool, k, "")
	long := &ledger.ChangeOptions{Reason: strings.Repeat("x", 4097)}
	for name, err := range map[string]error{
		"key":      second(ledger.Cancel(t.Context(), pool, ledger.Key{Kind: "a", BizID: "\x00"}, nil)),
		"actor":    second(ledger.Cancel(t.Context(), pool, k, &ledger.ChangeOptions{Actor: "a\nb"})),
		"reason":   second(ledger.Cancel(t.Context(), pool, k, long)),
		"text":     second(ledger.Cancel(t.Context(), pool, k, &ledger.ChangeOptions{Reason: "\xff"})),
		"nul":      second(ledger.Cancel(t.Context(), pool, k, &ledger.ChangeOptions{Reason: "\x00"})),
		"version":  second(ledger.Cancel(t.Context(), pool, k, &ledger.ChangeOptions{IfVersion: -1})),
		"no time":  second(ledger.Reschedule(t.Context(), pool, k, ledger.Due{}, nil)),
		"negative": second(ledger.Reschedule(t.Context(), pool, k, ledger.Due{In: -1}, nil)),
		"both":     second(ledger.Reschedule(t.Context(), pool, k, ledger.Due{In: 1, At: time.Now()}, nil)),
		"never":    second(ledger.Reschedule(t.Context(), pool, k, ledger.Due{At: time.Unix(1<<40, 0)}, nil)),
		"priority": second(ledger.Reschedule(t.Context(), pool, k, ledger.Due{Priority: 5}, nil)),
	} {
		var invalid *ledger.InvalidError
		if !errors.As(err, &invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, call := range []string{
		"cancel('coupon.send', 'order-17', actor => 'schedule/x')",
		"cancel('coupon.send', 'order-17', repeat('x', 4097))",
		"reschedule('coupon.send', 'order-17')",
		"reschedule('coupon.send', 'order-17', run_in => '-1 s')",
		"reschedule('coupon.send', 'order-17', now(), '1 s')",
		"reschedule('coupon.send', 'order-17', 'infinity')",
		"reschedule('coupon.send', 'order-17', priority => 9)",
	} {
		_, err := pool.Exec(t.Context(), "select taskledger."+call)
		if err == nil || !strings.Contains(err.Error(), "taskledger: invalid") {
			t.Errorf("%s: %v", call, err)
		}
	}
}

// A producer changes no task of another login, unless it is a member of that login, and makes no change that is an
// operator's. An operator changes all.
func TestRightsOfChanges(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, "producer", "reader")
	other := ledgertest.As(t, pool, "producer", "worker")
	operator := ledgertest.As(t, pool, "operator")
	k := ledger.Key{Kind: "coupon.send", BizID: "order-17"}
	ledgertest.Enqueue(t, other, k, "")
	for name, change := range changes {
		if _, err := change(t.Context(), pool, k, nil); sqlState(err) != "42501" {
			t.Errorf("%s of another login's task: %v", name, err)
		}
	}
	for _, call := range []string{
		"taskledger.cancel('coupon.send', 'order-17')",
		"taskledger_internal.change_task('coupon.send', '17', 'cancelled', null, '', '', null, null, null, false)",
		"taskledger_internal.change_own_task('coupon.send', 'order-17', 'cancelled', null, '', 'x', null, null, null)",
		"taskledger_internal.change_own_task('coupon.send', 'order-17', 'succeeded', null, '', 'x', null, null, null)",
		"taskledger_internal.append_event('coupon.send', 'order-17', 1, 'cancelled', null, null)",
	} {
		if _, err := pool.Exec(t.Context(), "select "+call); sqlState(err) != "42501" {
			t.Errorf("%s: %v", call, err)
		}
	}
	if _, err := ledger.Bury(t.Context(), other, k, nil); sqlState(err) != "42501" {
		t.Errorf("a producer buries: %v", err)
	}
	urgent := ledger.Due{Priority: ledger.PriorityUrgent}
	if _, err := ledger.Reschedule(t.Context(), other, k, urgent, nil); err != nil {
		t.Errorf("its own task: %v", err)
	}
	if _, err := ledger.Cancel(t.Context(), operator, k, nil); err != nil {
		t.Errorf("the operator: %v", err)
	}

	// The last run counts: an operator that runs the task again is its author from then on.
	rerunner := ledgertest.As(t, pool, "producer", "operator")
	if _, err := enqueueAs(t, rerunner, k, "2", ledger.EnqueueOptions{IfExists: ledger.IfExistsRerun}); err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Cancel(t.Context(), other, k, nil); sqlState(err) != "42501" {
		t.Errorf("the login of an earlier run: %v", err)
	}

	owner := ledgertest.As(t, pool, ledgertest.Owner)
	tx, err := owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	name := pgx.Identifier{"taskledger_test_member"}.Sanitize()
	for _, statement := range []string{
		"create role " + name, "grant " + pgx.Identifier{rerunner.Config().ConnConfig.User}.Sanitize() + " to " + name,
		"set session authorization " + name,
	} {
		if _, err := tx.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ledger.Cancel(t.Context(), tx, k, nil); err != nil {
		t.Errorf("a member of the login that enqueued the task: %v", err)
	}
}

// The SQL functions are the same changes.
func TestChangesInSQL(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, "producer")
	k := ledger.Key{Kind: "coupon.send", BizID: "order-17"}
	ledgertest.Enqueue(t, pool, k, "")
	for _, step := range []struct{ call, want string }{
		{call: "cancel('coupon.send', 'order-17', 'withdrawn', 'shop')", want: "t cancelled 2"},
		{call: "cancel('coupon.send', 'order-17')", want: "f cancelled 2"},
		{call: "release('coupon.send', 'order-17', if_version => 1)", want: "f cancelled 2"},
		{call: "release('coupon.send', 'order-17', if_version => 2)", want: "t available 3"},
		{call: "reschedule('coupon.send', 'order-17', run_in => '1 hour')", want: "t scheduled 4"},
		{call: "reschedule('coupon.send', 'order-17', priority => 1)", want: "t scheduled 5"},
		{call: "cancel('coupon.send', 'unknown')", want: "f 0"},
	} {
		const read = "select concat_ws(' ', is_changed, state, version) from taskledger."
		if got, err := queryText(t.Context(), pool, read+step.call); err != nil || got != step.want {
			t.Errorf("%s: %q, %v; want %q", step.call, got, err, step.want)
		}
	}
	reader := ledgertest.As(t, pool, "reader")
	task := loaded(t, reader, k)
	if task.Priority != ledger.PriorityUrgent || task.DueAt.Before(time.Now().Add(time.Minute)) {
		t.Errorf("the priority alone changes, and not the time: %+v", task)
	}
	ledgertest.Check(t, reader)
}

// A change takes any transaction that an enqueue takes.
func TestChangesByDatabaseSQL(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, "producer")
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()
	k := ledger.Key{Kind: "coupon.send", BizID: "order-17"}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	ledgertest.Enqueue(t, stdsql.Wrap(tx), k, "")
	e, err := ledger.Cancel(t.Context(), stdsql.Wrap(tx), k, &ledger.ChangeOptions{Reason: "withdrawn"})
	if err != nil || e.ErrorText() != "withdrawn" || e.Version != 2 {
		t.Errorf("%+v, %v", e, err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// A producer that cancels a task while a worker finishes it: either the worker is fenced off, or the task has succeeded
// and the cancel is refused. Each happens.
func TestCancelRacesTheWorker(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	cancelled, succeeded := 0, 0
	for i := range 40 {
		k := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprint(i))}
		ledgertest.Enqueue(t, pool, k, "")
		ledgertest.Append(t, pool, k, ledger.EventStarted)
		var refused, fenced error
		calls := make(chan func(context.Context) error, 2)
		calls <- func(ctx context.Context) error {
			_, refused = ledger.Cancel(ctx, pool, k, nil)
			var state *ledger.TransitionError
			if errors.As(refused, &state) && state.State == ledger.StateSucceeded {
				return nil
			}
			return refused
		}
		calls <- func(ctx context.Context) error {
			_, fenced = ledger.Append(ctx, pool, ledgertest.Request(k, 2, ledger.EventSucceeded))
			if ledger.IsConflict(fenced) {
				return nil
			}
			return fenced
		}
		atOnce(t, 2, func(ctx context.Context) error { return (<-calls)(ctx) })
		switch task := loaded(t, pool, k); {
		case refused == nil && fenced != nil && task.State == ledger.StateCancelled:
			cancelled++
		case refused != nil && fenced == nil && task.State == ledger.StateSucceeded:
			succeeded++
		default:
			t.Fatalf("%+v: the cancel got %v, the worker %v", task, refused, fenced)
		}
	}
	t.Logf("%d cancelled, %d succeeded", cancelled, succeeded)
	ledgertest.Check(t, pool)
}

// A change in a transaction waits for another change of the same task, and then follows its outcome.
func TestChangesInTwoTransactions(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	k := ledger.Key{Kind: "coupon.send", BizID: "order-17"}
	ledgertest.Enqueue(t, pool, k, "")
	first, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Rollback(context.Background()) }()
	if _, err := ledger.Cancel(t.Context(), first, k, nil); err != nil {
		t.Fatal(err)
	}
	later, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = later.Rollback(context.Background()) }()
	pid := ledgertest.BackendPID(t, later)
	result := make(chan error, 1)
	go func() { result <- second(ledger.Reschedule(context.Background(), later, k, ledger.Due{In: 1}, nil)) }()
	ledgertest.AwaitBlocked(t, pool, pid)
	if err := first.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if refused := wantErrorAs[*ledger.TransitionError](t, <-result); refused.State != ledger.StateCancelled {
		t.Errorf("%+v", refused)
	}
}

// A transaction whose snapshot is older than the last event of the task gets ErrRetryTransaction, and no error about an
// earlier state.
func TestChangeWithAnOldSnapshot(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	k := ledger.Key{Kind: "coupon.send", BizID: "order-17"}
	ledgertest.Enqueue(t, pool, k, "")
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	ledgertest.BackendPID(t, tx) // takes the snapshot
	ledgertest.Append(t, pool, k, ledger.EventStarted)
	if _, err := ledger.Cancel(t.Context(), tx, k, nil); !errors.Is(err, ledger.ErrRetryTransaction) {
		t.Errorf("got %v, want ErrRetryTransaction", err)
	}
}

// A producer whose task was discarded by a limit cannot release it past the limit.
func TestReleaseWithinTheLimit(t *testing.T) {
	t.Parallel()
	db := flood(t, ledger.Discard)
	producer := ledgertest.As(t, db, "producer")
	k := ledger.Key{Kind: flooded, BizID: "discarded"}
	if task := ledgertest.Enqueue(t, producer, k, ""); task.State != ledger.StateDiscarded {
		t.Fatalf("%+v", task)
	}
	overload := wantErrorAs[*ledger.OverloadError](t, second(ledger.Release(t.Context(), producer, k, nil)))
	if overload.Waiting != 3 || overload.MaxWaiting != 3 {
		t.Errorf("%+v", overload)
	}
	if _, err := ledger.Release(t.Context(), db, k, nil); err != nil {
		t.Errorf("an operator: %v", err)
	}
}

// Each change is one statement.
func TestStatementsOfAChange(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, "producer")
	k := ledger.Key{Kind: "coupon.send", BizID: "order-17"}
	ledgertest.Enqueue(t, pool, k, "")
	db := &countedDB{DB: pool}
	if _, err := ledger.Cancel(t.Context(), db, k, nil); err != nil || db.n != 1 {
		t.Errorf("%d statements, %v", db.n, err)
	}
}

// countedDB counts queries.
type countedDB struct {
	ledger.DB
	n int
}

func (d *countedDB) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	d.n++
	return d.DB.Query(ctx, sql, args...)
}
