package ledger_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// comparedArgs are pairs of args. The empty text means no args.
var comparedArgs = []struct {
	was, is string
	same    bool
	differ  string // the difference of the error in Go
}{
	// Spaces, the order of members, the notation of numbers and strings.
	{was: `{"a":1,"b":2}`, is: ` { "b" : 2 ,` + "\n\t\r" + `"a" : 1 } `, same: true},
	{was: `{"a":{"x":[1,{"y":2,"z":3}]}}`, is: `{"a":{"x":[1,{"z":3,"y":2}]}}`, same: true},
	{was: `1`, is: `1.0`, same: true},
	{was: `1`, is: `1e0`, same: true},
	{was: `[1,10,0.5]`, is: `[10E-1,1e+01,5.0e-01]`, same: true},
	{was: `0`, is: `-0.0e7`, same: true},
	{was: `1e400000`, is: `0.1E400001`, same: true},
	{was: `-12345678901234567890123`, is: `-1234567890123456789012300e-2`, same: true},
	{was: `1e99999999999999999999`, is: ` 1e99999999999999999999`, same: true},
	{was: `0e99999999999999999999`, is: `0`, same: true},
	{was: `{"\u0061\/":"\u00e9\ud83d\ude00\n"}`, is: `{"a/":"é😀\u000A"}`, same: true},
	{was: `"\\u0000"`, is: `"\u005cu0000"`, same: true},
	{was: `["\u0000","\uD800","\udfff x"]`, is: `["\u0000", "\ud800", "\uDFFF\u0020x"]`, same: true},
	{was: `{"\u0000":1,"\ud800":2}`, is: `{"\ud800":2,"\u0000":1}`, same: true},
	{was: `{"a ":{"":[]," b":"\" \": ","@":"@"}}`, is: `{"a ":{"@":"@"," b":"\u0022 \u0022: ","":[ ]}}`, same: true},
	{was: ``, is: ``, same: true},
	// Other values.
	{was: `{"cents":500}`, is: `{"cents":600}`, differ: `args.cents was 500, is 600`},
	{was: `{"a":[{"b c":true}]}`, is: `{"a":[{"b c":null}]}`, differ: `args.a[0]["b c"] was true, is null`},
	{was: `{"a":1}`, is: `{"a":1,"b":""}`, differ: `args.b was missing, is ""`},
	{was: `[1,2]`, is: `[1]`, differ: `args[1] was 2, is missing`},
	{was: `[1,2]`, is: `[2,1]`, differ: `args[0] was 1, is 2`},
	{was: `1`, is: `"1"`, differ: `args was 1, is "1"`},
	{was: `"#1e0"`, is: `1`, differ: `args was "#1e0", is 1`},
	{was: `{"a":1}`, is: `["a",1]`, differ: `args was {"a":1}, is ["a",1]`},
	{was: ``, is: `null`, differ: `args was missing, is null`},
	{was: `null`, is: ``, differ: `args was null, is missing`},
	{was: `0`, is: `false`, differ: `args was 0, is false`},
	{was: `""`, is: `"\u0000"`, differ: `args was "", is "\u0000"`},
	{was: `"\u0000"`, is: `"\\u0000"`, differ: `args was "\u0000", is "\\u0000"`},
	{was: `12345678901234567890`, is: `12345678901234567891`,
		differ: `args was 12345678901234567890, is 12345678901234567891`},
	{was: `0.1`, is: `0.10000000000000000001`, differ: `args was 0.1, is 0.10000000000000000001`},
	{was: `1e400000`, is: `1e400001`, differ: `args was 1e400000, is 1e400001`},
	{was: `-1`, is: `1`, differ: `args was -1, is 1`},
	{was: `"é"`, is: `"e\u0301"`, differ: "args was \"é\", is \"e\u0301\""},
	{was: `"` + strings.Repeat("x", 1000) + `é"`, is: `"` + strings.Repeat("x", 1000) + `ê"`,
		differ: `args was …xxxxxxxxxxxxxxxxxxxxé", is …xxxxxxxxxxxxxxxxxxxxê"`},
	{was: `"` + strings.Repeat("x", 1000) + `"`, is: `"\u001b[2J\u202e"`,
		differ: `args was "` + strings.Repeat("x", 78) + `…, is "\u001b[2J\u202e"`},
	// A name twice.
	{was: `{"a":1,"a":2}`, is: `{ "a" : 1.0, "\u0061" : 2 }`, same: true},
	{was: `{"a":1,"a":2}`, is: `{"a":2}`},
	{was: `{"a":2}`, is: `{"a":1,"a":2}`},
	{was: `{"a":1,"a":2}`, is: `{"a":2,"a":1}`, differ: `args.a was 2, is 1`},
	{was: `{"b":0,"a":[{"x":1,"x":1}]}`, is: `{"a":[{"x":1}],"b":0}`},
	// The difference is the last pair's, as Go decodes it; half of a surrogate pair is U+FFFD.
	{was: `"\ud800"`, is: `"\ud801"`},
	{was: `"\ud800"`, is: `"\ufffd"`},
}

