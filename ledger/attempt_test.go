package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// SQLSTATEs of the functions for workers.
const (
	fenced  = "TL001"
	noLease = "TL002"
)

// attemptAt is what taskledger.claim returns.
type attemptAt struct {
	version, number int
	args            string
}

// claim claims a task as worker w-1, and reports whether it was available.
func claim(t *testing.T, db ledger.DB, k ledger.Key) (a attemptAt, ok bool) {
	t.Helper()
	rows, err := db.Query(t.Context(), "select version::text, attempt::text, coalesce(args::text, '') "+
		"from taskledger.claim($1::text, $2::text, $3::text)", string(k.Kind), string(k.BizID), "w-1")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var version, number string
		if err := rows.Scan(&version, &number, &a.args); err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Sscan(version+" "+number, &a.version, &a.number)
		ok = true
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return a, ok
}

// call executes a statement, without a result.
func call(t *testing.T, db ledger.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// sqlWorker returns a pool with the rights of a worker, and the lease of worker w-1.
func sqlWorker(t *testing.T, app *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	db := ledgertest.As(t, app, "worker")
	call(t, db, "select taskledger.heartbeat('w-1', '{mail}')")
	return db
}

func typesOf(t *testing.T, db ledger.DB, k ledger.Key) (types []ledger.EventType) {
	t.Helper()
	history, err := ledger.History(t.Context(), db, k)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range history {
		types = append(types, e.Type)
	}
	return types
}

// Every function for workers works in every query mode, under every setting of a database, and over several
// connections.
func TestAttemptsInSQL(t *testing.T) {
	t.Parallel()
	for _, mode := range queryModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			app := ledgertest.Pool(t)
			plantest.Settings(t, app.Config().ConnString())
			sqlWorker(t, app)
			config := ledgertest.As(t, app, "worker").Config()
			config.ConnConfig.DefaultQueryExecMode = mode
			db, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			attemptsInSQL(t, app, db)
			ledgertest.Check(t, app)
		})
	}
}

func attemptsInSQL(t *testing.T, app, db *pgxpool.Pool) {
	t.Helper()
	const key = "$1::text, $2::text, $3::text::integer"
	k := ledgertest.Key(t, "mail/ü")
	relay := ledgertest.As(t, app, "relay") // releases the task
	args := func(a attemptAt) []any { return []any{string(k.Kind), string(k.BizID), fmt.Sprint(a.version)} }
	ledgertest.Enqueue(t, app, k, `{"to": "a@example.com"}`)
	a, ok := claim(t, db, k)
	if want := (attemptAt{version: 2, number: 1, args: `{"to": "a@example.com"}`}); !ok || a != want {
		t.Fatalf("claimed %+v, %v, want %+v", a, ok, want)
	}
	if again, ok := claim(t, db, k); ok {
		t.Errorf("claimed twice: %+v", again)
	}
	const resumeSQL = "select c.version, c.attempt from taskledger.claim($1, $2, 'w-1', resume => true) c"
	err := db.QueryRow(t.Context(), resumeSQL, string(k.Kind), string(k.BizID)).Scan(&a.version, &a.number)
	if err != nil || a.version != 3 || a.number != 2 {
		t.Errorf("resumed with version %d and attempt %d, %v, want 3 and 2", a.version, a.number, err)
	}
	call(t, db, "select taskledger.fail("+key+", 'no\nluck', 'smtp', retry_in => '1 hour')", args(a)...)
	ledgertest.Append(t, relay, k, ledger.EventReleased)
	a, _ = claim(t, db, k)
	call(t, db, "select taskledger.snooze("+key+", run_in => '2 hours')", args(a)...)
	ledgertest.Append(t, relay, k, ledger.EventReleased)
	a, _ = claim(t, db, k)
	call(t, db, "select taskledger.heartbeat('w-1', '{mail,other}', '40 seconds')")
	call(t, db, "select taskledger.finish("+key+`, '{"id": 7}')`, args(a)...)
	history, err := ledger.History(t.Context(), app, k)
	if err != nil {
		t.Fatal(err)
	}
	task, err := ledger.Fold(history)
	if err != nil {
		t.Fatal(err)
	}
	if task.State != ledger.StateSucceeded || task.Attempt != 4 || string(task.Result) != `{"id": 7}` {
		t.Errorf("it is %v with result %s", task, task.Result)
	}
	failed, snoozed := history[3], history[6]
	if failed.Type != ledger.EventFailed || failed.ErrorText() != "no\nluck" || failed.Actor != "w-1" {
		t.Errorf("failed: %v %q by %s", failed.Type, failed.ErrorText(), failed.Actor)
	}
	for _, e := range []struct {
		event ledger.Event
		in    time.Duration
	}{{event: failed, in: time.Hour}, {event: snoozed, in: 2 * time.Hour}} {
		in := e.event.DueAt().Sub(e.event.RecordedAt)
		if in < e.in-time.Minute || in > e.in+time.Minute {
			t.Errorf("%s is due in %s, want %s", e.event.Type, in, e.in)
		}
	}
	if n := count(t, relay, "select count(*) from taskledger.timer"); n != 2 {
		t.Errorf("there are %d timers, want 2", n)
	}
	call(t, db, "select taskledger.heartbeat('w-1', '{mail}', '0')")
	if _, err := db.Exec(t.Context(), "select * from taskledger.claim('mail', '1', 'w-1')"); !pgerr.Is(err, noLease) {
		t.Errorf("a claim without a lease: %v", err)
	}
}

