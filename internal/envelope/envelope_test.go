package envelope_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"

	"github.com/taskledger/taskledger/internal/envelope"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// throughDatabaseAndWire enqueues a message and gives it back as a subscriber has it.
func throughDatabaseAndWire(t *testing.T, db ledger.DB, topic string, m *message.Message) (ledger.Key, *message.Message) {
	t.Helper()
	entry, err := envelope.Entry(topic, m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Enqueue(t.Context(), db, entry.Key, entry.Args, entry.Options); err != nil {
		t.Fatal(err)
	}
	history, err := ledger.History(t.Context(), db, entry.Key)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := history[0].Payload()
	if err != nil {
		t.Fatal(err)
	}
	msg := stream.Encode(history[0], payload, "taskledger/test", 1)
	stream.Enclose(msg, history[0].Meta)
	got, err := stream.Decode(msg.Subject, msg.Header, msg.Data)
	if err != nil {
		t.Fatal(err)
	}
	back, err := envelope.Message(got.BizID, got.Payload, got.Envelope, got.Traceparent, got.Tracestate)
	if err != nil {
		t.Fatal(err)
	}
	return got.Key, back
}

func TestMessagesComeBackByteForByte(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t)
	deep := make([]byte, 0, 4000)
	for range 2000 {
		deep = append(deep, '[')
	}
	for range 2000 {
		deep = append(deep, ']')
	}
	for name, test := range map[string]struct {
		uuid     string
		payload  []byte
		metadata message.Metadata
		id       ledger.BizID
	}{
		"json":              {"u", []byte(`{ "a" : 1.50,  "a":"\u0000" }`), nil, "u"},
		"json null":         {"u", []byte(`null`), nil, "u"},
		"json, too deep":    {"u", deep, nil, "u"},
		"json string":       {"u", []byte(`"AAECAw=="`), nil, "u"},
		"bytes":             {"u", []byte{0, 1, 2, 0xff, '"', '\\', '\n'}, nil, "u"},
		"nothing":           {"u", nil, nil, "u"},
		"metadata":          {"u", []byte("x"), message.Metadata{"k": "v", "": "empty key", "empty value": ""}, "u"},
		"hostile metadata":  {"u", []byte("x"), message.Metadata{"a\r\nb: c": "\r\n\r\nbody", "q\"'\\": "\x01\x7f  \u2028 <&> ünï"}, "u"},
		"biz_id":            {"u", []byte("x"), message.Metadata{"biz_id": "order 4711 ü/%"}, "order 4711 ü/%"},
		"biz_id, no UUID":   {"", nil, message.Metadata{"biz_id": "4711"}, "4711"},
		"empty biz_id":      {"u", nil, message.Metadata{"biz_id": ""}, "u"},
		"looks like a meta": {"u", []byte(`{"watermill":{"uuid":"x"}}`), message.Metadata{"watermill": `{"uuid":"x"}`}, "u"},
	} {
		t.Run(name, func(t *testing.T) {
			m := message.NewMessage(test.uuid, test.payload)
			if test.metadata != nil {
				m.Metadata = test.metadata
			}
			key, back := throughDatabaseAndWire(t, db, "test."+strings.NewReplacer(" ", "-", ",", "").Replace(name), m)
			if key.BizID != test.id {
				t.Errorf("biz_id %q, want %q", key.BizID, test.id)
			}
			if back.UUID != m.UUID || string(back.Payload) != string(m.Payload) || !m.Equals(back) {
				t.Errorf("got %q %q, want %q %q; metadata %s", back.UUID, back.Payload, m.UUID, m.Payload, cmp.Diff(m.Metadata, back.Metadata))
			}
		})
	}
}

func TestMessageOfATaskThatWasNone(t *testing.T) {
	t.Parallel()
	m, err := envelope.Message("o-1", []byte("{}"), "", "00-a-b-01", "a=1")
	if err != nil {
		t.Fatal(err)
	}
	if m.UUID != "o-1" || string(m.Payload) != "{}" || m.Metadata.Get("traceparent") != "00-a-b-01" || m.Metadata.Get("tracestate") != "a=1" || len(m.Metadata) != 2 {
		t.Errorf("got %q %q %v", m.UUID, m.Payload, m.Metadata)
	}
	if _, err := envelope.Message("o-1", nil, `{"metadata":7}`, "", ""); err == nil {
		t.Error("an envelope of a foreign shape is not noticed")
	}
}

// What somebody else wrote into the meta must not keep an event from being published.
func TestForeignEnvelope(t *testing.T) {
	t.Parallel()
	for _, meta := range []string{`{"watermill":[1]}`, `{"tags":["\"watermill\""]}`, `"watermill"`} {
		if !json.Valid([]byte(meta)) {
			t.Fatal(meta)
		}
		e := ledger.Event{Key: ledger.Key{Kind: "k", BizID: "b"}, Version: 1, Type: ledger.EventEnqueued, RecordedAt: time.Now()}
		msg := stream.Encode(e, nil, "taskledger/test", 1)
		stream.Enclose(msg, []byte(meta))
		if _, err := stream.Decode(msg.Subject, msg.Header, msg.Data); err != nil {
			t.Errorf("%s: %v", meta, err)
		}
	}
}
