package envelope_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/envelope"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// throughDatabaseAndWire enqueues a message and returns it as a subscriber receives it.
func throughDatabaseAndWire(
	t *testing.T, db ledger.DB, topic string, m envelope.Message,
) (ledger.Key, envelope.Message) {
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
	msg := stream.Encode(history[0], payload, "taskledger/test")
	stream.Enclose(msg, history[0].Meta)
	got, err := stream.Decode(msg.Subject, msg.Header, msg.Data)
	if err != nil {
		t.Fatal(err)
	}
	back, err := envelope.Open(got.BizID, got.Payload, got.Envelope, got.Traceparent, got.Tracestate)
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
		metadata map[string]string
		id       ledger.BizID
	}{
		"json":           {uuid: "u", payload: []byte(`{ "a" : 1.50,  "a":"\u0000" }`), id: "u"},
		"json null":      {uuid: "u", payload: []byte(`null`), id: "u"},
		"json, too deep": {uuid: "u", payload: deep, id: "u"},
		"json string":    {uuid: "u", payload: []byte(`"AAECAw=="`), id: "u"},
		"bytes":          {uuid: "u", payload: []byte{0, 1, 2, 0xff, '"', '\\', '\n'}, id: "u"},
		"nothing":        {uuid: "u", id: "u"},
		"metadata": {
			uuid: "u", payload: []byte("x"), id: "u",
			metadata: map[string]string{"k": "v", "": "empty key", "empty value": ""},
		},
		"hostile metadata": {
			uuid: "u", payload: []byte("x"), id: "u",
			metadata: map[string]string{"a\r\nb: c": "\r\n\r\nbody", "q\"'\\": "\x01\x7f  \u2028 <&> ünï"},
		},
		"biz_id": {
			uuid: "u", payload: []byte("x"), id: "order 4711 ü/%",
			metadata: map[string]string{"biz_id": "order 4711 ü/%"},
		},
		"biz_id, no UUID": {metadata: map[string]string{"biz_id": "4711"}, id: "4711"},
		"empty biz_id":    {uuid: "u", metadata: map[string]string{"biz_id": ""}, id: "u"},
		"looks like a meta": {
			uuid: "u", payload: []byte(`{"watermill":{"uuid":"x"}}`), id: "u",
			metadata: map[string]string{"watermill": `{"uuid":"x"}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := envelope.Message{UUID: test.uuid, Payload: test.payload, Metadata: test.metadata}
			key, back := throughDatabaseAndWire(t, db, "test."+strings.NewReplacer(" ", "-", ",", "").Replace(name), m)
			if key.BizID != test.id {
				t.Errorf("biz_id %q, want %q", key.BizID, test.id)
			}
			if back.UUID != m.UUID || string(back.Payload) != string(m.Payload) ||
				!maps.Equal(back.Metadata, m.Metadata) {
				t.Errorf("got %q %q, want %q %q; metadata %s",
					back.UUID, back.Payload, m.UUID, m.Payload, difference.Of(m.Metadata, back.Metadata))
			}
		})
	}
}

func TestMessageOfATaskThatWasNotPublished(t *testing.T) {
	t.Parallel()
	m, err := envelope.Open("o-1", []byte("{}"), "", "00-a-b-01", "a=1")
	if err != nil {
		t.Fatal(err)
	}
	if m.UUID != "o-1" || string(m.Payload) != "{}" {
		t.Errorf("got %q %q", m.UUID, m.Payload)
	}
	want := map[string]string{"traceparent": "00-a-b-01", "tracestate": "a=1"}
	if diff := difference.Of(want, m.Metadata); diff != "" {
		t.Error(diff)
	}
	if _, err := envelope.Open("o-1", nil, `{"metadata":7}`, "", ""); err == nil {
		t.Error("Open returned no error for an envelope of another form")
	}
}

// An event is published although its meta has a foreign member with the envelope's name.
func TestForeignEnvelope(t *testing.T) {
	t.Parallel()
	for _, meta := range []string{`{"watermill":[1]}`, `{"tags":["\"watermill\""]}`, `"watermill"`} {
		if !json.Valid([]byte(meta)) {
			t.Fatal(meta)
		}
		key := ledger.Key{Kind: "k", BizID: "b"}
		e := ledger.Event{Key: key, Version: 1, Type: ledger.EventEnqueued, RecordedAt: time.Now()}
		msg := stream.Encode(e, nil, "taskledger/test")
		stream.Enclose(msg, []byte(meta))
		if _, err := stream.Decode(msg.Subject, msg.Header, msg.Data); err != nil {
			t.Errorf("%s: %v", meta, err)
		}
	}
}
