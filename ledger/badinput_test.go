package ledger_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// badKeys are invalid in Go and in SQL. The value is the invalid field.
var badKeys = map[ledger.Key]string{
	{Kind: "", BizID: "1"}:        "kind",
	{Kind: " ", BizID: "1"}:       "kind",
	{Kind: ".a", BizID: "1"}:      "kind",
	{Kind: "a.", BizID: "1"}:      "kind",
	{Kind: "a..b", BizID: "1"}:    "kind",
	{Kind: "a b", BizID: "1"}:     "kind",
	{Kind: "a/b", BizID: "1"}:     "kind",
	{Kind: "a*", BizID: "1"}:      "kind",
	{Kind: ">", BizID: "1"}:       "kind",
	{Kind: "a\n", BizID: "1"}:     "kind",
	{Kind: "a\nb", BizID: "1"}:    "kind",
	{Kind: "é", BizID: "1"}:       "kind",
	{Kind: "k\u0131", BizID: "1"}: "kind",
	{Kind: ledger.Kind(strings.Repeat("k", ledger.MaxKindLen+1)), BizID: "1"}: "kind",
	{Kind: "k", BizID: ""}:       "biz_id",
	{Kind: "k", BizID: "\t"}:     "biz_id",
	{Kind: "k", BizID: "a\nb"}:   "biz_id",
	{Kind: "k", BizID: "a\x1bb"}: "biz_id",
	{Kind: "k", BizID: "\x7f"}:   "biz_id",
	{Kind: "k", BizID: "\u0080"}: "biz_id",
	{Kind: "k", BizID: "\u009f"}: "biz_id",
	{Kind: "k", BizID: ledger.BizID(strings.Repeat("b", ledger.MaxBizIDLen+1))}: "biz_id",
	{Kind: "k", BizID: ledger.BizID(strings.Repeat("é", 128))}:                  "biz_id",
}

// unsendableKeys are invalid keys that no SQL parameter can contain.
var unsendableKeys = map[ledger.Key]string{
	{Kind: "a\x00", BizID: "1"}:        "kind",
	{Kind: "k", BizID: "a\x00b"}:       "biz_id",
	{Kind: "k", BizID: "\xff"}:         "biz_id",
	{Kind: "k", BizID: "a\xc3"}:        "biz_id",
	{Kind: "k", BizID: "\xed\xa0\x80"}: "biz_id",
}

func TestBadKeysAreRefusedByEveryVerb(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	tx := beginTx(t, pool, pgx.ReadCommitted)
	valid := ledger.Entry{Key: ledger.Key{Kind: "ok", BizID: "1"}}
	isControl := func(r rune) bool { return r < ' ' }
	for _, keys := range []map[ledger.Key]string{badKeys, unsendableKeys} {
		for k, field := range keys {
			started := ledger.AppendRequest{Key: k, Expected: 1, Type: ledger.EventStarted}
			if _, isUnsendable := unsendableKeys[k]; isUnsendable != (k.ValidateStored() != nil) {
				t.Errorf("%q: ValidateStored returns %v", k, k.ValidateStored())
			}
			for verb, err := range map[string]error{
				"Validate":    k.Validate(),
				"Enqueue":     errorOf(ledger.Enqueue(t.Context(), tx, k, nil, nil)),
				"EnqueueMany": errorOf(ledger.EnqueueMany(t.Context(), tx, []ledger.Entry{valid, {Key: k}})),
				"Append":      errorOf(ledger.Append(t.Context(), tx, started)),
				"Load":        errorOf(ledger.Load(t.Context(), tx, k)),
				"History":     errorOf(ledger.History(t.Context(), tx, k)),
			} {
				isLookup := verb == "Append" || verb == "Load" || verb == "History"
				if isLookup && k.ValidateStored() == nil { // the owner of the schema may have inserted it
					if !errors.Is(err, ledger.ErrUnknownTask) {
						t.Errorf("%s of %q: %v, want ErrUnknownTask", verb, k, err)
					}
					continue
				}
				invalid := wantErrorAs[*ledger.InvalidError](t, err)
				if invalid.Field != field || invalid.Rule == "" {
					t.Errorf("%s of %q: %v", verb, k, invalid)
				}
				if text := err.Error(); len(text) > 1000 || strings.ContainsFunc(invalid.Error(), isControl) {
					t.Errorf("%s of %q: error of %d bytes: %s", verb, k, len(text), text)
				}
			}
		}
	}
	wantUsable(t, tx)
	if rows := storedRows(t, pool); len(rows) != 0 {
		t.Errorf("rows were written: %v", rows)
	}
}

