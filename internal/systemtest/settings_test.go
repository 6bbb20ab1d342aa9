package systemtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/scheduler"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
	"github.com/taskledger/taskledger/workers"
)

// memo is the args and the result of the tasks of [TestSettingsOfLogins].
type memo struct {
	Text string `json:"text"`
	Time time.Time
}

// The kinds of these tasks, one for each guarantee.
var (
	memoExactly = ledger.MustKind[memo]("memo.exactly")
	memoAtLeast = ledger.MustKind[memo]("memo.at-least")
	memoAtMost  = ledger.MustKind[memo]("memo.at-most")
)

// Logins have any settings: of texts and times, of plans, of transactions. Tasks of every guarantee keep their args,
// tags, errors and results, and no event differs from its projection.
func TestSettingsOfLogins(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		settings []string
	}{
		{name: "texts", settings: []string{
			"backslash_quote = off", "bytea_output = escape", "client_encoding = LATIN1",
			"datestyle = 'SQL, DMY'", "extra_float_digits = -15", "intervalstyle = sql_standard",
			"quote_all_identifiers = on", "standard_conforming_strings = off", "timezone = 'Asia/Kathmandu'",
			"transform_null_equals = on", "xmlbinary = hex",
		}},
		{name: "plans", settings: []string{
			"cursor_tuple_fraction = 1", "enable_hashagg = off", "enable_indexonlyscan = off", "enable_indexscan = off",
			"enable_nestloop = off", "from_collapse_limit = 1", "geqo_threshold = 2", "jit = off",
			"join_collapse_limit = 1",
			"min_parallel_table_scan_size = 0", "parallel_setup_cost = 0",
			"parallel_tuple_cost = 0", "plan_cache_mode = force_generic_plan", "random_page_cost = 1000",
			"work_mem = '64kB'",
		}},
		{name: "transactions", settings: []string{
			"client_min_messages = debug5", "commit_siblings = 0", "default_transaction_deferrable = on",
			"idle_in_transaction_session_timeout = '10s'", "lock_timeout = '10s'", "search_path = pg_temp, evil",
			"statement_timeout = '20s'", "synchronous_commit = off",
		}},
		{name: "repeatable read", settings: []string{"default_transaction_isolation = 'repeatable read'"}},
		{name: "serializable", settings: []string{"default_transaction_isolation = serializable"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := newDepot(t)
			for _, setting := range test.settings {
				ledgertest.ExecAsOwner(t, d.db, "alter database "+ledgertest.Database+" set "+setting)
			}
			d.db.Reset()
			remember(t, d)
		})
	}
}

// remember runs tasks of every guarantee, alone, together and later, of which every third fails once.
func remember(t *testing.T, d *depot) {
	d.startServing()
	d.start("scheduler", func(db *pgxpool.Pool, _ *nats.Conn, log *slog.Logger) (runner, error) {
		return scheduler.New(scheduler.Config{DB: db, Logger: log})
	})
	d.start("memos", newMemos)
	args := memo{
		Text: `NULL 'single' "double" \ \\ {} ` + "žluťoučký 名前 \n\t €",
		Time: time.Date(2026, 3, 4, 5, 6, 7, 890_123_000, time.UTC),
	}
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	tags := []string{"NULL", `a\b`, "c'd", `{"e"}`}
	var keys []ledger.Key
	var batch []ledger.Entry
	for i, kind := range []ledger.TypedKind[memo]{memoExactly, memoAtLeast, memoAtMost} {
		for n, options := range []*ledger.EnqueueOptions{
			nil,
			{Meta: ledger.Meta{Tags: tags}, Actor: "NULL"},
			{Meta: ledger.Meta{Tags: tags}, RunIn: 300 * time.Millisecond},
		} {
			key := ledger.Key{Kind: kind.Name(), BizID: ledger.BizID(fmt.Sprintf("one-%d-%d", i, n))}
			if _, err := kind.Enqueue(t.Context(), d.db, key.BizID, args, options); err != nil {
				t.Fatalf("enqueue %s: %v", key, err)
			}
			keys = append(keys, key)
			key.BizID = ledger.BizID(fmt.Sprintf("many-%d-%d", i, n))
			batch = append(batch, ledger.Entry{Key: key, Args: raw, Options: options})
			keys = append(keys, key)
		}
	}
	if _, err := ledger.EnqueueMany(t.Context(), d.db, batch); err != nil {
		t.Fatalf("enqueue many: %v", err)
	}
	d.await("the tasks to succeed", func() bool {
		return d.count(`select count(*) from taskledger.task where state = 'succeeded'`) == len(keys)
	})
	for _, key := range keys {
		checkMemo(t, d, key, args, tags)
	}
	verified, err := projector.Verify(t.Context(), d.db, nil)
	if err != nil || !verified.Equal() {
		t.Errorf("the projection differs from the events: %+v, %v", verified, err)
	}
	ledgertest.Check(t, d.db)
}

// checkMemo compares a task and its events with what was enqueued and returned.
func checkMemo(t *testing.T, d *depot, key ledger.Key, args memo, tags []string) {
	t.Helper()
	task, err := ledger.Load(t.Context(), d.db, key)
	if err != nil {
		t.Fatal(err)
	}
	result, err := ledger.ResultOf[memo](task)
	if err != nil || result != args {
		t.Errorf("%s has the result %+v, %v", key, result, err)
	}
	events, err := ledger.History(t.Context(), d.db, key)
	if err != nil {
		t.Fatal(err)
	}
	meta, err := ledger.ParseMeta(events[0].Meta)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(string(key.BizID), "-0") {
		tags = nil
	}
	if !slices.Equal(meta.Tags, tags) {
		t.Errorf("%s has the tags %q", key, meta.Tags)
	}
	if isNamed := strings.HasSuffix(string(key.BizID), "-1"); isNamed != (events[0].Actor == "NULL") {
		t.Errorf("%s has the actor %q", key, events[0].Actor)
	}
	for _, e := range events {
		if e.Type == ledger.EventFailed && e.ErrorText() != args.Text {
			t.Errorf("%s has the error %q", key, e.ErrorText())
		}
		if e.RecordedAt.Sub(task.EnqueuedAt).Abs() > patience {
			t.Errorf("%s has an event of %s", key, e.RecordedAt)
		}
	}
}

// newMemos makes workers whose results are the args of their tasks. The first attempt of a task in a batch fails, but
// for tasks that run at most once.
func newMemos(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error) {
	p, err := workers.New(workers.Config{DB: db, NATS: nc, Logger: log, LeaseTTL: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	act := func(_ context.Context, job *workers.Job, args memo) error {
		if job.Attempt == 1 && job.Kind != memoAtMost.Name() && strings.HasPrefix(string(job.BizID), "many") {
			return errors.New(args.Text)
		}
		return job.Result(args)
	}
	retry := &workers.KindConfig{Retry: ledger.RetryPolicy{Unit: time.Millisecond}}
	return p, errors.Join(
		p.Register(workers.Handle(memoExactly, func(ctx context.Context, _ pgx.Tx, job *workers.Job, args memo) error {
			return act(ctx, job, args)
		}, retry)),
		p.Register(workers.Handle(memoAtLeast, act, retry)),
		p.Register(workers.Handle(memoAtMost, act, &workers.KindConfig{Guarantee: workers.AtMostOnce})))
}
