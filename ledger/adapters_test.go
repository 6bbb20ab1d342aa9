package ledger_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/stdsql"
)

// adapter is a way to run the calls of package ledger. All adapters must return the same results and write the
// same rows. run commits.
type adapter struct {
	name string
	run  func(t *testing.T, pool *pgxpool.Pool, f func(enqueuer))
}

// enqueuer enqueues entries in order and returns the results as [ledger.EnqueueMany] does.
type enqueuer func(context.Context, []ledger.Entry) ([]ledger.Enqueued, error)

// oneByOne calls Enqueue for each entry.
func oneByOne(db ledger.DB) enqueuer {
	return func(ctx context.Context, entries []ledger.Entry) ([]ledger.Enqueued, error) {
		var answers []ledger.Enqueued
		for _, e := range entries {
			answer, err := ledger.Enqueue(ctx, db, e.Key, e.Args, e.Options)
			if err != nil {
				return nil, err
			}
			answers = append(answers, answer)
		}
		return answers, nil
	}
}

// eachCommitted calls EnqueueAndCommit for each entry.
func eachCommitted(t *testing.T, pool *pgxpool.Pool) enqueuer {
	return func(ctx context.Context, entries []ledger.Entry) ([]ledger.Enqueued, error) {
		var answers []ledger.Enqueued
		for _, e := range entries {
			answer, err := beginLedgerTx(t, pool, nil).EnqueueAndCommit(ctx, e.Key, e.Args, e.Options)
			if err != nil {
				return nil, err
			}
			answers = append(answers, answer)
		}
		return answers, nil
	}
}

// together calls EnqueueMany.
func together(db ledger.DB) enqueuer {
	return func(ctx context.Context, entries []ledger.Entry) ([]ledger.Enqueued, error) {
		return ledger.EnqueueMany(ctx, db, entries)
	}
}

// bySQLFunction calls taskledger.enqueue, as a program in another language does.
func bySQLFunction(db ledger.DB) enqueuer {
	const call = `select is_new, state::text, version, same_args, position
		from taskledger.enqueue(kind => $1::text, biz_id => $2::text, args => $3::text::json, shard => $4::integer,
		                        actor => $5::text, meta => $6::text::json, run_at => $7::text::timestamptz,
		                        run_in => $8::text::interval, start_by => $9::text::timestamptz,
		                        finish_by => $10::text::timestamptz, data_version => $11::integer,
		                        priority => $12::integer, partition => $13::text)`
	return func(ctx context.Context, entries []ledger.Entry) ([]ledger.Enqueued, error) {
		var answers []ledger.Enqueued
		for _, e := range entries {
			w := newSQLEntry(e)
			rows, err := db.Query(ctx, call, w.Kind, w.BizID, text(w.Args), w.Shard, w.Actor, text(w.Meta),
				w.Times["run_at"], w.Times["run_in"], w.Times["start_by"], w.Times["finish_by"],
				w.DataVersion, w.Priority, w.Partition)
			if err != nil {
				return nil, err
			}
			answer := ledger.Enqueued{Key: e.Key}
			if _, err := pgx.ForEachRow(rows, columnsOf(&answer), func() error { return nil }); err != nil {
				return nil, err
			}
			answers = append(answers, answer)
		}
		return answers, nil
	}
}