func TestBadKeysAreRefusedInSQL(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	enqueuers := map[string]enqueuer{"enqueue": bySQLFunction(pool), "enqueue_many": bySQLFunctionMany(pool)}
	for k, field := range badKeys {
		for name, enqueue := range enqueuers {
			pg := wantErrorAs[*pgconn.PgError](t, errorOf(enqueue(t.Context(), []ledger.Entry{{Key: k}})))
			if pg.Code != "22023" || !strings.Contains(pg.Message, "invalid "+field) || pg.Hint == "" {
				t.Errorf("%s of %q: %v (hint %q)", name, k, pg, pg.Hint)
			}
		}
	}
}

func TestLongestKeysWork(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	k := ledger.Key{
		Kind:  ledger.Kind(strings.Repeat("k", ledger.MaxKindLen)),
		BizID: ledger.BizID("é" + strings.Repeat("b", ledger.MaxBizIDLen-2)),
	}
	ledgertest.Append(t, pool, k, ledger.EventSucceeded)
	for _, enqueue := range []enqueuer{bySQLFunction(pool), bySQLFunctionMany(pool)} {
		if answers, err := enqueue(t.Context(), []ledger.Entry{{Key: k}}); err != nil || answers[0].New {
			t.Errorf("%v, %v", answers, err)
		}
	}
	ledgertest.Check(t, pool)
}

// Keys whose texts are similar are keys of different tasks.
func TestSameIDOfTwoKinds(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	keys := []ledger.Key{
		{Kind: "a", BizID: "1"}, {Kind: "b", BizID: "1"}, {Kind: "a", BizID: "b.1"}, {Kind: "a.b", BizID: "1"},
		{Kind: "a", BizID: "b/1"}, {Kind: "a", BizID: "."}, {Kind: "a", BizID: ".1"}, {Kind: "a", BizID: "1."},
		{Kind: "A", BizID: "1"}, {Kind: "a", BizID: " 1"},
	}
	for name, enqueue := range map[string]enqueuer{
		"enqueue": bySQLFunction(pool), "enqueue_many": bySQLFunctionMany(pool), "EnqueueMany": together(pool),
	} {
		var entries []ledger.Entry
		for i, k := range keys {
			k.BizID += ledger.BizID(name)
			entries = append(entries, ledger.Entry{Key: k, Args: fmt.Appendf(nil, "%d", i)})
		}
		answers, err := enqueue(t.Context(), entries)
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range entries {
			task, err := ledger.Load(t.Context(), pool, e.Key)
			if err != nil || !answers[i].New || string(task.Args) != string(e.Args) {
				t.Errorf("%s of %s: %+v with args %s, %v", name, e.Key, answers[i], task.Args, err)
			}
		}
	}
	ledgertest.Check(t, pool)
}

const maxArgs, maxMeta = 256 << 10, 16 << 10

// quoted returns a JSON string of n bytes, quotes included.
func quoted(n int) json.RawMessage {
	return json.RawMessage(`"` + strings.Repeat("x", n-2) + `"`)
}

// metaOf returns options with a meta of n bytes.
func metaOf(n int) *ledger.EnqueueOptions {
	return &ledger.EnqueueOptions{Meta: ledger.Meta{Causation: strings.Repeat("x", n-len(`{"causation":""}`))}}
}

// nested returns arrays that nest depth levels deep.
func nested(depth int) json.RawMessage {
	return json.RawMessage(strings.Repeat("[", depth) + strings.Repeat("]", depth))
}

