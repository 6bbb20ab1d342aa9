package ledger_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// fuzzedPool returns a database for a fuzz target that compares Go with PostgreSQL.
func fuzzedPool(f *testing.F) *pgxpool.Pool {
	f.Helper()
	return ledgertest.Pool(f, ledgertest.Owner)
}

// sendable reports whether s can be a parameter of a statement.
func sendable(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

// Go accepts a key if and only if SQL accepts it.
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
		_, inSQL := pool.Exec(t.Context(), "select taskledger_internal.check_key($1::text, $2::text)", kind, id)
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

// PostgreSQL accepts every JSON that Go accepts, and returns the same bytes.
func FuzzJSONIsStoredByteForByte(f *testing.F) {
	pool := fuzzedPool(f)
	for _, text := range []string{
		``, ` `, `null`, `{"a":1}`, ` [1 , 2]`, `"\u0000"`, `"\ud800"`, `1e99999`, `-0`, `01`, `[1,]`, `{"a":1,"a":2}`,
		"\"\xff\"", "\"\x00\"", "\ufeff1", "\"\u2028\"", "\x0b1", "\u00a01", `"\x"`, `"\/"`, `tru`, `[[[]]]`, `{}{}`,
		`1.`, `.5`, `+1`, "\"\x7f\"",
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

// Binary payloads of any bytes decode to the same bytes, whatever the other members of meta are.
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

// Payload decodes any data and meta, or returns a CorruptError.
func FuzzPayload(f *testing.F) {
	for _, meta := range []string{
		``, `{}`, `null`, `[]`, `{"encoding":"base64"}`, `{"encoding":"gzip"}`, `{"encoding":1}`,
		`{"Encoding":"base64"}`,
	} {
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

// A meta that is parsed, encoded and parsed again is the same, including unknown members.
func FuzzMeta(f *testing.F) {
	for _, text := range []string{
		`{}`, `null`, `[]`,
		`{"traceparent":"00-1-2-01","tracestate":"a=b","causation":"x","tags":["a",""],"encoding":"base64"}`,
		`{"later":{"a" : [1, "<&>\u2028"]},"tags":[]}`, `{"Tags":["upper"],"tags":["lower"]}`, `{"TRACEPARENT":5}`,
		`{"tags":null}`, `{"tags":"x"}`, `{"":1}`, `{"a":1,"a":2}`, `{"tags":["\ud800"]}`, `{"\u0074ags":["a"]}`,
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
		if diff := difference.OfContents(values(t, meta), values(t, again)); diff != "" {
			t.Errorf("%s is encoded as %s (-parsed +parsed again):\n%s", text, written, diff)
		}
		for _, name := range []string{"traceparent", "tracestate", "causation", "tags", "encoding", "retry"} {
			if _, ok := meta.Extra[name]; ok {
				t.Errorf("%s is a field and in Extra", name)
			}
		}
	})
}

// values returns a meta, with what its texts of JSON decode to in their place.
func values(t *testing.T, m ledger.Meta) any {
	t.Helper()
	decoded := make(map[string]any)
	decode := func(name string, text json.RawMessage) {
		var value any
		if err := json.Unmarshal(text, &value); err != nil {
			t.Fatalf("%s %q: %v", name, text, err)
		}
		decoded[name] = value
	}
	for name, text := range m.Extra {
		decode(name, text)
	}
	if len(m.Retry) > 0 {
		decode("retry", m.Retry)
	}
	m.Extra, m.Retry = nil, nil
	return struct {
		meta    ledger.Meta
		decoded map[string]any
	}{m, decoded}
}

// nestingDepth returns the depth that a decoder counts, for any valid JSON.
func FuzzNesting(f *testing.F) {
	for _, text := range []string{
		`1`, `[]`, `[[],{"a":[{}]}]`, `"[[[["`, `["\"[", [1]]`, `{"[\\":"\\\"{"}`, `"\\"`, ``,
	} {
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
				break // the end, because text is valid
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
			t.Errorf("%s nests %d levels deep, want %d", text, got, deepest)
		}
	})
}

// eventsFrom returns one event for each two bytes: the first is its type, the second its fault, if it is 1 to 8.
func eventsFrom(program []byte) []ledger.Event {
	table := ledger.Transitions()
	var events []ledger.Event
	var task ledger.Task
	for i := 0; i+1 < len(program); i += 2 {
		row := table[int(program[i])%len(table)]
		e := ledger.Event{
			Key: ledger.Key{Kind: "fuzz", BizID: "1"}, Version: task.Version + 1, Attempt: task.Attempt, Type: row.Type,
			Position: ledger.Position(i), RecordedAt: time.Unix(int64(i), 0).UTC(),
			Data: json.RawMessage(`{"error":{"message":"m"},"result":1}`),
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
		for _, attempt := range []ledger.Attempt{0, 1} { // the attempt that is right, unless it is the fault
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

// Fold returns an IllegalError or a legal task for any sequence of events.
func FuzzFold(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0, 3, 0, 5, 0})
	f.Add([]byte{0, 0, 6, 0, 2, 0, 3, 0, 3, 0, 3, 0, 4, 0, 9, 0, 2, 0, 5, 7})
	for fault := range byte(9) {
		f.Add([]byte{0, 0, 3, fault, 6, 0})
		f.Add([]byte{1, fault, 11, 0})
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		events := eventsFrom(program)
		task, err := ledger.Fold(events)
		if err != nil {
			var illegal *ledger.IllegalError
			if !errors.As(err, &illegal) || illegal.Reason == "" {
				t.Fatalf("%v (%[1]T)", err)
			}
			events = events[:task.Version] // those before the illegal one
			again, err := ledger.Fold(events)
			if diff := difference.Of(task, again); diff != "" || err != nil {
				t.Fatalf("fold of the legal events: %v (-want +got):\n%s", err, diff)
			}
		}
		wantLegal(t, task, events)
	})
}

// wantLegal checks the fold of events by counting.
func wantLegal(t *testing.T, task ledger.Task, events []ledger.Event) {
	t.Helper()
	if len(events) == 0 {
		if diff := difference.Of(ledger.Task{}, task); diff != "" {
			t.Errorf("the fold of no events: %s", diff)
		}
		return
	}
	first, last := events[0], events[len(events)-1]
	failures := 0
	for i, e := range events {
		switch {
		case e.Type == ledger.EventFailed:
			failures++
		case i > 0 && (e.Type == ledger.EventReleased || e.Type == ledger.EventLinedUp) &&
			events[i-1].Type.State().Finished():
			failures = 0
		}
	}
	switch {
	case !slices.Contains(
		[]ledger.EventType{ledger.EventEnqueued, ledger.EventScheduled, ledger.EventLinedUp}, first.Type):
		t.Errorf("begins with %s", first.Type)
	case task.State != last.Type.State() || task.State == ledger.StateNone:
		t.Errorf("state %q after %s", task.State, last.Type)
	case int(task.Version) != len(events) || task.Attempt != last.Attempt:
		t.Errorf("version %d and attempt %d after %d events and attempt %d",
			task.Version, task.Attempt, len(events), last.Attempt)
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

// ParseEventID is the inverse of Event.ID.
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
		e := ledger.Event{
			Key:     ledger.Key{Kind: ledger.Kind(kind), BizID: ledger.BizID(bizID)},
			Version: ledger.Version(version), RecordedAt: time.UnixMicro(micros),
		}
		if e.Key.Validate() != nil || version < 1 {
			return
		}
		k, v, at, err := ledger.ParseEventID(e.ID())
		if err != nil || k != e.Key || v != e.Version || !at.Equal(e.RecordedAt) {
			t.Fatalf("%q is parsed as %v %d %s, %v", e.ID(), k, v, at, err)
		}
	})
}
