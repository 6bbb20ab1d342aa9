//go:build !race

// The race detector empties pools at random, and so adds allocations.

package stream_test

import (
	"testing"
	"unsafe"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
)

// A published event allocates the string of its own values, and nothing else. All share one source.
func TestEncodeAllocations(t *testing.T) {
	e := sampleEvent()
	e.Meta = nil
	source, payload := stream.Source("0190a6c4-5b0e-7c3a-9f6e-1234567890ab"), []byte(`{"amount":5}`)
	stream.Recycle(stream.Encode(e, payload, source))
	if got := testing.AllocsPerRun(100, func() { stream.Recycle(stream.Encode(e, payload, source)) }); got != 1 {
		t.Errorf("%v allocations, want 1", got)
	}
	m := stream.Encode(e, payload, source)
	if unsafe.StringData(m.Header["ce-source"][0]) != unsafe.StringData(source) {
		t.Error("the message has a copy of the source")
	}
}

// A message of a task without a trace has seven headers, and eight with an id: as many as a map of Go has in one group.
// With more, the map of a received message takes five more allocations and twice as long.
func TestHeaderAllocations(t *testing.T) {
	e := sampleEvent()
	e.Meta = nil
	m := stream.Encode(e, nil, stream.Source("i-1"))
	if len(m.Header) != 7 {
		t.Errorf("%d headers, want 7", len(m.Header))
	}
	text := []byte("NATS/1.0\r\n")
	for name, values := range m.Header {
		text = append(append(append(append(text, name...), ": "...), values[0]...), "\r\n"...)
	}
	text = append(text, "\r\n"...)
	got := testing.AllocsPerRun(100, func() {
		if _, err := nats.DecodeHeadersMsg(text); err != nil {
			t.Error(err)
		}
	})
	if got != 10 {
		t.Errorf("%v allocations to decode them, want 10", got)
	}
}
