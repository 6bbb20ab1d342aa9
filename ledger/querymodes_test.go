package ledger_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/stdsql"
)

var queryModes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

// Each function works in each query mode of pgx and through database/sql, under settings of the database that change
// the text of a time, an interval, bytes and a number.
func TestEveryVerbWorksInEveryQueryMode(t *testing.T) {
	t.Parallel()
	for _, mode := range queryModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			address := ledgertest.URL(t, ledgertest.App, "relay", "operator")
			plantest.Settings(t, address)
			conn := connectIn(t, address, mode)
			everyVerb(t, conn)
			tx := ledger.BeginOn(t.Context(), conn, &ledger.TxOptions{Guard: true})
			k := ledger.Key{Kind: "mode", BizID: "commit"}
			ledgertest.Enqueue(t, tx, k, "")
			r := ledger.AppendRequest{Key: k, Expected: 1, Type: ledger.EventSucceeded}
			r.Data = json.RawMessage(`{"result": [1]}`)
			if _, err := tx.AppendAndCommit(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			beginIncarnation(t, address)
			r.Key.BizID = "commit after what was read"
			ledgertest.Enqueue(t, conn, r.Key, "")
			reads := []ledger.AppendRequest{r}
			readLast(t, conn, reads)
			tx = ledger.BeginOn(t.Context(), conn, &ledger.TxOptions{Guard: true})
			if _, err := tx.AppendAndCommit(t.Context(), reads...); err != nil {
				t.Fatal(err)
			}
			ledgertest.Check(t, conn)
		})
	}
	for _, mode := range queryModes {
		t.Run("database/sql "+mode.String(), func(t *testing.T) {
			t.Parallel()
			config, err := pgx.ParseConfig(ledgertest.URL(t, ledgertest.App, "relay", "operator"))
			if err != nil {
				t.Fatal(err)
			}
			plantest.Settings(t, config.ConnString())
			config.DefaultQueryExecMode = mode
			db := stdlib.OpenDB(*config)
			defer db.Close()
			everyVerb(t, stdsql.Wrap(db))
		})
	}
}