// Of many that claim a task at once, one gets it.
func TestClaimersRace(t *testing.T) {
	t.Parallel()
	app := ledgertest.Pool(t)
	db := sqlWorker(t, app)
	for i := range 10 {
		k := ledger.Key{Kind: "mail", BizID: ledger.BizID(fmt.Sprint(i))}
		ledgertest.Enqueue(t, app, k, "")
		var all sync.WaitGroup
		claims := make([]bool, 4)
		for c := range claims {
			all.Go(func() {
				const claimSQL = "select * from taskledger.claim('mail', $1, 'w-1')"
				tag, err := db.Exec(t.Context(), claimSQL, string(k.BizID))
				if err != nil {
					t.Error(err)
				}
				claims[c] = tag.RowsAffected() == 1
			})
		}
		all.Wait()
		won := slices.DeleteFunc(claims, func(has bool) bool { return !has })
		if types := typesOf(t, app, k); len(won) != 1 || len(types) != 2 {
			t.Errorf("%s: %d have it, its events are %v", k, len(won), types)
		}
	}
}

// A worker that no longer has its task cannot record an outcome, and its effect is rolled back. A session that ends
// before its commit leaves nothing.
func TestFencedInSQL(t *testing.T) {
	t.Parallel()
	app := ledgertest.Pool(t)
	db := sqlWorker(t, app)
	call(t, db, "create table public.effect (id text)")
	k := ledgertest.Key(t, "mail/1")
	ledgertest.Enqueue(t, app, k, "")
	for _, outcome := range []string{
		"select taskledger.finish('mail', '1', 1)", // it is not claimed
		"select taskledger.finish('mail', '2', 1)", // it does not exist
	} {
		if _, err := db.Exec(t.Context(), outcome); !pgerr.Is(err, fenced) {
			t.Errorf("%s: %v, want %s", outcome, err, fenced)
		}
	}
	claim(t, db, k)

	conn, err := pgx.ConnectConfig(t.Context(), db.Config().ConnConfig) // killed before its commit
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"begin", "insert into public.effect values ('1')", "select taskledger.finish('mail', '1', 2)",
	} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = conn.Exec(t.Context(), "select pg_terminate_backend(pg_backend_pid())")
	_ = conn.Close(context.Background())
	ledgertest.Append(t, ledgertest.As(t, app, "relay"), k, ledger.EventInterrupted)

	for _, outcome := range []string{
		"select taskledger.finish('mail', '1', 2)", "select taskledger.fail('mail', '1', 2, 'late')",
		"select taskledger.snooze('mail', '1', 2, run_in => '1 s')",
	} {
		if err := execute(t, db, "insert into public.effect values ('1')", outcome); !pgerr.Is(err, fenced) {
			t.Errorf("%s: %v, want %s", outcome, err, fenced)
		}
	}
	if n := count(t, db, "select count(*) from public.effect"); n != 0 {
		t.Errorf("there are %d effects", n)
	}
	want := []ledger.EventType{ledger.EventEnqueued, ledger.EventStarted, ledger.EventInterrupted}
	if diff := difference.Of(want, typesOf(t, app, k)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	ledgertest.Check(t, app)
}

