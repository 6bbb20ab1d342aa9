package ledger_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A batch treats each entry by its own options.
func TestEnqueueManyAgain(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	key := func(id string) ledger.Key { return ledger.Key{Kind: resync.Kind, BizID: ledger.BizID(id)} }
	for _, id := range []string{"done", "waits", "same"} {
		ledgertest.Enqueue(t, pool, key(id), `1`)
	}
	ledgertest.Append(t, pool, key("done"), ledger.EventSucceeded)
	entry := func(id string, i ledger.IfExists) ledger.Entry {
		return ledger.Entry{Key: key(id), Args: json.RawMessage(`2`), Options: &ledger.EnqueueOptions{IfExists: i}}
	}
	answers, err := ledger.EnqueueMany(t.Context(), pool, []ledger.Entry{
		entry("waits", ledger.IfExistsReplace), entry("new", ledger.IfExistsRerun),
		entry("same", ledger.IfExistsIgnore), entry("done", ledger.IfExistsRerun),
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range answers {
		got = append(got, fmt.Sprintf("%s %v %d", a.BizID, a.New, a.Version))
	}
	want := []string{"waits true 2", "new true 1", "same false 1", "done true 3"}
	if diff := difference.Of(want, got); diff != "" {
		t.Error(diff)
	}
	ledgertest.Check(t, pool)
}

// Each entry of a batch gets the result of its own write, even if a later entry replaces its args.
func TestEnqueueManyOfOneKeyInSQL(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	rows, err := pool.Query(t.Context(), `
		select concat_ws(' ', is_new, same_args, version, "position")
		  from taskledger.enqueue_many('[{"kind":"a","biz_id":"1","args":1,"if_exists":"replace"},
		                                 {"kind":"a","biz_id":"1","args":2,"if_exists":"replace"},
		                                 {"kind":"a","biz_id":"1","args":1}]')`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	events, err := ledger.History(t.Context(), pool, ledger.Key{Kind: "a", BizID: "1"})
	if err != nil || len(events) != 2 {
		t.Fatalf("%v, %v", events, err)
	}
	want := []string{
		fmt.Sprintf("t t 1 %d", events[0].Position), fmt.Sprintf("t t 2 %d", events[1].Position),
		fmt.Sprintf("f f 2 %d", events[1].Position),
	}
	if diff := difference.Of(want, got); diff != "" {
		t.Error(diff)
	}
}

// Entries of one key take effect in their order, in Go and in SQL: an entry that only reads the task gets the run that
// the entries before it have left.
func TestEntriesOfOneKeyInOrder(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	steps := []struct {
		key, args string
		ifExists  ledger.IfExists
		want      string // whether it is new, whether the args are the same, version, state
	}{
		{key: "done", args: "1", want: "false true 2 succeeded"},
		{key: "done", args: "2", ifExists: ledger.IfExistsRerun, want: "true true 3 available"},
		{key: "done", args: "1", ifExists: ledger.IfExistsIgnore, want: "false false 3 available"},
		{key: "done", args: "3", ifExists: ledger.IfExistsReplace, want: "true true 4 available"},
		{key: "done", args: "3", want: "false true 4 available"},
		{key: "new", args: "1", ifExists: ledger.IfExistsReplace, want: "true true 1 available"},
		{key: "new", args: "2", ifExists: ledger.IfExistsReplace, want: "true true 2 available"},
	}
	for _, kind := range []ledger.Kind{"in.go", "in.sql"} {
		ledgertest.Enqueue(t, pool, ledger.Key{Kind: kind, BizID: "done"}, "1")
		ledgertest.Append(t, pool, ledger.Key{Kind: kind, BizID: "done"}, ledger.EventSucceeded)
	}
	entries := make([]ledger.Entry, len(steps))
	list := make([]map[string]any, len(steps))
	for i, s := range steps {
		entries[i] = ledger.Entry{Key: ledger.Key{Kind: "in.go", BizID: ledger.BizID(s.key)},
			Args: json.RawMessage(s.args), Options: &ledger.EnqueueOptions{IfExists: s.ifExists}}
		list[i] = map[string]any{"kind": "in.sql", "biz_id": s.key, "args": json.RawMessage(s.args)}
		if s.ifExists != ledger.IfExistsSame {
			list[i]["if_exists"] = s.ifExists
		}
	}
	answers, err := ledger.EnqueueMany(t.Context(), pool, entries)
	if err != nil {
		t.Fatal(err)
	}
	document, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := pool.Query(t.Context(), `
		select concat_ws(' ', is_new::text, same_args::text, version, state)
		  from taskledger.enqueue_many($1::text::json)`, string(document))
	if err != nil {
		t.Fatal(err)
	}
	inSQL, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range steps {
		a := answers[i]
		if got := fmt.Sprint(a.New, " ", a.SameArgs, " ", a.Version, " ", a.State); got != s.want {
			t.Errorf("entry %d in Go: %s, want %s", i, got, s.want)
		}
		if inSQL[i] != s.want {
			t.Errorf("entry %d in SQL: %s, want %s", i, inSQL[i], s.want)
		}
	}
	ledgertest.Check(t, pool)
}
