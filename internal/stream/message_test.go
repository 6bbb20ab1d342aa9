package stream_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

var recordedAt = time.Date(2026, 11, 20, 12, 0, 0, 123456000, time.UTC)

func sampleEvent() ledger.Event {
	return ledger.Event{
		Position: 42, Key: ledger.Key{Kind: "coupon.send", BizID: "order 7/ü%"}, Version: 3, Attempt: 1, Shard: 7,
		Type: ledger.EventReleased, RecordedAt: recordedAt,
		Meta: json.RawMessage(`{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}`),
	}
}

// TestEncode compares messages with the wire format on which subscribers rely.
func TestEncode(t *testing.T) {
	m := stream.Encode(sampleEvent(), []byte(`{"amount":5}`), stream.Source("i-1"))
	want := &nats.Msg{
		Subject: "ledger.7.released.coupon.send",
		Header: nats.Header{
			"ce-specversion": {"1.0"},
			"ce-id":          {"coupon.send/order%207/%C3%BC%25/3@1795176000123456"},
			"ce-type":        {"taskledger.released"},
			"ce-source":      {"taskledger/i-1"},
			"ce-subject":     {"coupon.send/order%207/%C3%BC%25"},
			"ce-time":        {"2026-11-20T12:00:00.123456Z"},
			"ce-task":        {"version=3&attempt=1&position=42"},
			"traceparent":    {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		},
		Data: []byte(`{"amount":5}`),
	}
	if m.Subject != want.Subject || string(m.Data) != string(want.Data) {
		t.Errorf("subject %q, data %q", m.Subject, m.Data)
	}
	if diff := difference.Of(want.Header, m.Header); diff != "" {
		t.Error(diff)
	}
}

// EncodeWhole is Encode, Enclose and Size in one, whatever headers a message has.
func TestEncodeWhole(t *testing.T) {
	plain, traced := sampleEvent(), sampleEvent()
	plain.Meta = nil
	odd := plain
	odd.RecordedAt = odd.RecordedAt.Add(999 * time.Nanosecond).In(time.FixedZone("", 3600))
	for _, e := range []ledger.Event{plain, traced, odd} {
		for _, meta := range []string{"", `{"watermill":{"id":"1"}}`, `{"finish_by":"2026-11-20T12:00:00Z"}`,
			string(traced.Meta)} {
			want := stream.Encode(e, []byte(`{"amount":5}`), stream.Source("i-1"))
			stream.Enclose(want, []byte(meta))
			have, size := stream.None.EncodeWhole(e, []byte(`{"amount":5}`), []byte(meta), stream.Source("i-1"))
			if diff := difference.Of(want.Header, have.Header); diff != "" || have.Subject != want.Subject {
				t.Errorf("meta %s: %s %s", meta, have.Subject, diff)
			}
			if size != stream.Size(want) {
				t.Errorf("meta %s: size %d, want %d", meta, size, stream.Size(want))
			}
			if at := have.Header["ce-time"]; !slices.Equal(at, []string{"2026-11-20T12:00:00.123456Z"}) {
				t.Errorf("recorded at %v: ce-time %v", e.RecordedAt, at)
			}
			stream.Recycle(have)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	good := stream.Encode(sampleEvent(), nil, stream.Source("i-1"))
	for name, values := range map[string][]string{
		"ce-specversion": {"0.3"},
		"ce-id":          {"coupon.send/x/0@1"},
		"ce-type":        {"taskledger.enqueued"},
		"ce-source":      {"100%"},
		"ce-task": {
			"", "3", "version=4&attempt=1&position=42", "version=4294967299&attempt=1&position=42",
			"version=3&attempt=-1&position=42", "version=3&attempt=4294967297&position=42",
			"version=3&attempt=1&position=many", "version=3&attempt=1", "version=3&version=3&position=42",
		},
		"traceparent": {"%zz"},
	} {
		for _, value := range values {
			header := maps.Clone(good.Header)
			header.Set(name, value)
			if _, err := stream.Decode(good.Subject, header, nil); !errors.Is(err, stream.ErrMalformed) {
				t.Errorf("with %s %q: error %v, want ErrMalformed", name, value, err)
			}
		}
	}
	later := maps.Clone(good.Header)
	later.Set("ce-task", "version=3&run=2&attempt=1&position=42")
	if m, err := stream.Decode(good.Subject, later, nil); err != nil || m.Attempt != 1 || m.Position != 42 {
		t.Errorf("with a member of a later release: %+v, %v", m, err)
	}
	if _, err := stream.Decode("ledger.7.released.other", good.Header, nil); !errors.Is(err, stream.ErrMalformed) {
		t.Errorf("on another kind's subject: error %v, want ErrMalformed", err)
	}
	if _, err := stream.Decode(good.Subject, nil, nil); !errors.Is(err, stream.ErrMalformed) {
		t.Errorf("without headers: error %v, want ErrMalformed", err)
	}
}

// A malformed trace context is left out; it never keeps an event from being published.
func TestTraceparent(t *testing.T) {
	const good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for meta, want := range map[string]string{
		`{"traceparent":"` + good + `"}`:                         good,
		`{"tags":5,"tracestate":7,"traceparent":"` + good + `"}`: good,
		`{"traceparent":"` + good + `-more"}`:                    "",
		`{"traceparent":"` + strings.ToUpper(good) + `"}`:        "",
		`{"traceparent":"00-a-b-01"}`:                            "",
		`{"traceparent":""}`:                                     "",
		`{"traceparent":null}`:                                   "",
		`{"traceparent":5}`:                                      "",
		`{"traceparent":{"id":"` + good + `"}}`:                  "",
		`{"Traceparent":"` + good + `","tags":["traceparent"]}`:  "",
		`["traceparent"]`:                                        "",
		``:                                                       "",
	} {
		e := sampleEvent()
		e.Meta = json.RawMessage(meta)
		m := stream.Encode(e, nil, stream.Source("i-1"))
		if got := m.Header.Get("traceparent"); got != want {
			t.Errorf("%s: published with %q, want %q", meta, got, want)
		}
		if _, there := m.Header["traceparent"]; there != (want != "") {
			t.Errorf("%s: a header without a value", meta)
		}
	}
}

// A tracestate accompanies its traceparent: that of the event, or that of the producer beside its args. A
// malformed one is left out.
func TestTracestate(t *testing.T) {
	t.Parallel()
	const (
		own      = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
		producer = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	)
	for name, test := range map[string]struct {
		meta, first   string
		parent, state string
	}{
		"the event's": {
			meta:   `{"traceparent":"` + own + `","tracestate":"a=1, b=x%20y z"}`,
			first:  ``,
			parent: own,
			state:  "a=1,b=x%20y z",
		},
		"both have one": {
			meta:   `{"traceparent":"` + own + `","tracestate":"a=1"}`,
			first:  `{"traceparent":"` + producer + `","tracestate":"b=2"}`,
			parent: own,
			state:  "a=1",
		},
		"the producer's": {
			meta:   ``,
			first:  `{"traceparent":"` + producer + `","tracestate":"b=2"}`,
			parent: producer,
			state:  "b=2",
		},
		"of another trace": {
			meta:   `{"traceparent":"` + own + `"}`,
			first:  `{"traceparent":"` + producer + `","tracestate":"b=2"}`,
			parent: own,
			state:  "",
		},
		"malformed": {
			meta:   `{"traceparent":"` + own + `","tracestate":"no state"}`,
			first:  ``,
			parent: own,
			state:  "",
		},
		"no text": {
			meta:   `{"traceparent":"` + own + `","tracestate":7}`,
			first:  ``,
			parent: own,
			state:  "",
		},
		"alone": {meta: `{"tracestate":"a=1"}`, first: ``, parent: "", state: ""},
		"beside a malformed parent": {
			meta:   `{"traceparent":"00","tracestate":"a=1"}`,
			first:  ``,
			parent: "",
			state:  "",
		},
		"no object": {meta: `["traceparent"]`, first: `["traceparent"]`, parent: "", state: ""},
	} {
		e := sampleEvent()
		e.Meta = json.RawMessage(test.meta)
		msg := stream.Encode(e, nil, stream.Source("i-1"))
		stream.Enclose(msg, []byte(test.first))
		got, err := stream.Decode(msg.Subject, msg.Header, msg.Data)
		if err != nil || got.Traceparent != test.parent || got.Tracestate != test.state {
			t.Errorf("%s: %q, %q, %v, want %q, %q", name, got.Traceparent, got.Tracestate, err, test.parent, test.state)
		}
		if _, there := msg.Header["tracestate"]; there != (test.state != "") {
			t.Errorf("%s: headers %v", name, msg.Header)
		}
	}
	msg := stream.Encode(sampleEvent(), nil, stream.Source("i-1"))
	msg.Header.Set("tracestate", "\x00")
	if got, err := stream.Decode(msg.Subject, msg.Header, msg.Data); err != nil || got.Tracestate != "" {
		t.Errorf("from another source: %q, %v", got.Tracestate, err)
	}
}

// wellFormed is a trace context.
var wellFormed = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// For any key and trace context, Decode returns the message that Encode made. Its headers are printable
// ASCII, and another version or time makes another message id.
func FuzzEncode(f *testing.F) {
	f.Add("coupon.send", "order 7", int32(1), int64(1795176000123456),
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", []byte("{}"))
	f.Add("k", "🎟️ 100% \"x\"://@/1@2#3", int32(2147483647), int64(-1), "a\r\nb: c", []byte(nil))
	f.Add("k.k", "%2F/%", int32(7), int64(0), "%", []byte("\x00"))
	f.Fuzz(func(t *testing.T, kind, id string, version int32, micros int64, trace string, payload []byte) {
		e := ledger.Event{Key: ledger.Key{Kind: ledger.Kind(kind), BizID: ledger.BizID(id)},
			Version: ledger.Version(version),
			Attempt: 5, Position: 1 << 40, Shard: ledger.BizID(id).Shard(), Type: ledger.EventEnqueued,
			RecordedAt: time.UnixMicro(micros).UTC()}
		if e.Validate() != nil || version < 1 {
			return
		}
		meta, err := json.Marshal(ledger.Meta{Traceparent: trace})
		if err != nil {
			t.Fatal(err)
		}
		e.Meta = meta
		m := stream.Encode(e, payload, stream.Source("ä%"))
		for name, values := range m.Header {
			for _, c := range []byte(values[0]) {
				if c <= ' ' || c >= 0x7f {
					t.Errorf("header %s: %q", name, values[0])
				}
			}
		}
		got, err := stream.Decode(m.Subject, m.Header, m.Data)
		if err != nil {
			t.Fatal(err)
		}
		passed := trace
		if !wellFormed.MatchString(trace) {
			passed = ""
		}
		want := stream.Message{Key: e.Key, Version: e.Version, Attempt: 5, Position: 1 << 40, Shard: e.Shard,
			Type:       e.Type,
			RecordedAt: e.RecordedAt, Source: stream.Source("ä%"), Traceparent: passed, Payload: payload}
		if diff := difference.Of(want, got); diff != "" {
			t.Error(diff)
		}
		if got.ID() != e.ID() {
			t.Errorf("ID = %q, want %q", got.ID(), e.ID())
		}
	})
}

// No message makes Decode panic, and each message that it accepts has one key.
func FuzzDecode(f *testing.F) {
	f.Add("ledger.7.enqueued.k", "1.0", "k/b/1@2", "taskledger.enqueued", "version=1&attempt=0&position=9",
		"taskledger/i", "")
	f.Add("ledger.7.enqueued.k", "1.0", "k//@", "taskledger.enqueued", "position=&version=1&=", "%", "%G0")
	f.Fuzz(func(t *testing.T, subject, spec, id, typ, task, source, trace string) {
		header := nats.Header{"ce-specversion": {spec}, "ce-id": {id}, "ce-type": {typ}, "ce-task": {task},
			"ce-source": {source}, "traceparent": {trace}}
		m, err := stream.Decode(subject, header, nil)
		if err != nil {
			if !errors.Is(err, stream.ErrMalformed) {
				t.Errorf("error %v does not wrap ErrMalformed", err)
			}
			return
		}
		if m.Validate() != nil || m.Version < 1 || m.Attempt < 0 || m.Position < 0 ||
			stream.Subject(m.Shard, m.Type, m.Kind) != subject {
			t.Errorf("accepted %+v on %q", m, subject)
		}
	})
}

// A message made from a recycled one has nothing of it.
func TestRecycle(t *testing.T) {
	t.Parallel()
	plain := sampleEvent()
	plain.Meta = nil
	want := stream.Encode(plain, []byte("x"), "taskledger/test")
	for range 100 { // some of which are recycled
		rich := sampleEvent()
		rich.Meta = json.RawMessage(`{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			"tracestate":"vendor=1","finish_by":"2026-11-20T12:00:00Z","watermill":{"uuid":"1"}}`)
		used := stream.Encode(rich, nil, "taskledger/other")
		stream.Enclose(used, rich.Meta)
		if len(used.Header) != len(want.Header)+4 {
			t.Fatalf("headers: %v", used.Header)
		}
		used.Reply = "reply"
		stream.Recycle(used)
		got := stream.Encode(plain, []byte("x"), "taskledger/test")
		diff := difference.Of(want.Header, got.Header)
		if diff != "" || got.Reply != "" || got.Subject != want.Subject || string(got.Data) != "x" {
			t.Fatalf("%+v, headers (-want +got):\n%s", got, diff)
		}
		stream.Recycle(got)
	}
}

func BenchmarkEncode(b *testing.B) {
	e := sampleEvent()
	e.BizID, e.Meta = "order-1234567", nil
	payload := []byte(`{"amount":5}`)
	source := stream.Source("0190a6c4-5b0e-7c3a-9f6e-1234567890ab")
	b.ReportAllocs()
	for b.Loop() {
		m, _ := stream.None.EncodeWhole(e, payload, nil, source)
		stream.Recycle(m)
	}
}

func BenchmarkDecode(b *testing.B) {
	e := sampleEvent()
	e.BizID, e.Meta = "order-1234567", nil
	m := stream.Encode(e, nil, stream.Source("0190a6c4-5b0e-7c3a-9f6e-1234567890ab"))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := stream.Decode(m.Subject, m.Header, m.Data); err != nil {
			b.Fatal(err)
		}
	}
}

// A subscriber finds a task on the wire without any library, by these filters.
func ExampleSubject() {
	fmt.Println(stream.Subject(7, ledger.EventSucceeded, "coupon.send"))
	// Output: ledger.7.succeeded.coupon.send
}

// The deadline of a task is in the messages with its args. A malformed one never keeps an event from being
// published.
func TestFinishBy(t *testing.T) {
	t.Parallel()
	for meta, want := range map[string]time.Time{
		`{"finish_by":"2026-11-20T12:00:00.123456Z","tags":[]}`: recordedAt,
		`{"finish_by":"2026-11-20T13:00:00.123456+01:00"}`:      recordedAt,
		`{"tags":["\"finish_by\""]}`:                            {},
		`{"finish_by":5}`:                                       {},
		`{"finish_by":null}`:                                    {},
		`["finish_by"]`:                                         {},
		`{}`:                                                    {},
	} {
		msg := stream.Encode(sampleEvent(), nil, "taskledger/test")
		stream.Enclose(msg, []byte(meta))
		got, err := stream.Decode(msg.Subject, msg.Header, msg.Data)
		if err != nil || !got.FinishBy.Equal(want) {
			t.Errorf("%s: %s, %v, want %s", meta, got.FinishBy, err, want)
		}
	}
	msg := stream.Encode(sampleEvent(), nil, "taskledger/test")
	msg.Header.Set("ce-taskfinishby", "soon")
	if _, err := stream.Decode(msg.Subject, msg.Header, msg.Data); !errors.Is(err, stream.ErrMalformed) {
		t.Errorf("%v", err)
	}
}