// connectIn returns a connection with a query mode.
func connectIn(t *testing.T, url string, mode pgx.QueryExecMode) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.DefaultQueryExecMode = mode
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// everyVerb calls each function of package ledger on db, with each parameter null and not null, and checks the
// results.
func everyVerb(t *testing.T, db ledger.DB) {
	t.Helper()
	ctx := t.Context()
	k := ledger.Key{Kind: "mode", BizID: `it's "1" \ {%}`}
	args := json.RawMessage(`{"a" : "it's \\ \u0000 $1"}`)
	shard := ledger.Shard(7)
	options := &ledger.EnqueueOptions{Shard: &shard, Actor: "o'tester", Meta: ledger.Meta{Tags: []string{"x"}}}
	for range 2 {
		if _, err := ledger.Enqueue(ctx, db, k, args, options); err != nil {
			t.Fatal(err)
		}
	}
	binary := ledger.Key{Kind: "mode", BizID: "binary"}
	for range 2 {
		_, err := ledger.EnqueueMany(ctx, db, []ledger.Entry{
			{Key: ledger.Key{Kind: "mode", BizID: "plain"}}, {Key: k, Args: args, Options: options},
			{Key: binary, Args: []byte("\x00\xff{"), Options: &ledger.EnqueueOptions{Binary: true}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	later := ledger.Key{Kind: "mode", BizID: "later"}
	timed := &ledger.EnqueueOptions{
		RunIn: time.Hour, StartBy: time.Now().Add(2 * time.Hour), FinishBy: time.Now().Add(3 * time.Hour),
	}
	if _, err := ledger.Enqueue(ctx, db, later, nil, timed); err != nil {
		t.Fatal(err)
	}
	postponed := ledger.AppendRequest{
		Key: later, Expected: 1, Type: ledger.EventScheduled, At: time.Now().Add(time.Hour),
	}
	started := ledger.AppendRequest{Key: k, Expected: 1, Type: ledger.EventStarted}
	for _, r := range []ledger.AppendRequest{postponed, started} {
		if _, err := ledger.Append(ctx, db, r); err != nil {
			t.Fatal(err)
		}
	}
	wantErrorAs[*ledger.ConflictError](t, errorOf(ledger.Append(ctx, db, started)))
	everyMoment(t, db, k)
	group := ledger.AppendEach(ctx, db, []ledger.AppendRequest{
		{
			Key: k, Expected: 2, Type: ledger.EventSucceeded, Actor: "o'worker",
			Data: json.RawMessage(`{"result" : "it's \\"}`), Meta: json.RawMessage(`{}`),
		},
		{Key: binary, Expected: 1, Type: ledger.EventFailed, In: time.Hour},
	})
	for _, result := range group {
		if result.Err != nil {
			t.Fatal(result.Err)
		}
	}

	task, err := ledger.Load(ctx, db, k)
	if err != nil {
		t.Fatal(err)
	}
	want := ledger.Task{
		Key: k, Shard: 7, State: ledger.StateSucceeded, Run: 1, Version: 3, Attempt: 1, Actor: "o'worker",
		Args: args, Result: json.RawMessage(`"it's \\"`),
		EnqueuedAt: task.EnqueuedAt, UpdatedAt: group[0].Event.RecordedAt,
	}
	if diff := difference.Of(want, task); diff != "" {
		t.Errorf("task (-want +got):\n%s", diff)
	}
	history, err := ledger.History(ctx, db, binary)
	if err != nil {
		t.Fatal(err)
	}
	if payload, err := history[0].Payload(); err != nil || string(payload) != "\x00\xff{" {
		t.Errorf("binary payload %q, %v", payload, err)
	}
	if diff := difference.Of(group[1].Event, history[1]); diff != "" {
		t.Errorf("appended and stored event (-appended +stored):\n%s", diff)
	}

	var read []ledger.Event
	for e, err := range ledger.Read(ctx, db, 0, 100) {
		if err != nil {
			t.Fatal(err)
		}
		read = append(read, e)
	}
	reader, err := feed.Open(ctx, db, "everyVerb", nil)
	if err != nil {
		t.Fatal(err)
	}
	page, err := reader.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if diff := difference.Of(read, page.Events); diff != "" || len(read) != 8 {
		t.Errorf("%d events, want 8 (-Read +feed):\n%s", len(read), diff)
	}
	if err := page.Advance(ctx, db, json.RawMessage(`{"mark": "it's"}`)); err != nil {
		t.Fatal(err)
	}
	cursors, err := reader.Cursors(ctx, 0, 10)
	if err != nil || len(cursors) != 2 {
		t.Fatalf("%d cursors, %v", len(cursors), err)
	}
	if err := reader.Rewind(ctx, cursors[1], nil); err != nil {
		t.Fatal(err)
	}
	if page, err = reader.Next(ctx); err != nil || len(page.Events) != len(read) {
		t.Errorf("after rewind: %d events, %v", len(page.Events), err)
	}
}

func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	app := ledgertest.URL(t, ledgertest.App, "operator")
	owner := ledgertest.URLAs(t, app, ledgertest.Owner)
	plantest.PrepareAs(t, func(file string) string {
		if file == "sql/installation_renew.sql" {
			return owner // of a copy, which is rebased
		}
		return app
	}, "ledgertest/check.sql")
}

// everyMoment calls each function of moments on db.
func everyMoment(t *testing.T, db ledger.DB, k ledger.Key) {
	t.Helper()
	events, err := ledger.History(t.Context(), db, k)
	if err != nil {
		t.Fatal(err)
	}
	last := events[len(events)-1]
	for _, find := range []func() (ledger.Moment, error){
		func() (ledger.Moment, error) { return ledger.MomentAt(t.Context(), db, last.RecordedAt) },
		func() (ledger.Moment, error) { return ledger.MomentOf(t.Context(), db, last.Position) },
	} {
		m, err := find()
		if err != nil {
			t.Fatal(err)
		}
		task, err := ledger.LoadAsOf(t.Context(), db, k, m)
		if err != nil || task.Version != last.Version {
			t.Errorf("as of %s: %v, %v", m, task, err)
		}
	}
	_, err = ledger.MomentOf(t.Context(), db, 1<<40)
	wantText(t, err, "no event has this position")
}
