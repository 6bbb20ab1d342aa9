package ledger_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Predecessors that are not allowed are typed errors, in Go and in SQL, and nothing is written.
func TestInvalidPredecessors(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	known, k := ledgertest.Key(t, "test.part/a"), ledgertest.Key(t, "test.join/a")
	ledgertest.Enqueue(t, pool, known, "{}")
	many := make([]ledger.Key, 10_000)
	for i := range many {
		many[i] = ledger.Key{Kind: "test.part", BizID: ledger.BizID(fmt.Sprint(i))}
	}
	for _, test := range []struct {
		name    string
		options ledger.EnqueueOptions
		sql     string // the argument after; "": none
	}{
		{name: "unknown", options: ledger.EnqueueOptions{After: []ledger.Key{known, {Kind: "test.part", BizID: "b"}}}},
		{name: "itself", options: ledger.EnqueueOptions{After: []ledger.Key{k}}},
		{name: "ten thousand", options: ledger.EnqueueOptions{After: many}},
		{name: "no kind", options: ledger.EnqueueOptions{After: []ledger.Key{{BizID: "a"}}}},
		{name: "due", options: ledger.EnqueueOptions{After: []ledger.Key{known}, RunIn: time.Hour}},
		{name: "otherwise", options: ledger.EnqueueOptions{After: []ledger.Key{known}, Otherwise: "dance"}},
		{name: "meta", options: ledger.EnqueueOptions{
			Meta: ledger.Meta{Extra: map[string]json.RawMessage{"after": json.RawMessage(`{"keys":[]}`)}},
		}},
	} {
		_, err := ledger.Enqueue(t.Context(), pool, k, nil, &test.options)
		var invalid *ledger.InvalidError
		if !errors.As(err, &invalid) || len(err.Error()) > 400 {
			t.Errorf("%s: %v", test.name, err)
		}
		if _, err := ledger.EnqueueMany(t.Context(), pool, []ledger.Entry{
			{Key: k, Options: &test.options}, {Key: ledgertest.Key(t, "test.join/b")},
		}); !errors.As(err, &invalid) {
			t.Errorf("%s among many: %v", test.name, err)
		}
		after, err := json.Marshal(ledger.After{Keys: test.options.After, Otherwise: test.options.Otherwise})
		if err != nil {
			t.Fatal(err)
		}
		meta, runIn := "{}", ""
		switch test.name {
		case "meta":
			after, meta = nil, `{"after":{}}`
		case "due":
			runIn = "1 hour"
			after = []byte(strings.Replace(string(after), `""`, `"run"`, 1))
		}
		_, err = pool.Exec(t.Context(), `select taskledger.enqueue($1, $2, after => nullif($3, '')::json,
			meta => $4::json, run_in => nullif($5, '')::interval)`,
			string(k.Kind), string(k.BizID), string(after), meta, runIn)
		if !pgerr.Is(err, "22023") {
			t.Errorf("%s in SQL: %v", test.name, err)
		}
	}
	for _, after := range []string{`7`, `{}`, `{"keys":{}}`, `{"keys":[]}`, `{"keys":[7]}`, `{"keys":[null]}`,
		`{"keys":[{"kind":"a"}]}`, `{"keys":[{"kind":"a","biz_id":"\u0000"}]}`, `{"key":[]}`,
		`{"keys":[{"kind":"test.part","biz_id":"a"}],"otherwise":7}`} {
		for _, call := range []string{
			`select taskledger.enqueue('test.join', 'a', after => $1::json)`,
			`select taskledger.enqueue_many(json_build_array(json_build_object(
			   'kind', 'test.join', 'biz_id', 'a', 'after', $1::json)))`,
		} {
			if _, err := pool.Exec(t.Context(), call, after); !pgerr.Is(err, "22023", "22P05") {
				t.Errorf("%s of %s: %v", call, after, err)
			}
		}
	}
	if _, err := ledger.Load(t.Context(), ledgertest.As(t, pool, "reader"), k); !errors.Is(err, ledger.ErrUnknownTask) {
		t.Errorf("the task exists: %v", err)
	}
}

// Entries of one call may come after earlier ones, in Go and in SQL, and not after later ones.
func TestPredecessorsInOneCall(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	a, z := ledgertest.Key(t, "test.part/a"), ledgertest.Key(t, "test.part/z")
	afterZ := ledger.Entry{Key: a, Options: &ledger.EnqueueOptions{After: []ledger.Key{z}}}
	var invalid *ledger.InvalidError
	_, err := ledger.EnqueueMany(t.Context(), pool, []ledger.Entry{afterZ, {Key: z}})
	if !errors.As(err, &invalid) {
		t.Errorf("after a later entry: %v", err)
	}
	all, err := ledger.EnqueueMany(t.Context(), pool, []ledger.Entry{{Key: z}, afterZ})
	if err != nil || all[0].State != ledger.StateAvailable || all[1].State != ledger.StateScheduled {
		t.Errorf("after an earlier entry: %+v, %v", all, err)
	}
	var states []string
	err = pool.QueryRow(t.Context(), `select array_agg(state::text) from taskledger.enqueue_many('[
		{"kind": "test.sql", "biz_id": "z"},
		{"kind": "test.sql", "biz_id": "a", "after": {"keys": [{"kind": "test.sql", "biz_id": "z"}]}}]')`).Scan(&states)
	if err != nil || fmt.Sprint(states) != "[available scheduled]" {
		t.Errorf("in SQL: %v, %v", states, err)
	}
	reader := ledgertest.As(t, pool, "reader")
	for _, k := range []ledger.Key{a, ledgertest.Key(t, "test.sql/a")} {
		task, err := ledger.Load(t.Context(), reader, k)
		if err != nil || len(task.After) != 1 || task.After[0].BizID != "z" || task.State != ledger.StateScheduled {
			t.Errorf("%s: %+v, %v", k, task, err)
		}
		predecessors, err := ledger.Predecessors(t.Context(), reader, k)
		if err != nil || len(predecessors) != 1 || predecessors[0].State != ledger.StateAvailable {
			t.Errorf("predecessors of %s: %v, %v", k, predecessors, err)
		}
	}
	var timers int
	err = reader.QueryRow(t.Context(), `select count(*) from taskledger.timers where reason = 'after'`).Scan(&timers)
	if err != nil || timers != 2 {
		t.Errorf("%d timers, want 2 (%v)", timers, err)
	}
}

// A session may use the setting by which a backslash in a plain string begins an escape.
func TestEnqueueWithOldStrings(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	ledgertest.Enqueue(t, pool, ledger.Key{Kind: "test.join", BizID: "first"}, "")
	tx := beginTx(t, pool, pgx.ReadCommitted)
	for _, statement := range []string{
		"set local standard_conforming_strings = off",
		`select taskledger.enqueue('test.join', 'second', meta => ' { "source":"shop"}',
		                           after => '{"keys":[{"kind":"test.join","biz_id":"first"}]}')`,
	} {
		if _, err := tx.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	task, err := ledger.Load(t.Context(), tx, ledger.Key{Kind: "test.join", BizID: "second"})
	if err != nil || task.State != ledger.StateScheduled {
		t.Errorf("%+v, %v", task, err)
	}
}