func TestPayloadLimits(t *testing.T) {
	t.Parallel()
	outOfRange := ledger.Shard(ledger.Shards)
	negative := ledger.Shard(-1)
	binary := &ledger.EnqueueOptions{Binary: true}
	extra := func(text json.RawMessage) *ledger.EnqueueOptions {
		return &ledger.EnqueueOptions{Meta: ledger.Meta{Extra: map[string]json.RawMessage{"a": text}}}
	}
	gzip := &ledger.EnqueueOptions{Meta: ledger.Meta{Encoding: "gzip"}}
	tooLong := strings.Repeat("a", ledger.MaxActorLen+1)
	multibyte := json.RawMessage(`"` + strings.Repeat("é", maxArgs/2) + `"`)
	for _, test := range []struct {
		name    string
		args    json.RawMessage
		options *ledger.EnqueueOptions
		field   string // the invalid field, "" if all are valid
	}{
		{name: "args at the limit", args: quoted(maxArgs)},
		{name: "args over the limit", args: quoted(maxArgs + 1), field: "args"},
		{name: "args of 8 MiB", args: quoted(8 << 20), field: "args"},
		{name: "multibyte args over the limit", args: multibyte, field: "args"},
		{name: "meta at the limit", options: metaOf(maxMeta)},
		{name: "meta over the limit", options: metaOf(maxMeta + 1), field: "meta"},
		{name: "nesting 512", args: nested(512)},
		{name: "nesting 513", args: nested(513), field: "args"},
		{name: "nesting 30,000", args: nested(30_000), field: "args"},
		{name: "unclosed nesting 30,000", args: json.RawMessage(strings.Repeat("[", 30_000)), field: "args"},
		{name: "brackets in a string", args: json.RawMessage(`"` + strings.Repeat(`[\"{`, 5_000) + `"`)},
		{name: "shard 64", options: &ledger.EnqueueOptions{Shard: &outOfRange}, field: "shard"},
		{name: "shard -1", options: &ledger.EnqueueOptions{Shard: &negative}, field: "shard"},
		{name: "data version 32768", options: &ledger.EnqueueOptions{DataVersion: 32768}, field: "data version"},
		{name: "data version -1", options: &ledger.EnqueueOptions{DataVersion: -1}, field: "data version"},
		{name: "empty args", args: json.RawMessage{}, field: "args"},
		{name: "blank args", args: json.RawMessage(" "), field: "args"},
		{name: "no JSON", args: json.RawMessage("{coupon}"), field: "args"},
		{name: "two values", args: json.RawMessage("1 2"), field: "args"},
		{name: "trailing comma", args: json.RawMessage(`[1,]`), field: "args"},
		{name: "NaN", args: json.RawMessage(`NaN`), field: "args"},
		{name: "control character", args: json.RawMessage("\"a\x01\""), field: "args"},
		{name: "NUL", args: json.RawMessage("\"a\x00\""), field: "args"},
		{name: "invalid UTF-8", args: json.RawMessage("\"\xff\""), field: "args"},
		{name: "byte order mark", args: json.RawMessage("\ufeff1"), field: "args"},
		{name: "escaped NUL", args: json.RawMessage(`{"\u0000":"a\u0000b"}`)},
		{name: "lone surrogate", args: json.RawMessage(`"\ud800"`)},
		{name: "duplicate members", args: json.RawMessage(`{"a":1,"a":2}`)},
		{name: "whitespace", args: json.RawMessage("\n\t [ 1 , 2 ] \r\n")},
		{name: "huge number", args: json.RawMessage(`1e99999`)},
		{name: "binary", args: []byte("\x00\xff\\\"{"), options: binary},
		{name: "empty binary", args: []byte{}, options: binary},
		{name: "binary at the limit", args: bytes.Repeat([]byte{0}, (maxArgs-2)/4*3), options: binary},
		{name: "binary over the limit", args: bytes.Repeat([]byte{0}, maxArgs/4*3), options: binary, field: "args"},
		{name: "actor too long", options: &ledger.EnqueueOptions{Actor: tooLong}, field: "actor"},
		{name: "actor with a line", options: &ledger.EnqueueOptions{Actor: "a\nb"}, field: "actor"},
		{name: "extra meta no JSON", options: extra(json.RawMessage(`{`)), field: "meta"},
		{name: "meta nesting", options: extra(nested(512)), field: "meta"},
		{name: "unknown encoding", args: quoted(5), options: gzip, field: "meta"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			pool := ledgertest.Pool(t)
			tx := beginTx(t, pool, pgx.ReadCommitted)
			entry := ledger.Entry{Key: ledger.Key{Kind: "bad", BizID: "1"}, Args: test.args, Options: test.options}
			for _, enqueue := range []enqueuer{oneByOne(tx), together(tx), together(pool)} {
				answers, err := enqueue(t.Context(), []ledger.Entry{entry})
				if test.field != "" {
					invalid := wantErrorAs[*ledger.InvalidError](t, err)
					if invalid.Field != test.field || len(invalid.Error()) > 1000 {
						t.Errorf("%v, want an invalid %s", invalid, test.field)
					}
					continue
				}
				if err != nil || !answers[0].New {
					t.Fatalf("%v, %v", answers, err)
				}
				history, err := ledger.History(t.Context(), tx, entry.Key)
				if err != nil {
					t.Fatal(err)
				}
				if payload, err := history[0].Payload(); err != nil || !bytes.Equal(payload, test.args) {
					t.Errorf("payload of %d bytes is returned with %d, %v", len(test.args), len(payload), err)
				}
				if err := tx.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
				tx = beginTx(t, pool, pgx.ReadCommitted)
				break
			}
			wantUsable(t, tx)
			ledgertest.Check(t, pool)
		})
	}
}

