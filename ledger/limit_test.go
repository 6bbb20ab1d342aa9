package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

const flooded = ledger.Kind("test.flooded")

// flood returns a database with a running projector, in which the limit of kind flooded is reached: three tasks
// wait.
func flood(t *testing.T, policy ledger.OverloadPolicy) *pgxpool.Pool {
	t.Helper()
	db := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	p, err := projector.New(projector.Config{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	limit := ledger.Limit{Kind: flooded, MaxWaiting: 3, Policy: policy, RetryAfter: 7 * time.Second}
	if err := ledger.SetLimit(t.Context(), db, limit, "alice"); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		ledgertest.Enqueue(t, db, ledger.Key{Kind: flooded, BizID: ledger.BizID(fmt.Sprint("w-", i))}, "")
	}
	awaitWaiting(t, db, 3)
	return db
}

// awaitWaiting waits until the projector has counted n waiting tasks. It fails the test after a minute.
func awaitWaiting(t *testing.T, db ledger.DB, n int64) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		limits, err := ledger.ReadLimits(t.Context(), db, "", lists.All)
		if err != nil {
			t.Fatal(err)
		}
		if limits[0].Waiting == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v, want %d waiting", limits, n)
		}
	}
}

// The error of a rejected enqueue contains the limit and the delay to try again, and the transaction stays usable.
func TestLimitRejects(t *testing.T) {
	t.Parallel()
	db := flood(t, ledger.Reject)
	ctx := t.Context()
	tx, err := db.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	want := ledger.OverloadError{
		Kind: flooded, Waiting: 3, MaxWaiting: 3, RetryAfter: 7 * time.Second, Policy: ledger.Reject,
	}
	more := ledger.Key{Kind: flooded, BizID: "more"}
	other := ledger.Key{Kind: "test.other", BizID: "1"}
	existing := ledger.Key{Kind: flooded, BizID: "w-0"}
	for name, enqueue := range map[string]func() error{
		"one": func() error { _, err := ledger.Enqueue(ctx, tx, more, nil, nil); return err },
		"deadline": func() error {
			_, err := ledger.Enqueue(ctx, tx, more, nil, &ledger.EnqueueOptions{StartBy: time.Now().Add(time.Hour)})
			return err
		},
		"past": func() error {
			_, err := ledger.Enqueue(ctx, tx, more, nil, &ledger.EnqueueOptions{RunAt: time.Now().Add(-time.Hour)})
			return err
		},
		"later": func() error {
			_, err := ledger.Enqueue(ctx, tx, more, nil, &ledger.EnqueueOptions{RunIn: time.Microsecond})
			return err
		},
		"after another": func() error {
			o := &ledger.EnqueueOptions{After: []ledger.Key{existing}}
			_, err := ledger.Enqueue(ctx, tx, more, nil, o)
			return err
		},
		"many": func() error {
			_, err := ledger.EnqueueMany(ctx, tx, []ledger.Entry{{Key: other}, {Key: more}, {Key: existing}})
			return err
		},
		"many later": func() error {
			later := &ledger.EnqueueOptions{RunIn: time.Hour}
			_, err := ledger.EnqueueMany(ctx, tx, []ledger.Entry{{Key: other}, {Key: more, Options: later}})
			return err
		},
	} {
		var overload *ledger.OverloadError
		if err := enqueue(); !errors.As(err, &overload) || *overload != want {
			t.Errorf("%s: %v, want %v", name, err, &want)
		}
	}
	if _, err := ledger.Load(ctx, tx, other); !errors.Is(err, ledger.ErrUnknownTask) {
		t.Errorf("a task was enqueued with one that was rejected: %v", err)
	}
	answer, err := ledger.Enqueue(ctx, tx, existing, nil, nil)
	if err != nil || answer.New || answer.State != ledger.StateAvailable {
		t.Errorf("a task that exists: %+v, %v", answer, err)
	}
	ledgertest.Enqueue(t, tx, other, "")
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}

	// After one of the tasks ends, one more is accepted.
	ledgertest.Append(t, db, ledger.Key{Kind: flooded, BizID: "w-0"}, ledger.EventSucceeded)
	awaitWaiting(t, db, 2)
	ledgertest.Enqueue(t, db, ledger.Key{Kind: flooded, BizID: "next"}, "")
	awaitWaiting(t, db, 3)
	if removed, err := ledger.RemoveLimit(ctx, db, flooded); err != nil || !removed {
		t.Fatal(removed, err)
	}
	ledgertest.Enqueue(t, db, ledger.Key{Kind: flooded, BizID: "unlimited"}, "")
	ledgertest.Check(t, db)
}