func jsonOrNone(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}

// Every way to enqueue compares args by the same rule, and an enqueue of the same args leaves the first text.
func TestSameArgsAreEqualAsJSONValues(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	accept := &ledger.EnqueueOptions{IfExists: ledger.IfExistsIgnore}
	for _, a := range adapters() {
		var entries []ledger.Entry
		for i, c := range comparedArgs {
			k := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprintf("%s %d", a.name, i))}
			ledgertest.Enqueue(t, pool, k, c.was)
			entries = append(entries, ledger.Entry{Key: k, Args: jsonOrNone(c.is), Options: accept})
		}
		var answers []ledger.Enqueued
		a.run(t, pool, func(enqueue enqueuer) {
			var err error
			if answers, err = enqueue(t.Context(), entries); err != nil {
				t.Fatalf("%s: %v", a.name, err)
			}
		})
		for i, c := range comparedArgs {
			if answers[i].New || answers[i].SameArgs != c.same {
				t.Errorf("%s: %s, then %s: %+v", a.name, c.was, c.is, answers[i])
			}
			if task, err := ledger.Load(t.Context(), pool, entries[i].Key); err != nil || string(task.Args) != c.was {
				t.Errorf("%s: %s was replaced by %s: %v", a.name, c.was, task.Args, err)
			}
		}
	}
}

// The error of other args contains the first difference, printable and bounded, and the transaction goes on.
func TestOtherArgsErrorHasTheDifference(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	for i, c := range comparedArgs {
		k := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprint(i))}
		ledgertest.Enqueue(t, pool, k, c.was)
		tx := beginLedgerTx(t, pool, nil)
		_, err := ledger.Enqueue(t.Context(), tx, k, jsonOrNone(c.is), nil)
		if _, after := ledger.Enqueue(t.Context(), tx, k, jsonOrNone(c.was), nil); after != nil {
			t.Fatalf("the transaction is unusable: %v", after)
		}
		_, committing := tx.EnqueueAndCommit(t.Context(), k, jsonOrNone(c.is), nil)
		for _, err := range []error{err, committing} {
			if c.same {
				if err != nil {
					t.Errorf("%s, then %s: %v", c.was, c.is, err)
				}
				continue
			}
			other := wantErrorAs[*ledger.OtherArgsError](t, err)
			if other.Existing.Difference != c.differ || !strings.Contains(err.Error(), c.differ) {
				t.Errorf("%s, then %s: %q, want %q in %v", c.was, c.is, other.Existing.Difference, c.differ, err)
			}
		}
	}
}

// A producer does not read the args of another login, neither by the error nor by the function.
func TestDifferenceOfAnotherLogin(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, "producer")
	other := ledgertest.As(t, pool, ledgertest.Owner)
	k := ledger.Key{Kind: "coupon.send", BizID: "A-1"}
	ledgertest.Enqueue(t, other, k, `{"secret":"s3cret"}`)
	_, err := ledger.Enqueue(t.Context(), pool, k, json.RawMessage(`{"secret":""}`), nil)
	known := wantErrorAs[*ledger.OtherArgsError](t, err).Existing
	if known.Difference != "" || strings.Contains(err.Error(), "secret") {
		t.Errorf("the error has the args of another login: %v", err)
	}
	var stored *string
	const read = `select stored_args from taskledger_internal.existing_tasks('{coupon.send}', '{A-1}', '{1}')`
	if err := pool.QueryRow(t.Context(), read).Scan(&stored); err != nil || stored != nil {
		t.Errorf("the function returns %v, %v", stored, err)
	}
	if _, err := ledger.Enqueue(t.Context(), pool, k, json.RawMessage(`{ "secret" : "s3cret" }`), nil); err != nil {
		t.Errorf("the same args: %v", err)
	}
}

type order struct {
	At    time.Time
	Cents int
	Note  string `json:",omitempty"`
	Added bool
}