// bySQLFunctionMany calls taskledger.enqueue_many.
func bySQLFunctionMany(db ledger.DB) enqueuer {
	const call = `select is_new, state::text, version, same_args, position, kind, biz_id
		from taskledger.enqueue_many($1::text::json)`
	return func(ctx context.Context, entries []ledger.Entry) ([]ledger.Enqueued, error) {
		// json.Marshal would compact the args.
		list := "["
		for i, e := range entries {
			w := newSQLEntry(e)
			if i > 0 {
				list += ","
			}
			key, _ := json.Marshal(e.Key) // two strings
			list += string(key[:len(key)-1])
			if w.Args != nil {
				list += `,"args":` + string(w.Args)
			}
			if w.Meta != nil {
				list += `,"meta":` + string(w.Meta)
			}
			if w.Shard != nil {
				list += fmt.Sprintf(`,"shard":%d`, *w.Shard)
			}
			if w.Actor != nil {
				actor, _ := json.Marshal(*w.Actor) // a string
				list += `,"actor":` + string(actor)
			}
			if w.DataVersion != nil {
				list += fmt.Sprintf(`,"data_version":%d`, *w.DataVersion)
			}
			if w.Priority != nil {
				list += fmt.Sprintf(`,"priority":%d`, *w.Priority)
			}
			if w.Partition != nil {
				list += fmt.Sprintf(`,"partition":%q`, *w.Partition)
			}
			for name, value := range w.Times {
				if value != nil {
					list += fmt.Sprintf(`,"%s":"%s"`, name, *value)
				}
			}
			list += "}"
		}
		rows, err := db.Query(ctx, call, list+"]")
		if err != nil {
			return nil, err
		}
		var answers []ledger.Enqueued
		var answer ledger.Enqueued
		into := append(columnsOf(&answer), (*string)(&answer.Key.Kind), (*string)(&answer.Key.BizID))
		_, err = pgx.ForEachRow(rows, into, func() error {
			answers = append(answers, answer)
			return nil
		})
		return answers, err
	}
}

// columnsOf returns pointers to the fields of a result, in the order of the columns of the SQL functions.
func columnsOf(e *ledger.Enqueued) []any {
	return []any{&e.New, (*string)(&e.State), (*int32)(&e.Version), &e.SameArgs, (*int64)(&e.Position)}
}

// sqlEntry is an entry as parameters of the SQL functions.
type sqlEntry struct {
	Kind, BizID string
	Args, Meta  json.RawMessage
	Shard       *int64
	Actor       *string
	Times       map[string]*string
	DataVersion *int64
	Priority    *int64
	Partition   *string
}

func newSQLEntry(e ledger.Entry) sqlEntry {
	w := sqlEntry{Kind: string(e.Key.Kind), BizID: string(e.Key.BizID), Args: e.Args}
	if o := e.Options; o != nil {
		if o.Shard != nil {
			shard := int64(*o.Shard)
			w.Shard = &shard
		}
		if o.DataVersion != 0 {
			version := int64(o.DataVersion)
			w.DataVersion = &version
		}
		if o.Priority != 0 {
			priority := int64(o.Priority)
			w.Priority = &priority
		}
		if o.Partition != "" {
			w.Partition = &o.Partition
		}
		if o.Actor != "" {
			w.Actor = &o.Actor
		}
		if meta, _ := json.Marshal(o.Meta); string(meta) != "{}" {
			w.Meta = meta
		}
		w.Times = map[string]*string{
			"run_at": timeText(o.RunAt), "start_by": timeText(o.StartBy), "finish_by": timeText(o.FinishBy),
		}
		if o.RunIn != 0 {
			in := o.RunIn.String()
			w.Times["run_in"] = &in
		}
	}
	return w
}

// timeText returns t as a parameter, nil for the zero time.
func timeText(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	text := t.Format("2006-01-02T15:04:05.999999Z07:00")
	return &text
}

// text returns JSON as a parameter, nil for null.
func text(raw json.RawMessage) *string {
	if raw == nil {
		return nil
	}
	s := string(raw)
	return &s
}

// gormPool implements the methods of GORM's ConnPool on a transaction.
type gormPool struct{ tx *sql.Tx }

func (p gormPool) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	return p.tx.PrepareContext(ctx, query)
}

func (p gormPool) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return p.tx.ExecContext(ctx, query, args...)
}

func (p gormPool) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return p.tx.QueryContext(ctx, query, args...)
}

func (p gormPool) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return p.tx.QueryRowContext(ctx, query, args...)
}

// sqlxTx embeds a transaction, as sqlx.Tx does.
type sqlxTx struct {
	*sql.Tx
	driverName string
}