// A batch that is refused writes none of its entries, whatever they mean by IfExists, and leaves the transaction
// usable.
func TestLimitRefusesAWholeBatch(t *testing.T) {
	t.Parallel()
	db := flood(t, ledger.Reject)
	ctx := t.Context()
	key := func(id ledger.BizID) ledger.Key { return ledger.Key{Kind: "test.other", BizID: id} }
	ended := ledger.Key{Kind: flooded, BizID: "ended"}
	for _, k := range []ledger.Key{key("ended"), key("waits")} {
		ledgertest.Enqueue(t, db, k, "1")
	}
	ledgertest.Append(t, db, key("ended"), ledger.EventSucceeded)
	ledgertest.ExecAsOwner(t, db, `
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id)
		values (1, 0, 0, 'enqueued', 'test.flooded', 'ended'), (2, 0, 0, 'cancelled', 'test.flooded', 'ended')`)
	entry := func(k ledger.Key, i ledger.IfExists) ledger.Entry {
		return ledger.Entry{Key: k, Args: json.RawMessage("2"), Options: &ledger.EnqueueOptions{IfExists: i}}
	}
	large := entry(key("waits"), ledger.IfExistsReplace)
	large.Args = json.RawMessage(`"` + strings.Repeat("x", 300_000) + `"`)
	events := func(tx pgx.Tx) (n int) {
		if err := tx.QueryRow(ctx, "select count(*) from taskledger.event").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for name, c := range map[string]struct {
		entries []ledger.Entry
		want    error
	}{
		"a new task": {
			entries: []ledger.Entry{
				entry(key("ended"), ledger.IfExistsRerun), entry(key("waits"), ledger.IfExistsReplace),
				entry(ledger.Key{Kind: flooded, BizID: "new"}, ledger.IfExistsSame)},
			want: &ledger.OverloadError{},
		},
		"the next run of a task": {
			entries: []ledger.Entry{
				entry(key("ended"), ledger.IfExistsRerun), entry(ended, ledger.IfExistsReplace),
				entry(ended, ledger.IfExistsIgnore), entry(key("waits"), ledger.IfExistsReplace)},
			want: &ledger.OverloadError{},
		},
		"args": {
			entries: []ledger.Entry{entry(key("ended"), ledger.IfExistsRerun), large},
			want:    &ledger.InvalidError{},
		},
	} {
		tx, err := db.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		before := events(tx)
		for _, enqueue := range []func(context.Context, ledger.DB, []ledger.Entry) ([]ledger.Enqueued, error){
			ledger.EnqueueMany, ledger.EnqueueInOrder,
		} {
			_, err := enqueue(ctx, tx, c.entries)
			target := reflect.New(reflect.TypeOf(c.want)).Interface()
			if !errors.As(err, target) {
				t.Errorf("%s: %v, want a %T", name, err, c.want)
			}
			if n := events(tx); n != before {
				t.Errorf("%s: %d events were written", name, n-before)
			}
		}
		if err := tx.Rollback(ctx); err != nil {
			t.Error(err)
		}
	}
}

// The SQL functions apply the same limit. Their error has SQLSTATE 53400, and the data of an OverloadError as its
// detail.
func TestLimitRejectsInSQL(t *testing.T) {
	t.Parallel()
	db := flood(t, ledger.Reject)
	for _, statement := range []string{
		"select * from taskledger.enqueue('test.flooded', 'more')",
		"select * from taskledger.enqueue('test.flooded', 'more', start_by => now() + interval '1 hour')",
		"select * from taskledger.enqueue('test.flooded', 'more', run_in => '1 microsecond')",
		`select * from taskledger.enqueue('test.flooded', 'more',
		                                  after => '{"keys":[{"kind":"test.flooded","biz_id":"w-0"}]}')`,
		`select * from taskledger.enqueue_many('[{"kind":"test.other","biz_id":"1"},
		                                         {"kind":"test.flooded","biz_id":"more"}]')`,
	} {
		_, err := db.Exec(t.Context(), statement)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "53400" {
			t.Errorf("%s: %v", statement, err)
			continue
		}
		var detail map[string]any
		if err := json.Unmarshal([]byte(pg.Detail), &detail); err != nil {
			t.Fatal(err)
		}
		want := map[string]any{
			"kind": string(flooded), "waiting": 3.0, "max_waiting": 3.0, "retry_after_ms": 7000.0, "policy": "reject",
		}
		if diff := difference.Of(want, detail); diff != "" {
			t.Errorf("%s: detail (-want +got):\n%s", statement, diff)
		}
	}
	for _, statement := range []string{
		"select state::text from taskledger.enqueue('test.flooded', 'w-0')",
		"select state::text from taskledger.enqueue_many('[{\"kind\":\"test.flooded\",\"biz_id\":\"w-0\"}]')",
	} {
		if state, err := queryText(t.Context(), db, statement); err != nil || state != "available" {
			t.Errorf("%s: %q, %v", statement, state, err)
		}
	}
}

// queryText returns the value of a statement that returns one row with one text.
func queryText(ctx context.Context, db *pgxpool.Pool, statement string) (string, error) {
	rows, err := db.Query(ctx, statement)
	if err != nil {
		return "", err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
}

// A discarded task exists with the reason, and can be released.
func TestLimitDiscards(t *testing.T) {
	t.Parallel()
	db := flood(t, ledger.Discard)
	ctx := t.Context()
	key := func(id ledger.BizID) ledger.Key { return ledger.Key{Kind: flooded, BizID: id} }
	one, err := ledger.Enqueue(ctx, db, key("one"), json.RawMessage(`{"n":1}`), &ledger.EnqueueOptions{Actor: "bob"})
	if err != nil || !one.New || one.State != ledger.StateDiscarded || one.Version != 2 {
		t.Errorf("%+v, %v", one, err)
	}
	again, err := ledger.Enqueue(ctx, db, key("one"), json.RawMessage(`{"n":1}`), nil)
	if err != nil || again.New || again.State != ledger.StateDiscarded || !again.SameArgs {
		t.Errorf("again: %+v, %v", again, err)
	}
	later, err := ledger.Enqueue(ctx, db, key("later"), nil, &ledger.EnqueueOptions{RunIn: time.Hour})
	if err != nil || !later.New || later.State != ledger.StateDiscarded || later.Version != 2 {
		t.Errorf("due later: %+v, %v", later, err)
	}
	many, err := ledger.EnqueueMany(ctx, db, []ledger.Entry{
		{Key: key("two")}, {Key: ledger.Key{Kind: "test.other", BizID: "1"}}, {Key: key("two")}, {Key: key("w-0")},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, answer := range many {
		got = append(got, fmt.Sprint(answer.Key, " ", answer.New, " ", answer.State))
	}
	want := []string{
		"test.flooded/two true discarded", "test.other/1 true available",
		"test.flooded/two false discarded", "test.flooded/w-0 false available",
	}
	if diff := difference.Of(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, statement := range []string{
		"select is_new || ' ' || state || ' ' || version from taskledger.enqueue('test.flooded', 'sql', '1')",
		`select is_new || ' ' || state || ' ' || version
		   from taskledger.enqueue('test.flooded', 'sql later', '1', run_in => '1 hour')`,
		`select is_new || ' ' || state || ' ' || version
		   from taskledger.enqueue_many('[{"kind":"test.flooded","biz_id":"sql many"}]')`,
	} {
		if answer, err := queryText(ctx, db, statement); err != nil || answer != "true discarded 2" {
			t.Errorf("%s: %q, %v", statement, answer, err)
		}
	}
	for _, id := range []ledger.BizID{"one", "two", "sql", "sql many"} {
		history, err := ledger.History(ctx, db, key(id))
		if err != nil {
			t.Fatal(err)
		}
		const data = `{"reason":"too many tasks of its kind wait"}`
		last := history[len(history)-1]
		if last.Type != ledger.EventDiscarded || string(last.Data) != data || last.Actor != history[0].Actor {
			t.Errorf("%s: %+v", id, last)
		}
	}
	if task := ledgertest.Append(t, db, key("one"), ledger.EventReleased); task.State != ledger.StateAvailable {
		t.Errorf("released: %+v", task)
	}
	ledgertest.Check(t, db)
}

// Only tasks that the projector has not counted yet exceed the limit. After it has counted them, concurrent
// enqueues add none.
func TestLimitOvershoot(t *testing.T) {
	t.Parallel()
	db := flood(t, ledger.Reject)
	if err := ledger.SetLimit(t.Context(), db, ledger.Limit{Kind: flooded, MaxWaiting: 200}, ""); err != nil {
		t.Fatal(err)
	}
	open, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Rollback(t.Context()) }()
	ledgertest.Enqueue(t, open, ledger.Key{Kind: flooded, BizID: "open"}, "") // counted after it commits
	var admitted atomic.Int64
	rush := func(round string) {
		var writers sync.WaitGroup
		for w := range 8 {
			writers.Go(func() {
				for i := range 100 {
					k := ledger.Key{Kind: flooded, BizID: ledger.BizID(fmt.Sprintf("%s-%d-%d", round, w, i))}
					_, err := ledger.Enqueue(context.Background(), db, k, nil, nil)
					var overload *ledger.OverloadError
					switch {
					case err == nil:
						admitted.Add(1)
					case !errors.As(err, &overload):
						t.Error(err)
					}
				}
			})
		}
		writers.Wait()
	}
	rush("first")
	first := admitted.Load()
	if first < 197 {
		t.Errorf("%d were accepted, want at least 197", first)
	}
	t.Logf("%d over a limit of 200", first-197)
	awaitWaiting(t, db, 3+first)
	rush("second")
	if more := admitted.Load() - first; more != 0 {
		t.Errorf("%d more were accepted", more)
	}
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitWaiting(t, db, 4+first)
}

// An enqueue reads the count of a kind from one row of an index.
func TestLimitPlan(t *testing.T) {
	t.Parallel()
	db := flood(t, ledger.Reject)
	const sql = "explain select from taskledger.overload o where o.kind = 'test.flooded' and o.closed"
	rows, err := db.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if plan := strings.Join(lines, "\n"); !strings.Contains(plan, "Index Scan Backward using task_count_pkey") {
		t.Error(plan)
	}
}

func TestSetLimitRejectsInvalidLimits(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, ledgertest.App, "operator")
	for _, l := range []ledger.Limit{
		{Kind: "a b", MaxWaiting: 1}, {Kind: "a", MaxWaiting: -1}, {Kind: "a", Policy: "drop"},
		{Kind: "a", RetryAfter: -1}, {Kind: "taskledger.alarm", Policy: ledger.DiscardOldest},
	} {
		var invalid *ledger.InvalidError
		if err := ledger.SetLimit(t.Context(), db, l, ""); !errors.As(err, &invalid) {
			t.Errorf("%+v: error %v", l, err)
		}
	}
	if limits, err := ledger.ReadLimits(t.Context(), db, "", lists.All); err != nil || len(limits) != 0 {
		t.Errorf("%v, %v", limits, err)
	}
}

// An operator cannot silence alarms by a limit of their kind, also not by an insert of its own.
func TestNoLimitSilencesAlarms(t *testing.T) {
	t.Parallel()
	operator := ledgertest.As(t, ledgertest.Pool(t), "operator")
	for _, policy := range []string{"reject", "discard", "discard_oldest", "caller_runs"} {
		_, err := operator.Exec(t.Context(), `
			insert into taskledger.kind_limit (kind, max_waiting, policy, retry_after_ms, actor)
			values ('taskledger.alarm', 0, $1, 0, 'op')`, policy)
		if !pgerr.Is(err, "23514") {
			t.Errorf("%s: %v, want a check violation", policy, err)
		}
	}
}

// Tasks that are due later count for others that are, and not for those that are due: reminders for next month do not
// keep a task of today from being enqueued.
func TestLimitOfTasksThatAreDueLater(t *testing.T) {
	t.Parallel()
	db := flood(t, ledger.Reject)
	if err := ledger.SetLimit(t.Context(), db, ledger.Limit{Kind: flooded, MaxWaiting: 5}, ""); err != nil {
		t.Fatal(err)
	}
	later := func(id string) error {
		k := ledger.Key{Kind: flooded, BizID: ledger.BizID(id)}
		return second(ledger.Enqueue(t.Context(), db, k, nil, &ledger.EnqueueOptions{RunIn: time.Hour}))
	}
	for _, id := range []string{"l-1", "l-2"} {
		if err := later(id); err != nil {
			t.Fatal(err)
		}
	}
	awaitScheduled(t, db, flooded, 2)
	if overload := wantErrorAs[*ledger.OverloadError](t, later("l-3")); overload.Waiting != 5 {
		t.Errorf("%+v", overload)
	}
	inLine := &ledger.EnqueueOptions{OrderKey: "customer/17"}
	k := ledger.Key{Kind: flooded, BizID: "in-line"}
	refused := second(ledger.Enqueue(t.Context(), db, k, nil, inLine))
	if overload := wantErrorAs[*ledger.OverloadError](t, refused); overload.Waiting != 5 {
		t.Errorf("in line: %+v", overload)
	}
	if _, err := db.Exec(t.Context(), `
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id, order_key)
		values (1, 0, 0, 'lined_up', 'test.flooded', 'in-line', 'customer/17')`); err == nil {
		t.Error("an insert in line is not limited")
	}
	ledgertest.Enqueue(t, db, ledger.Key{Kind: flooded, BizID: "now"}, "")
	replace := &ledger.EnqueueOptions{IfExists: ledger.IfExistsReplace, RunIn: 2 * time.Hour}
	k = ledger.Key{Kind: flooded, BizID: "l-1"}
	if answer, err := ledger.Enqueue(t.Context(), db, k, json.RawMessage("2"), replace); err != nil || !answer.New {
		t.Errorf("a replacement is no further task: %+v, %v", answer, err)
	}
	ledgertest.Check(t, db)
}

// awaitScheduled waits until the projector has counted n scheduled tasks of a kind.
func awaitScheduled(t *testing.T, db *pgxpool.Pool, kind ledger.Kind, n int64) {
	t.Helper()
	const read = "select scheduled from taskledger.overload where kind = $1"
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		var got int64
		if err := db.QueryRow(t.Context(), read, string(kind)).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d are scheduled, want %d", got, n)
		}
	}
}

// A limit binds a role that inserts events itself, as it binds the statements of this package. Under the policy
// discard, the transaction must discard the task. Under caller_runs, a login that may not run the task is refused.
func TestLimitBindsEachInsert(t *testing.T) {
	t.Parallel()
	const begin = `
		insert into taskledger.event (version, attempt, shard, type, actor, kind, biz_id)
		select 1, 0, 0, $1::text::taskledger.event_type, 'p', 'test.flooded', 'in-' || g from generate_series(1, 5) g`
	const discard = `
		insert into taskledger.event (version, attempt, shard, type, actor, kind, biz_id)
		select 2, 0, 0, 'discarded', 'p', 'test.flooded', 'in-' || g from generate_series(1, 5) g`
	const reschedule = `
		select taskledger.reschedule('test.flooded', 'in-' || g, run_in => '1 microsecond')
		  from generate_series(1, 5) g`
	const replace = `
		select taskledger.enqueue('test.flooded', 'in-' || g, '{"n":1}', if_exists => 'replace')
		  from generate_series(1, 5) g`
	for _, c := range []struct {
		name      string
		policy    ledger.OverloadPolicy
		eventType string
		then      string
		want      string // SQLSTATE of the insert
		atCommit  string // SQLSTATE
	}{
		{policy: ledger.Reject, eventType: "enqueued", want: "53400"},
		{policy: ledger.Reject, eventType: "scheduled", want: "53400"},
		{policy: ledger.CallerRuns, eventType: "enqueued", want: "53400"},
		{policy: ledger.CallerRuns, eventType: "scheduled", want: "53400"},
		{policy: ledger.Discard, eventType: "enqueued", atCommit: "53400"},
		{policy: ledger.Discard, eventType: "scheduled", atCommit: "53400"},
		{name: "discarded", policy: ledger.Discard, eventType: "enqueued", then: discard},
		{name: "rescheduled", policy: ledger.Discard, eventType: "enqueued", then: reschedule, atCommit: "53400"},
		{name: "replaced", policy: ledger.Discard, eventType: "enqueued", then: replace, atCommit: "53400"},
		{policy: ledger.DiscardOldest, eventType: "enqueued"},
	} {
		t.Run(fmt.Sprint(c.policy, " ", c.eventType, " ", c.name), func(t *testing.T) {
			t.Parallel()
			db := flood(t, c.policy)
			producer := ledgertest.As(t, db, "producer")
			tx, err := producer.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }()
			_, err = tx.Exec(t.Context(), begin, c.eventType)
			if sqlState(err) != c.want {
				t.Fatalf("the insert got %v, want SQLSTATE %q", err, c.want)
			}
			if c.want != "" {
				return
			}
			if c.then != "" {
				if _, err := tx.Exec(t.Context(), c.then); err != nil {
					t.Fatal(err)
				}
			}
			if err := tx.Commit(t.Context()); sqlState(err) != c.atCommit {
				t.Errorf("the commit got %v, want SQLSTATE %q", err, c.atCommit)
			}
			ledgertest.Check(t, db)
			var left int
			owner := ledgertest.As(t, db, ledgertest.Owner)
			err = owner.QueryRow(t.Context(), "select count(*) from taskledger.over_limit").Scan(&left)
			if err != nil || left != 0 {
				t.Errorf("%d rows are left, %v", left, err)
			}
		})
	}
}