// A kind can compare the Go values of args, so that a new field with its zero value and a time in another zone are no
// difference, however the task is enqueued.
func TestWithSameArgs(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	plain := ledger.MustKind[order]("order.ship")
	kind := plain.WithSameArgs(func(was, is order) bool {
		isSame := was.At.Equal(is.At)
		was.At, is.At = time.Time{}, time.Time{}
		return isSame && was == is
	})
	at := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	ledgertest.Enqueue(t, pool, kind.Key("1"), `{"At":"2026-11-27T12:00:00Z","Cents":5}`)
	ledgertest.Enqueue(t, pool, kind.Key("bad"), `[]`)
	same := order{At: at.In(time.FixedZone("CET", 3600)), Cents: 5}
	other := order{At: at, Cents: 6}
	if _, err := plain.Enqueue(t.Context(), pool, "1", same, nil); !errors.As(err, new(*ledger.OtherArgsError)) {
		t.Errorf("without the comparison: %v", err)
	}
	entry, err := kind.Entry("1", same, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, enqueue := range map[string]func(ledger.BizID, order) (ledger.Enqueued, error){
		"one": func(id ledger.BizID, args order) (ledger.Enqueued, error) {
			return kind.Enqueue(t.Context(), pool, id, args, nil)
		},
		"later": func(id ledger.BizID, args order) (ledger.Enqueued, error) {
			return kind.Enqueue(t.Context(), pool, id, args, &ledger.EnqueueOptions{RunIn: time.Hour})
		},
		"committed": func(id ledger.BizID, args order) (ledger.Enqueued, error) {
			return kind.EnqueueAndCommit(t.Context(), beginLedgerTx(t, pool, nil), id, args, nil)
		},
	} {
		if answer, err := enqueue("1", same); err != nil || answer.New || !answer.SameArgs {
			t.Errorf("%s: %+v, %v", name, answer, err)
		}
		_, err := enqueue("1", other)
		if got := wantErrorAs[*ledger.OtherArgsError](t, err).Existing.Difference; got == "" {
			t.Errorf("%s: no difference in %v", name, err)
		}
		_, err = enqueue("bad", same)
		wantErrorAs[*ledger.OtherArgsError](t, err)
		if answer, err := enqueue(ledger.BizID("new "+name), same); err != nil || !answer.New {
			t.Errorf("%s: %+v, %v", name, answer, err)
		}
	}
	answers, err := ledger.EnqueueMany(t.Context(), pool, []ledger.Entry{entry})
	if err != nil || !answers[0].SameArgs {
		t.Errorf("many: %+v, %v", answers, err)
	}
}

// The database compares as Go does for texts that Go decodes without loss, and never fails.
func FuzzSameArgs(f *testing.F) {
	pool := fuzzedPool(f)
	for _, c := range comparedArgs {
		f.Add(c.was, c.is)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, text := range []string{a, b} {
			if text == "" || ledger.CheckJSON("args", []byte(text)) != nil {
				return
			}
		}
		compare := func(a, b string) (same bool) {
			const query = "select taskledger_internal.is_same_json($1, $2)"
			if err := pool.QueryRow(t.Context(), query, a, b).Scan(&same); err != nil {
				t.Fatalf("%q and %q: %v", a, b, err)
			}
			return same
		}
		indented, _ := json.MarshalIndent(json.RawMessage(a), " ", "\t")
		if !compare(a, string(indented)) || !compare(string(indented), a) {
			t.Errorf("%q differs from %q", a, indented)
		}
		same := compare(a, b)
		if same != compare(b, a) {
			t.Errorf("%q and %q: the order matters", a, b)
		}
		x, isExactA := decodeExactly(t, a)
		y, isExactB := decodeExactly(t, b)
		if isExactA && isExactB && same != reflect.DeepEqual(x, y) {
			t.Errorf("%q and %q: %v", a, b, same)
		}
	})
}

type exactNumber string

// decodeExactly decodes a text, with each number as the text of its fraction. It reports whether nothing was lost, such
// as halves of surrogate pairs, members with a repeated name, and digits of numbers that are too large for the test.
func decodeExactly(t *testing.T, text string) (any, bool) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	isExact := true
	var value func() any
	value = func() any {
		token, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		switch x := token.(type) {
		case string:
			isExact = isExact && !strings.ContainsRune(x, utf8.RuneError)
		case json.Number:
			if i := strings.IndexAny(string(x), "eE"); len(x) > 100 || i >= 0 && len(x)-i > 4 {
				isExact = false
				return nil
			}
			r, _ := new(big.Rat).SetString(string(x))
			return exactNumber(r.RatString())
		case json.Delim:
			if x == '[' {
				list := []any{}
				for d.More() {
					list = append(list, value())
				}
				_, _ = d.Token()
				return list
			}
			object := map[string]any{}
			for d.More() {
				name, _ := value().(string)
				_, isTwice := object[name]
				isExact = isExact && !isTwice
				object[name] = value()
			}
			_, _ = d.Token()
			return object
		}
		return token
	}
	return value(), isExact
}