// No attempt in SQL succeeds after its task's deadline, and none begins then.
func TestDeadlineInSQL(t *testing.T) {
	t.Parallel()
	app := ledgertest.Pool(t)
	db := sqlWorker(t, app)
	k, waiting := ledgertest.Key(t, "mail/1"), ledgertest.Key(t, "mail/2")
	options := ledger.EnqueueOptions{FinishBy: time.Now().Add(8 * time.Second)}
	for _, k := range []ledger.Key{k, waiting} {
		if _, err := ledger.Enqueue(t.Context(), app, k, nil, &options); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := claim(t, db, k); !ok {
		t.Fatal("it is not available")
	}
	errUndo := errors.New("undo")
	var err error
	for err = errUndo; errors.Is(err, errUndo); time.Sleep(20 * time.Millisecond) {
		err = pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "select taskledger.finish('mail', '1', 2)"); err != nil {
				return err
			}
			return errUndo
		})
	}
	if !pgerr.Is(err, "TL004") {
		t.Errorf("after the deadline: %v", err)
	}
	if _, ok := claim(t, db, waiting); ok {
		t.Error("an attempt has begun after the deadline")
	}
	call(t, db, "select taskledger.fail('mail', '1', 2, 'too late')")
}

// A task that a lost worker had begun is taken over; after five of them it is dead, and at once if it must not be
// repeated.
func TestTakeOverInSQL(t *testing.T) {
	t.Parallel()
	app := ledgertest.Pool(t)
	db := sqlWorker(t, app)
	lost := func(k ledger.Key, data string) {
		t.Helper()
		events, err := ledger.History(t.Context(), app, k)
		if err != nil {
			t.Fatal(err)
		}
		r := ledger.AppendRequest{
			Key: k, Expected: events[len(events)-1].Version, Type: ledger.EventStarted, Actor: "gone",
		}
		if data != "" {
			r.Data = json.RawMessage(data)
		}
		if _, err := ledger.Append(t.Context(), app, r); err != nil {
			t.Fatal(err)
		}
	}
	for i, test := range []struct {
		lost int
		data string
		want ledger.State
	}{
		{lost: 1, want: ledger.StateRunning},
		{lost: 4, want: ledger.StateRunning},
		{lost: 5, want: ledger.StateDead},
		{lost: 1, data: `{"guarantee":"at most once"}`, want: ledger.StateDead},
	} {
		k := ledger.Key{Kind: "mail", BizID: ledger.BizID(fmt.Sprint(i))}
		ledgertest.Enqueue(t, app, k, "")
		for range test.lost {
			lost(k, test.data)
		}
		_, ok := claim(t, db, k)
		events, _ := ledger.History(t.Context(), app, k)
		task, err := ledger.Fold(events)
		if err != nil || task.State != test.want || ok != (test.want == ledger.StateRunning) {
			t.Errorf("%+v: %v, claimed: %v, %v", test, task, ok, err)
		}
		if ok && task.LostInARow != test.lost {
			t.Errorf("%+v: %d workers are counted as lost", test, task.LostInARow)
		}
	}
}

// A worker with a constant id that dies at each attempt, and comes back before its lease has ended, counts as lost.
func TestResumedAttemptsAreCounted(t *testing.T) {
	t.Parallel()
	app := ledgertest.Pool(t)
	db := sqlWorker(t, app)
	k := ledgertest.Key(t, "mail/1")
	ledgertest.Enqueue(t, app, k, "")
	if _, ok := claim(t, db, k); !ok {
		t.Fatal("the task is not available")
	}
	const resumeSQL = "select count(*) from taskledger.claim('mail', '1', 'w-1', resume => true)"
	for begun := 1; ; begun++ {
		if count(t, db, resumeSQL) == 0 || begun > 9 {
			if begun != 5 {
				t.Errorf("it began %d times, want 5", begun)
			}
			break
		}
	}
	events, _ := ledger.History(t.Context(), app, k)
	if task, err := ledger.Fold(events); err != nil || task.State != ledger.StateDead {
		t.Errorf("%v, %v, want it dead", task, err)
	}
}

