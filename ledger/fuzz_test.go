package ledger_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// fuzzedPool is a database for a fuzz target that asks PostgreSQL what it thinks.
func fuzzedPool(f *testing.F) *pgxpool.Pool {
	f.Helper()
	return ledgertest.Pool(f)
}

// sendable reports whether PostgreSQL can be told s at all.
func sendable(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

// Go accepts a key if and only if SQL does.
func FuzzKeyValidation(f *testing.F) {
	pool := fuzzedPool(f)
	for _, keys := range []map[ledger.Key]string{badKeys, unsendableKeys} {
		for k := range keys {
			f.Add(string(k.Kind), string(k.BizID))
		}
	}
	for _, id := range oddBizIDs {
		f.Add("coupon.send", string(id))
		f.Add(string(id), "1")
	}
	f.Fuzz(func(t *testing.T, kind, id string) {
		k := ledger.Key{Kind: ledger.Kind(kind), BizID: ledger.BizID(id)}
		inGo := k.Validate()
		if !sendable(kind) || !sendable(id) {
			if inGo == nil {
				t.Errorf("%q is valid", k)
			}
			return
		}
		_, inSQL := pool.Exec(t.Context(), "select taskledger.check_key($1::text, $2::text)", kind, id)
		if inSQL != nil && sqlState(inSQL) != "22023" {
			t.Fatal(inSQL)
		}
		if (inGo == nil) != (inSQL == nil) {
			t.Errorf("%q: %v in Go, %v in SQL", k, inGo, inSQL)
		}
		if inGo != nil {
			return
		}
		if foundKind, foundID, _ := strings.Cut(k.String(), "/"); foundKind != kind || foundID != id {
			t.Errorf("%q is written %q", k, k.String())
		}
	})
}

// Whatever Go takes for JSON, PostgreSQL takes too and gives back byte for byte.
func FuzzJSONIsStoredByteForByte(f *testing.F) {
	pool := fuzzedPool(f)
	for _, text := range []string{
		``, ` `, `null`, `{"a":1}`, ` [1 , 2]`, `"\u0000"`, `"\ud800"`, `1e99999`, `-0`, `01`, `[1,]`, `{"a":1,"a":2}`,
		"\"\xff\"", "\"\x00\"", "\ufeff1", "\"\u2028\"", "\x0b1", "\u00a01", `"\x"`, `"\/"`, `tru`, `[[[]]]`, `{}{}`, `1.`, `.5`, `+1`, "\"\x7f\"",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		err := ledger.CheckJSON("args", text)
		if err != nil {
			var invalid *ledger.InvalidError
			if !errors.As(err, &invalid) {
				t.Errorf("%q: %v (%[2]T)", text, err)
			}
			return
		}
		if text == nil {
			return
		}
		var stored string
		if err := pool.QueryRow(t.Context(), "select ($1::text::json)::text", string(text)).Scan(&stored); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if stored != string(text) {
			t.Errorf("%q is stored as %q", text, stored)
		}
	})
}

// Any bytes can be a payload, with or without other meta beside.
func FuzzBinaryPayload(f *testing.F) {
	f.Add([]byte(nil), "")
	f.Add([]byte("\x00\xff"), "tag")
	f.Add([]byte(`{"a":1}`), `"`)
	f.Fuzz(func(t *testing.T, payload []byte, tag string) {
		meta, err := json.Marshal(ledger.Meta{Encoding: ledger.EncodingBase64, Tags: []string{tag}})
		if err != nil {
			t.Fatal(err)
		}
		e := ledger.Event{Data: ledger.EncodeBinary(payload), Meta: meta}
		if err := ledger.CheckJSON("args", e.Data); err != nil {
			t.Errorf("%q is stored as %s: %v", payload, e.Data, err)
		}
		decoded, err := e.Payload()
		if err != nil || !bytes.Equal(decoded, payload) {
			t.Errorf("%q is decoded as %q, %v", payload, decoded, err)
		}
	})
}

// Any stored data and meta decode or say that they are corrupt.
func FuzzPayload(f *testing.F) {
	for _, meta := range []string{``, `{}`, `null`, `[]`, `{"encoding":"base64"}`, `{"encoding":"gzip"}`, `{"encoding":1}`, `{"Encoding":"base64"}`} {
		for _, data := range []string{``, `null`, `"AP8="`, `"A"`, `{}`, `"\u0000"`} {
			f.Add([]byte(data), []byte(meta))
		}
	}
	f.Fuzz(func(t *testing.T, data, meta []byte) {
		payload, err := ledger.Event{Data: data, Meta: meta}.Payload()
		var corrupt *ledger.CorruptError
		if err != nil && !errors.As(err, &corrupt) {
			t.Errorf("%v (%[1]T)", err)
		}
		if len(meta) == 0 && (err != nil || !bytes.Equal(payload, data)) {
			t.Errorf("plain %q is %q, %v", data, payload, err)
		}
	})
}