// If one entry exceeds a limit, EnqueueMany writes nothing and the error names the entry.
func TestOneEntryOverTheLimit(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	ok := ledger.Key{Kind: "bad", BizID: "ok"}
	entries := []ledger.Entry{{Key: ok}, {Key: ledger.Key{Kind: "bad", BizID: "large"}, Args: quoted(maxArgs + 1)}}
	_, err := ledger.EnqueueMany(t.Context(), pool, entries)
	invalid := wantErrorAs[*ledger.InvalidError](t, err)
	if invalid.Field != "args" || !strings.Contains(err.Error(), "bad/large") {
		t.Errorf("%v, want an error that names the entry", err)
	}
	if rows := storedRows(t, pool); len(rows) != 0 {
		t.Errorf("rows were written: %v", rows)
	}
}

func TestLimitsAreThoseOfTheDatabase(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	const lower = `update taskledger.setting set value = 4096 where name in ('max_args_bytes', 'max_meta_bytes')`
	ledgertest.ExecAsOwner(t, pool, lower)
	for _, entry := range []ledger.Entry{
		{Key: ledger.Key{Kind: "bad", BizID: "args"}, Args: quoted(4097)},
		{Key: ledger.Key{Kind: "bad", BizID: "meta"}, Options: metaOf(4097)},
	} {
		for _, enqueue := range []enqueuer{oneByOne(pool), together(pool)} {
			invalid := wantErrorAs[*ledger.InvalidError](t, errorOf(enqueue(t.Context(), []ledger.Entry{entry})))
			if !strings.Contains(invalid.Rule, "4096 bytes") {
				t.Error(invalid)
			}
		}
		for _, enqueue := range []enqueuer{bySQLFunction(pool), bySQLFunctionMany(pool)} {
			pg := wantErrorAs[*pgconn.PgError](t, errorOf(enqueue(t.Context(), []ledger.Entry{entry})))
			if pg.Code != "22023" || !strings.Contains(pg.Message, "must have at most 4096 bytes") {
				t.Error(pg)
			}
		}
	}
	ledgertest.Enqueue(t, pool, ledger.Key{Kind: "bad", BizID: "args"}, string(quoted(4096)))
}