// A task with many failures ends, and so does one whose meta PostgreSQL cannot read as text.
func TestManyFailuresAndOddMetaEnd(t *testing.T) {
	t.Parallel()
	app := ledgertest.Pool(t)
	db := sqlWorker(t, app)
	many, odd := ledgertest.Key(t, "mail/many"), ledgertest.Key(t, "mail/odd")
	ledgertest.Enqueue(t, app, many, "")
	producer := ledgertest.As(t, app, "producer")
	if _, err := producer.Exec(t.Context(), `
		insert into taskledger.event (kind, biz_id, version, attempt, shard, type, actor, meta)
		values ('mail', 'odd', 1, 0, taskledger.shard_of('odd'), 'enqueued', 'p',
		        '{"retry":{"ladder":"\u0000"},"b":"\u0000"}')`,
	); err != nil {
		t.Fatal(err)
	}
	const failSQL = `select taskledger.fail($1, $2, $3, repeat('x', 2000), 'E', retry_in => '0',
		retry => '{"attempts":130}')`
	for _, key := range []ledger.Key{many, odd} {
		for range 130 {
			a, ok := claim(t, db, key)
			if !ok {
				t.Fatalf("%s is not available", key)
			}
			if _, err := db.Exec(t.Context(), failSQL, key.Kind, key.BizID, a.version); err != nil {
				t.Fatal(err)
			}
		}
		events, _ := ledger.History(t.Context(), app, key)
		var data struct{ Errors []struct{ Attempt int } }
		if err := json.Unmarshal(events[len(events)-1].Data, &data); err != nil || len(data.Errors) != 100 ||
			data.Errors[0].Attempt != 31 || data.Errors[99].Attempt != 130 {
			t.Errorf("%s ends with %s, %d errors, %v", key, events[len(events)-1].Type, len(data.Errors), err)
		}
	}
}

// A task fails and ends whose producer wrote a meta that PostgreSQL stores and cannot decode.
func TestUndecodableMetaEnds(t *testing.T) {
	t.Parallel()
	app := ledgertest.Pool(t)
	db, producer := sqlWorker(t, app), ledgertest.As(t, app, "producer")
	deep := strings.Repeat("[", 8000) + strings.Repeat("]", 8000)
	for i, meta := range []string{
		`{"x":"\ud800"}`, `{"x":"\udc00"}`, `{"retry":{"\ud800":1}}`, `{"retry":{"ladder":["\ud800"]}}`,
		`{"retry":{"attempts":1e400}}`, `{"\u0000":1}`, `{"retry":{"x":` + deep + `}}`, `{"finish_by":` + deep + `}`,
	} {
		key := ledgertest.Key(t, fmt.Sprintf("mail/odd-%d", i))
		if _, err := producer.Exec(t.Context(), `
			insert into taskledger.event (kind, biz_id, version, attempt, shard, type, actor, meta)
			values ($1, $2, 1, 0, taskledger.shard_of($2), 'enqueued', 'p', $3::text::json)`,
			key.Kind, key.BizID, meta); err != nil {
			t.Fatal(err)
		}
		a, ok := claim(t, db, key)
		var state string
		err := db.QueryRow(t.Context(), `select taskledger.fail($1, $2, $3, 'x', retry => '{"attempts":1}')::text`,
			key.Kind, key.BizID, a.version).Scan(&state)
		if err != nil || !ok || state != "dead" {
			t.Errorf("%.60s: available %v, then %s, %v", meta, ok, state, err)
		}
	}
}

// policies are retry policies, valid ones and, of a producer that writes them by itself, others.
var policies = []string{
	`{}`, `{"unit":0.1,"max":3600}`, `{"ladder":[60,300,1200]}`, `{"ladder":[10],"attempts":25}`,
	`{"ladder":[60,300],"attempts":10}`, `{"ladder":[60,300],"jitter":0}`, `{"ladder":[0,0.0000005,0.0000015]}`,
	`{"unit":0.000001}`, `{"unit":31622400,"max":31622400}`, `{"jitter":1}`, `{"jitter":0.3333}`, `{"jitter":null}`,
	`{"ladder":[]}`, `{"ladder":null,"unit":2}`, `{"attempts":1}`, `{"attempts":1e2}`, `{"attempts":1000000}`,
	`{"unit":1,"unit":2}`, `{"max":0.5,"ladder":[1,2]}`, `{"ladder":[31622400]}`, `{"unit":0.1234565}`,
}