// A meta that is parsed and written again is the same, members of later versions included.
func FuzzMeta(f *testing.F) {
	for _, text := range []string{
		`{}`, `null`, `[]`, `{"traceparent":"00-1-2-01","tracestate":"a=b","causation":"x","tags":["a",""],"encoding":"base64"}`,
		`{"later":{"a" : [1, "<&>\u2028"]},"tags":[]}`, `{"Tags":["upper"],"tags":["lower"]}`, `{"TRACEPARENT":5}`, `{"tags":null}`,
		`{"tags":"x"}`, `{"":1}`, `{"a":1,"a":2}`, `{"tags":["\ud800"]}`, `{"\u0074ags":["a"]}`,
		`{"retry":{"ladder":[60, 3e2]}}`, `{"retry":"invalid"}`, `{"retry":null}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		meta, err := ledger.ParseMeta(text)
		if err != nil {
			var corrupt *ledger.CorruptError
			if !errors.As(err, &corrupt) {
				t.Errorf("%v (%[1]T)", err)
			}
			return
		}
		written, err := json.Marshal(meta)
		if err != nil {
			t.Fatalf("%+v: %v", meta, err)
		}
		again, err := ledger.ParseMeta(written)
		if err != nil {
			t.Fatalf("%s: %v", written, err)
		}
		if diff := cmp.Diff(meta, again, cmpopts.EquateEmpty(), cmp.FilterValues(isAnyJSON, cmp.Comparer(sameJSON))); diff != "" {
			t.Errorf("%s is written as %s (-read +read again):\n%s", text, written, diff)
		}
		for _, name := range []string{"traceparent", "tracestate", "causation", "tags", "encoding", "retry"} {
			if _, ok := meta.Extra[name]; ok {
				t.Errorf("%s is both known and extra", name)
			}
		}
	})
}

// isAnyJSON reports whether one of two texts is not empty.
func isAnyJSON(a, b json.RawMessage) bool { return len(a) > 0 || len(b) > 0 }

// sameJSON reports whether two texts mean the same JSON.
func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// The nesting of valid JSON is what a decoder finds.
func FuzzNesting(f *testing.F) {
	for _, text := range []string{`1`, `[]`, `[[],{"a":[{}]}]`, `"[[[["`, `["\"[", [1]]`, `{"[\\":"\\\"{"}`, `"\\"`, ``} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			return
		}
		depth, deepest := 0, 0
		decoder := json.NewDecoder(bytes.NewReader(text))
		for {
			token, err := decoder.Token()
			if err != nil {
				break // the end, as it is valid
			}
			switch token {
			case json.Delim('['), json.Delim('{'):
				depth++
				deepest = max(deepest, depth)
			case json.Delim(']'), json.Delim('}'):
				depth--
			}
		}
		if got := ledger.Nesting(text); got != deepest {
			t.Errorf("%s nests %d deep, the decoder says %d", text, got, deepest)
		}
	})
}

// Each two bytes are an event: its type, and what is wrong with it, mostly nothing.
func eventsFrom(program []byte) []ledger.Event {
	table := ledger.Transitions()
	var events []ledger.Event
	var task ledger.Task
	for i := 0; i+1 < len(program); i += 2 {
		row := table[int(program[i])%len(table)]
		e := ledger.Event{
			Key: ledger.Key{Kind: "fuzz", BizID: "1"}, Version: task.Version + 1, Attempt: task.Attempt, Type: row.Type,
			Position: ledger.Position(i), RecordedAt: time.Unix(int64(i), 0).UTC(), Data: json.RawMessage(`{"error":{"message":"m"},"result":1}`),
		}
		switch program[i+1] {
		case 1:
			e.Version++
		case 2:
			e.Version--
		case 3:
			e.Key.BizID = "2"
		case 4:
			e.Attempt += 2
		case 5:
			e.Type = "unknown"
		case 6:
			e.Data = json.RawMessage(`{"error":`)
		case 7:
			e.Data = json.RawMessage(`{"error":"text","result":{}}`)
		case 8:
			e.Attempt++
		}
		for _, attempt := range []ledger.Attempt{0, 1} { // in step, unless it was put out of it
			try := e
			try.Attempt += attempt
			if next, err := task.Apply(try); err == nil && program[i+1] != 4 && program[i+1] != 8 {
				e, task = try, next
				break
			}
		}
		events = append(events, e)
	}
	return events
}

// Any sequence of events is refused or leads to a legal state, with every number in step.
func FuzzFold(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0, 3, 0, 5, 0})
	f.Add([]byte{0, 0, 6, 0, 2, 0, 3, 0, 3, 0, 3, 0, 4, 0, 9, 0, 2, 0, 5, 7})
	for wrong := range byte(9) {
		f.Add([]byte{0, 0, 3, wrong, 6, 0})
		f.Add([]byte{1, wrong, 11, 0})
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		events := eventsFrom(program)
		task, err := ledger.Fold(events)
		if err != nil {
			var illegal *ledger.IllegalError
			if !errors.As(err, &illegal) || illegal.Reason == "" {
				t.Fatalf("%v (%[1]T)", err)
			}
			events = events[:task.Version] // up to the first that is illegal
			if again, err := ledger.Fold(events); err != nil || !cmp.Equal(task, again) {
				t.Fatalf("the legal part folds to %+v, %v, and not to %+v", again, err, task)
			}
		}
		wantLegal(t, task, events)
	})
}

// wantLegal checks a task against the events that led to it, by counting and not by folding.
func wantLegal(t *testing.T, task ledger.Task, events []ledger.Event) {
	t.Helper()
	if len(events) == 0 {
		if diff := cmp.Diff(ledger.Task{}, task); diff != "" {
			t.Errorf("the fold of nothing: %s", diff)
		}
		return
	}
	first, last := events[0], events[len(events)-1]
	failures := 0
	for i, e := range events {
		switch {
		case e.Type == ledger.EventFailed:
			failures++
		case e.Type == ledger.EventReleased && events[i-1].Type.State().Finished():
			failures = 0
		}
	}
	switch {
	case first.Type != ledger.EventEnqueued && first.Type != ledger.EventScheduled:
		t.Errorf("begins with %s", first.Type)
	case task.State != last.Type.State() || task.State == ledger.StateNone:
		t.Errorf("state %q after %s", task.State, last.Type)
	case int(task.Version) != len(events) || task.Attempt != last.Attempt:
		t.Errorf("version %d and attempt %d after %d events and attempt %d", task.Version, task.Attempt, len(events), last.Attempt)
	case int(task.Attempt) > len(events)-1 || task.LostInARow >= max(1, int(task.Attempt)):
		t.Errorf("attempt %d with %d lost of %d events", task.Attempt, task.LostInARow, len(events))
	case task.Failures != failures:
		t.Errorf("%d failures, counted %d", task.Failures, failures)
	case (task.Fingerprint != "") != (task.State == ledger.StateDead):
		t.Errorf("%s with fingerprint %q", task.State, task.Fingerprint)
	case !task.EnqueuedAt.Equal(first.RecordedAt) || !task.UpdatedAt.Equal(last.RecordedAt):
		t.Errorf("from %s to %s", task.EnqueuedAt, task.UpdatedAt)
	}
}

func FuzzParseEventID(f *testing.F) {
	f.Add("coupon.send/order/17@x/2@1700000000000000", "coupon.send", "order-17", int32(1), int64(-1))
	f.Add("k/b/+1@1", "", "", int32(0), int64(0))
	f.Fuzz(func(t *testing.T, text, kind, bizID string, version int32, micros int64) {
		if k, v, at, err := ledger.ParseEventID(text); err == nil {
			id := ledger.Event{Key: k, Version: v, RecordedAt: at}.ID()
			if k2, v2, at2, err := ledger.ParseEventID(id); err != nil || k2 != k || v2 != v || !at2.Equal(at) {
				t.Fatalf("%q, %q: %v %d %s, %v", text, id, k2, v2, at2, err)
			}
		}
		e := ledger.Event{Key: ledger.Key{Kind: ledger.Kind(kind), BizID: ledger.BizID(bizID)}, Version: ledger.Version(version), RecordedAt: time.UnixMicro(micros)}
		if e.Key.Validate() != nil || version < 1 {
			return
		}
		if k, v, at, err := ledger.ParseEventID(e.ID()); err != nil || k != e.Key || v != e.Version || !at.Equal(e.RecordedAt) {
			t.Fatalf("%q became %v %d %s, %v", e.ID(), k, v, at, err)
		}
	})
}