// adapters returns all adapters.
func adapters() []adapter {
	inPgx := func(make func(ledger.DB) enqueuer) func(*testing.T, *pgxpool.Pool, func(enqueuer)) {
		return func(t *testing.T, pool *pgxpool.Pool, f func(enqueuer)) {
			err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { f(make(tx)); return nil })
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	inSQL := func(f func(*testing.T, *sql.DB, func(enqueuer))) func(*testing.T, *pgxpool.Pool, func(enqueuer)) {
		return func(t *testing.T, pool *pgxpool.Pool, use func(enqueuer)) { f(t, openSQL(t, pool), use) }
	}
	inSQLTx := func(make func(*sql.Tx) enqueuer) func(*testing.T, *pgxpool.Pool, func(enqueuer)) {
		return inSQL(func(t *testing.T, db *sql.DB, f func(enqueuer)) {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback() // does nothing after the commit
			f(make(tx))
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
		})
	}
	return []adapter{
		{name: "pgx.Tx", run: inPgx(oneByOne)},
		{name: "pgx.Tx together", run: inPgx(together)},
		{name: "ledger.Tx", run: func(t *testing.T, pool *pgxpool.Pool, f func(enqueuer)) {
			tx := beginLedgerTx(t, pool, nil)
			f(oneByOne(tx))
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "EnqueueAndCommit", run: func(t *testing.T, pool *pgxpool.Pool, f func(enqueuer)) {
			f(eachCommitted(t, pool))
		}},
		{name: "pgx.Conn", run: func(t *testing.T, pool *pgxpool.Pool, f func(enqueuer)) {
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release()
			f(oneByOne(conn.Conn()))
		}},
		{name: "pgxpool.Pool", run: func(_ *testing.T, pool *pgxpool.Pool, f func(enqueuer)) { f(oneByOne(pool)) }},
		{name: "pgxpool.Pool together", run: func(_ *testing.T, pool *pgxpool.Pool, f func(enqueuer)) {
			f(together(pool))
		}},
		{name: "sql.Tx", run: inSQLTx(func(tx *sql.Tx) enqueuer { return oneByOne(stdsql.Wrap(tx)) })},
		{name: "sql.Tx together", run: inSQLTx(func(tx *sql.Tx) enqueuer { return together(stdsql.Wrap(tx)) })},
		{name: "sql.Tx in sqlx", run: inSQLTx(func(tx *sql.Tx) enqueuer {
			return oneByOne(stdsql.Wrap(sqlxTx{Tx: tx, driverName: "pgx"}))
		})},
		{name: "sql.Tx in GORM", run: inSQLTx(func(tx *sql.Tx) enqueuer {
			return together(stdsql.Wrap(gormPool{tx}))
		})},
		{name: "sql.DB", run: inSQL(func(_ *testing.T, db *sql.DB, f func(enqueuer)) { f(oneByOne(stdsql.Wrap(db))) })},
		{name: "sql.Conn", run: inSQL(func(t *testing.T, db *sql.DB, f func(enqueuer)) {
			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			f(together(stdsql.Wrap(conn)))
		})},
		{name: "taskledger.enqueue", run: inPgx(bySQLFunction)},
		{name: "taskledger.enqueue_many", run: inPgx(bySQLFunctionMany)},
	}
}

func openSQL(t *testing.T, pool *pgxpool.Pool) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", pool.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// oddBizIDs are valid biz_ids with characters that are special in SQL, arrays or JSON, or to Unicode.
var oddBizIDs = []ledger.BizID{
	"1", " ", " leading and trailing ", "100%", "a:b:c", "it's", `say "hi"`, `back\slash\\`, `\n`, `{a,b}`, `{}`,
	"NULL", "null", "a,b", "(1)", "$1", "--", "/*", "a/b/c", "?", "ключ", "订单", "😀👩‍👩‍👧", "é", "e\u0301",
	"\u202e", "\ufeff", "\u00a0", "\U0010ffff",
}

func TestEveryWayAnswersAndWritesTheSame(t *testing.T) {
	t.Parallel()
	shard := ledger.Shard(63)
	entries := []ledger.Entry{
		{Key: ledger.Key{Kind: "z.last", BizID: "1"}, Args: json.RawMessage(`{"n": 1}`)},
		{Key: ledger.Key{Kind: "a.first", BizID: "1"}, Args: json.RawMessage(`{"n": 1}`)},
		{Key: ledger.Key{Kind: "z.last", BizID: "1"}, Args: json.RawMessage(`{"n": 1}`)},
		{Key: ledger.Key{Kind: "z.last", BizID: "1"}, Args: json.RawMessage(`{"n":1}`), // equal, in other bytes
			Options: &ledger.EnqueueOptions{IfExists: ledger.IfExistsIgnore}},
		{Key: ledger.Key{Kind: "z.last", BizID: "1"}, Options: &ledger.EnqueueOptions{IfExists: ledger.IfExistsIgnore}},
		{Key: ledger.Key{Kind: "none", BizID: "1"}},
		{Key: ledger.Key{Kind: "none", BizID: "1"}},
		{Key: ledger.Key{Kind: "none", BizID: "1"}, Args: json.RawMessage(`null`),
			Options: &ledger.EnqueueOptions{IfExists: ledger.IfExistsIgnore}},
		{Key: ledger.Key{Kind: "null", BizID: "1"}, Args: json.RawMessage(`null`)},
		{Key: ledger.Key{Kind: "bytes", BizID: "1"}, Args: json.RawMessage(
			"{\"b\" : [ 1,2 ],\n\t\"a\":\"\\ud83d\\ude00 \\\\ \\\" % $1 {}\",\"a\":1e999}")},
		{Key: ledger.Key{Kind: "options", BizID: "1"}, Options: &ledger.EnqueueOptions{
			Shard: &shard, Actor: `o'actor "x" \`, DataVersion: 2, Priority: ledger.PriorityUrgent,
			Partition: `tenant "7" {}`,
			Meta:      ledger.Meta{Causation: "order/1/1@5", Tags: []string{"vip", `a"b\`}}}},
		{Key: ledger.Key{Kind: "timed", BizID: "later"}, Args: json.RawMessage(`[ 1 ]`),
			Options: &ledger.EnqueueOptions{
				RunAt: time.Date(2101, 2, 3, 4, 5, 6, 123456000, time.FixedZone("", 5400)), DataVersion: 32767,
				Priority: ledger.PriorityLow, Partition: strings.Repeat("ü", ledger.MaxPartitionLen/2),
				Meta: ledger.Meta{Tags: []string{"x"}}}},
		{Key: ledger.Key{Kind: "timed", BizID: "later"}, Options: &ledger.EnqueueOptions{
			RunAt: time.Date(2102, 2, 3, 4, 5, 6, 0, time.UTC), IfExists: ledger.IfExistsIgnore}},
		{Key: ledger.Key{Kind: "timed", BizID: "past"}, Options: &ledger.EnqueueOptions{
			RunAt: time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)}},
		{Key: ledger.Key{Kind: "timed", BizID: "until"}, Options: &ledger.EnqueueOptions{
			StartBy:  time.Date(2101, 1, 1, 0, 0, 0, 0, time.UTC),
			FinishBy: time.Date(2102, 1, 1, 0, 0, 0, 0, time.UTC)}},
		{Key: ledger.Key{Kind: "timed", BizID: "all"}, Options: &ledger.EnqueueOptions{
			RunAt: time.Date(2101, 1, 1, 0, 0, 0, 0, time.UTC), StartBy: time.Date(2102, 1, 1, 0, 0, 0, 0, time.UTC),
			FinishBy: time.Date(2103, 1, 1, 0, 0, 0, 0, time.UTC)}},
		{Key: ledger.Key{Kind: "A-b_9.Z", BizID: "1"}, Args: json.RawMessage(`"text"`)},
	}
	for _, id := range oddBizIDs {
		entries = append(entries, ledger.Entry{Key: ledger.Key{Kind: "odd", BizID: id}, Args: json.RawMessage(`[]`)})
	}
	type outcome struct {
		First, Again []ledger.Enqueued
		Rows         []string
		Timers       []timer
	}
	outcomes := make([]outcome, len(adapters()))
	t.Run("adapters", func(t *testing.T) {
		for i, a := range adapters() {
			t.Run(a.name, func(t *testing.T) {
				t.Parallel()
				pool := ledgertest.Pool(t, ledgertest.App, "reader")
				var o outcome
				enqueueAll := func(answers *[]ledger.Enqueued) func(enqueuer) {
					return func(enqueue enqueuer) {
						var err error
						if *answers, err = enqueue(t.Context(), entries); err != nil {
							t.Fatal(err)
						}
					}
				}
				a.run(t, pool, enqueueAll(&o.First))
				ledgertest.Append(t, pool, entries[0].Key, ledger.EventFailed)
				ledgertest.Append(t, pool, entries[1].Key, ledger.EventSucceeded)
				a.run(t, pool, enqueueAll(&o.Again))
				for i, first := range o.First {
					if o.Again[i].Position != first.Position {
						t.Errorf("entry %d: position %d, and %d the second time",
							i, first.Position, o.Again[i].Position)
					}
				}
				o.Rows, o.Timers = storedRows(t, pool), timers(t, pool)
				ledgertest.Check(t, pool)
				outcomes[i] = o
			})
		}
	})
	if t.Failed() {
		return
	}
	for _, o := range outcomes {
		for i := range o.First { // each ledger has its own positions, and SQL returns no difference
			o.First[i].Position, o.First[i].Difference = 0, ""
			o.Again[i].Position, o.Again[i].Difference = 0, ""
		}
	}
	want := outcomes[0]
	if got := len(want.Rows); got != len(oddBizIDs)+7+4+2 {
		t.Errorf("%d rows", got)
	}
	for i, a := range adapters() {
		if diff := difference.Of(want, outcomes[i]); diff != "" {
			t.Errorf("%s differs from %s (-%[2]s +%[1]s):\n%s", a.name, adapters()[0].name, diff)
		}
	}
	states := map[ledger.State]int{}
	for _, e := range want.Again {
		if e.New {
			t.Errorf("%s is new the second time", e.Key)
		}
		states[e.State]++
	}
	versions, priorities, partitions := 0, 0, 0
	for _, row := range want.Rows {
		if strings.Contains(row, `"priority": 1,`) || strings.Contains(row, `"priority": 4,`) {
			priorities++
		}
		if !strings.Contains(row, `"partition": null`) {
			partitions++
		}
		if strings.Contains(row, `"data_version": 2}`) || strings.Contains(row, `"data_version": 32767}`) {
			versions++
		}
	}
	if versions != 2 || priorities != 2 || partitions != 2 {
		t.Errorf("%d tasks have the version of their args, %d their priority, %d their partition",
			versions, priorities, partitions)
	}
	if states[ledger.StateRetrying] != 4 || states[ledger.StateSucceeded] != 1 {
		t.Errorf("states of existing tasks: %v", states)
	}
}

// storedRows returns all events as JSON, without the columns that differ from run to run.
func storedRows(t *testing.T, db ledger.DB) []string {
	t.Helper()
	rows, err := db.Query(t.Context(), `
		select jsonb_build_object('version', version, 'attempt', attempt, 'shard', shard, 'type', type, 'kind', kind,
		       'biz_id', biz_id, 'actor', actor, 'data_version', data_version, 'priority', priority,
		       'partition', partition, 'data', data::text, 'meta', meta::text)::text
		  from taskledger.event order by kind, biz_id, version`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A rollback of a *sql.Tx removes its tasks, and its errors name cures as errors of pgx do.
func TestSQLTxRollsBackAndExplains(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	db := openSQL(t, pool)
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	k := ledger.Key{Kind: "coupon.send", BizID: "1"}
	ledgertest.Enqueue(t, stdsql.Wrap(tx), k, `{"n": 1}`)
	if _, err := ledger.Load(t.Context(), stdsql.Wrap(tx), k); err != nil {
		t.Errorf("in the transaction: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	wantError(t, errorOf(ledger.Load(t.Context(), stdsql.Wrap(db), k)), ledger.ErrUnknownTask)

	ledgertest.ExecAsOwner(t, pool, "drop schema taskledger, taskledger_internal cascade")
	wantError(t, errorOf(ledger.Enqueue(t.Context(), stdsql.Wrap(db), k, nil, nil)), ledger.ErrNotMigrated)
}