// The delay after a failure, and the number of failures after which a task is dead, are the same as in Go.
func TestRetryPolicyInSQL(t *testing.T) {
	t.Parallel()
	db := ledgertest.As(t, ledgertest.Pool(t), "worker")
	compared := 0
	for _, text := range policies {
		p, err := ledger.ParseRetryPolicy(json.RawMessage(text))
		if err != nil {
			t.Fatal(text, err)
		}
		var limit int
		const limitSQL = "select taskledger_internal.retry_limit($1::text::json)"
		if err := db.QueryRow(t.Context(), limitSQL, text).Scan(&limit); err != nil || limit != p.Limit() {
			t.Errorf("%s: dead after %d failures, %v, want %d", text, limit, err, p.Limit())
		}
		for _, n := range []int{1, 2, 3, 4, 7, 24, 999, 1_000_000} {
			for _, random := range []float64{0, 0.5, rand.Float64(), 0.9999999999} {
				var micros int64
				const delaySQL = "select taskledger_internal.retry_delay($1::text::json, $2, $3)"
				if err := db.QueryRow(t.Context(), delaySQL, text, n, random).Scan(&micros); err != nil {
					t.Fatal(text, err)
				}
				want := p.Delay(n, random)
				if rounded := (want + time.Microsecond - 1).Microseconds(); micros != rounded {
					t.Errorf("%s: failure %d with %v: %d µs, want %d", text, n, random, micros, rounded)
				}
				compared++
			}
		}
	}
	if compared < 500 {
		t.Errorf("only %d delays were compared", compared)
	}
}

// Texts of errors are shortened as package printable does it in Go.
func TestShortenedInSQL(t *testing.T) {
	t.Parallel()
	db := ledgertest.As(t, ledgertest.Pool(t), "worker")
	for in, want := range map[string]string{
		"short ü": "short ü", "12345678": "12345678", "123456789": "12345678…", "1234567ü": "1234567\uFFFD…",
		"123456€": "123456\uFFFD…", "12345€9": "12345€…", "": "",
	} {
		var got string
		err := db.QueryRow(t.Context(), "select taskledger_internal.shortened($1, 8)", in).Scan(&got)
		if err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", in, got, err, want)
		}
	}
}

// A snooze in SQL that is due at once is, the second one in a row waits by the policy, and a longer one ends the row.
func TestSnoozesInSQLUntilThePastWait(t *testing.T) {
	t.Parallel()
	app := ledgertest.Pool(t)
	db, operator := sqlWorker(t, app), ledgertest.As(t, app, "operator")
	key := ledgertest.Key(t, "mail/round")
	policy := ledger.RetryPolicy{Attempts: 1, Ladder: []time.Duration{2 * time.Hour}, Jitter: -1}
	if _, err := ledger.Enqueue(t.Context(), app, key, nil, &ledger.EnqueueOptions{Retry: &policy}); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		due  string
		wait time.Duration
		row  string
	}{
		{due: "run_in => '0'", row: `"short_in_a_row":1`},
		{due: "run_at => '2001-01-01'", wait: 2 * time.Hour, row: `"short_in_a_row":2`},
		{due: "run_in => '0'", wait: 2 * time.Hour, row: `"short_in_a_row":3`},
		{due: "run_in => '1 hour'", wait: time.Hour},
		{due: "run_at => '2001-01-01'", row: `"short_in_a_row":1`},
	} {
		a, ok := claim(t, db, key)
		if !ok {
			t.Fatalf("snooze %d: not available", i)
		}
		if _, err := db.Exec(t.Context(), `select taskledger.snooze($1, $2, $3, `+c.due+`)`,
			key.Kind, key.BizID, a.version); err != nil {
			t.Fatal(err)
		}
		task, err := ledger.Load(t.Context(), app, key)
		if err != nil {
			t.Fatal(err)
		}
		events, _ := ledger.History(t.Context(), app, key)
		data := string(events[len(events)-1].Data)
		if wait := max(0, task.DueAt.Sub(task.UpdatedAt)); wait.Round(time.Minute) != c.wait ||
			!strings.Contains(data, c.row) || strings.Contains(data, "short_in_a_row") != (c.row != "") {
			t.Errorf("snooze %d: waits %s, %s", i, wait, data)
		}
		ledgertest.Append(t, operator, key, ledger.EventReleased)
	}
}