// The SQL functions reject every actor, shard and meta that package ledger rejects.
func TestSQLFunctionsRejectWhatGoRejects(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	const member = `{"kind": "bad", "biz_id": "1", `
	for _, test := range []struct{ name, member, argument string }{
		{
			name: "actor too long", member: fmt.Sprintf(`"actor": "%s"`, strings.Repeat("a", 256)),
			argument: `actor => repeat('a', 256)`,
		},
		{name: "actor with a line", member: `"actor": "a\nb"`, argument: `actor => E'a\nb'`},
		{name: "shard 64", member: `"shard": 64`, argument: `shard => 64`},
		{name: "shard -1", member: `"shard": -1`, argument: `shard => -1`},
		{name: "data version 0", member: `"data_version": 0`, argument: `data_version => 0`},
		{name: "data version 32768", member: `"data_version": 32768`, argument: `data_version => 32768`},
		{name: "priority 0", member: `"priority": 0`, argument: `priority => 0`},
		{name: "priority 5", member: `"priority": 5`, argument: `priority => 5`},
		{name: "priority in words", member: `"priority": "urgent"`, argument: `priority => -1`},
		{
			name: "partition too long", member: fmt.Sprintf(`"partition": "%s"`, strings.Repeat("a", 65)),
			argument: `partition => repeat('a', 65)`,
		},
		{name: "partition with a line", member: `"partition": "a\nb"`, argument: `partition => E'a\nb'`},
		{name: "meta that is an array", member: `"meta": [1]`, argument: `meta => '[1]'`},
		{name: "meta that is a string", member: `"meta": "x"`, argument: `meta => '"x"'`},
	} {
		for name, sql := range map[string]string{
			"enqueue":      `select * from taskledger.enqueue('bad', '1', ` + test.argument + `)`,
			"enqueue_many": `select * from taskledger.enqueue_many('[` + member + test.member + `}]')`,
		} {
			_, err := pool.Exec(t.Context(), sql)
			if code := sqlState(err); code != "22023" {
				t.Errorf("%s with %s: SQLSTATE %q, %v", name, test.name, code, err)
			}
		}
	}
	for _, sql := range []string{
		`select * from taskledger.enqueue_many(null)`,
		`select * from taskledger.enqueue_many('{}')`,
		`select * from taskledger.enqueue_many('[1]')`,
		`select * from taskledger.enqueue_many('[null]')`,
		`select * from taskledger.enqueue_many('[{"kind": "bad"}]')`,
		`select * from taskledger.enqueue(null, '1')`,
		`select * from taskledger.enqueue('bad', null)`,
	} {
		_, err := pool.Exec(t.Context(), sql)
		if code := sqlState(err); code != "22023" {
			t.Errorf("%s: SQLSTATE %q, %v", sql, code, err)
		}
	}
	_, err := pool.Exec(t.Context(), `select * from taskledger.enqueue_many('[`+member+`"run at": "2030-01-01"}]')`)
	if code := sqlState(err); code != "0A000" {
		t.Errorf("an unknown member: SQLSTATE %q, %v", code, err)
	}
	if rows := storedRows(t, pool); len(rows) != 0 {
		t.Fatalf("rows were written: %v", rows)
	}
	// An empty actor and a null meta mean the default.
	for i, sql := range []string{
		`select * from taskledger.enqueue('bad', 'a', actor => '', meta => 'null')`,
		`select * from taskledger.enqueue_many('[{"kind": "bad", "biz_id": "b", "actor": "", "meta": null}]')`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
		row := storedRows(t, pool)[i]
		login := pool.Config().ConnConfig.User
		if !strings.Contains(row, `"actor": "`+login+`"`) || !strings.Contains(row, `"meta": null`) {
			t.Errorf("%s wrote %s", sql, row)
		}
	}
}

func TestReadBounds(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	tx := beginTx(t, pool, pgx.ReadCommitted)
	for _, id := range []ledger.BizID{"1", "2", "3"} {
		ledgertest.Enqueue(t, tx, ledger.Key{Kind: "read", BizID: id}, "")
	}
	for _, test := range []struct {
		after       ledger.Position
		limit, want int
	}{
		{after: 0, limit: 2, want: 2},
		{after: 0, limit: 100, want: 3},
		{after: 1, limit: 100, want: 2},
		{after: 3, limit: 100, want: 0},
		{after: math.MaxInt64, limit: 100, want: 0},
		{after: -5, limit: 100, want: 3},
		{after: 0, limit: math.MaxInt, want: 3},
	} {
		got := 0
		for _, err := range ledger.Read(t.Context(), tx, test.after, test.limit) {
			if err != nil {
				t.Errorf("Read(%d, %d): %v", test.after, test.limit, err)
			}
			got++
		}
		if got != test.want {
			t.Errorf("Read(%d, %d) returned %d events, want %d", test.after, test.limit, got, test.want)
		}
	}
	for range ledger.Read(t.Context(), tx, 0, 3) {
		break // the transaction stays usable
	}
	wantUsable(t, tx)
}