// A login with the role producer does not exceed a reached limit, however often and in whichever way it tries.
func TestLimitBindsEveryProducer(t *testing.T) {
	t.Parallel()
	db := flood(t, ledger.Reject)
	producer := ledgertest.As(t, db, "producer")
	const insert = `
		insert into taskledger.event (version, attempt, shard, type, actor, kind, biz_id, order_key)
		select 1, 0, 0, '%s', 'p', 'test.flooded', '%[1]s-' || g, %s from generate_series(%d, %[3]d + 99) g`
	ways := map[string]func(i int) string{
		"insert of available tasks": func(i int) string { return fmt.Sprintf(insert, "enqueued", "null", 100*i) },
		"insert of scheduled tasks": func(i int) string { return fmt.Sprintf(insert, "scheduled", "null", 100*i) },
		"insert of tasks in line":   func(i int) string { return fmt.Sprintf(insert, "lined_up", "'line'", 100*i) },
	}
	for _, options := range []string{
		"run_in => '1 microsecond'", "run_at => now()", "order_key => 'line'", "if_exists => 'replace'",
		"if_exists => 'follow'", "priority => 1",
	} {
		ways[options] = func(i int) string {
			return fmt.Sprintf("select taskledger.enqueue('test.flooded', 'f-%d', %s)", i, options)
		}
	}
	for name, statement := range ways {
		for i := range 10 {
			if _, err := producer.Exec(t.Context(), statement(i)); sqlState(err) != "53400" {
				t.Errorf("%s: %v, want SQLSTATE 53400", name, err)
				break
			}
		}
	}
	const all = "select count(*) from taskledger.event where kind = 'test.flooded'"
	if n := count(t, ledgertest.As(t, db, ledgertest.Owner), all); n != 3 {
		t.Errorf("the kind has %d events, want 3", n)
	}
}

// Under the policy discard, a producer's login enqueues and discards a task that is due later, or has an order key.
func TestLimitDiscardsTasksThatWait(t *testing.T) {
	t.Parallel()
	db := flood(t, ledger.Discard)
	producer := ledgertest.As(t, db, "producer")
	for id, o := range map[ledger.BizID]ledger.EnqueueOptions{
		"later": {RunIn: time.Hour}, "in-line": {OrderKey: "customer/17"},
	} {
		answer, err := ledger.Enqueue(t.Context(), producer, ledger.Key{Kind: flooded, BizID: id}, nil, &o)
		if err != nil || answer.State != ledger.StateDiscarded {
			t.Errorf("%s: %+v, %v", id, answer, err)
		}
	}
	ledgertest.Check(t, db)
}