// PostgreSQL cannot decode an object with the escape \u0000 or half of a surrogate pair. Args may have them, by every
// way of enqueueing, and stay as they are.
func TestEscapedNULInSQL(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	args := []string{
		`{"a": "\u0000"}`, `{"\u0000\u0000":"\\\u0000", "b" : "\\u0000"}`, `"\ud800"`, `["\uDC00\ud83d\ude00"]`,
		`{"args":{"args":"\uD83Dx"}}`, `"\ud83d\ude00"`, `"\\ud800"`, `null`,
	}
	for name, enqueue := range map[string]enqueuer{
		"enqueue_many": bySQLFunctionMany(pool), "enqueue": bySQLFunction(pool), "EnqueueMany": together(pool),
	} {
		entries := make([]ledger.Entry, len(args))
		for i, a := range args {
			entries[i] = ledger.Entry{
				Key:  ledger.Key{Kind: "bad." + ledger.Kind(name), BizID: ledger.BizID(fmt.Sprint(i))},
				Args: json.RawMessage(a), Options: &ledger.EnqueueOptions{Actor: "a😀"},
			}
		}
		for pass := range 2 {
			answers, err := enqueue(t.Context(), entries)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				break
			}
			for i, a := range answers {
				if !a.SameArgs || a.New != (pass == 0) {
					t.Errorf("%s, %s: %+v", name, args[i], a)
				}
				task, err := ledger.Load(t.Context(), pool, entries[i].Key)
				if err != nil || string(task.Args) != args[i] {
					t.Errorf("%s has %+v, %v", args[i], task, err)
				}
			}
		}
	}
}

// An entry alone, behind backslashes that are escaped: PostgreSQL can decode some of these args and others not. Neither
// depends on how the session has string literals parsed.
func TestEscapedBackslashesInSQL(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	for i, args := range []string{
		`"\\ud83d\ude00"`, `"\\\ud83d\ude00"`, `"\\\\ud83d\ude00"`, `"\\U0000"`, `"\\u0000"`,
		`"\\\u0000"`, `"\\ude00\uD83D"`,
	} {
		for _, setting := range []string{"off", "on"} {
			id := fmt.Sprint(i, setting)
			err := execute(t, owner, "set local standard_conforming_strings = "+setting,
				"select taskledger.enqueue_many(json_build_array(json_build_object('kind', 'bad', 'biz_id', '"+id+
					"', 'args', $json$"+args+"$json$::json)))")
			if err != nil {
				t.Errorf("%s, %s: %v", args, setting, err)
				continue
			}
			task, err := ledger.Load(t.Context(), owner, ledger.Key{Kind: "bad", BizID: ledger.BizID(id)})
			if err != nil || string(task.Args) != args {
				t.Errorf("%s, %s: %+v, %v", args, setting, task, err)
			}
		}
	}
}

// Only args may have these escapes.
func TestEscapedNULBesideArgs(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	for _, entry := range []string{
		`{"kind":"bad","biz_id":"a\u0000"}`, `{"kind":"bad","biz_id":"1","actor":"\ud800"}`,
		`{"kind":"bad","biz_id":"1","meta":{"a":"\u0000"}}`, `{"kind":"bad","biz_id":"1","\u0000":1}`,
	} {
		const enqueue = "select taskledger.enqueue_many(('[' || $1 || ']')::json)"
		if _, err := pool.Exec(t.Context(), enqueue, entry); err == nil {
			t.Errorf("%s was accepted", entry)
		}
	}
}
