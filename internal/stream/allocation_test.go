//go:build !race

// The race detector empties pools at random, and so adds allocations.

package stream_test

import (
	"testing"

	"github.com/taskledger/taskledger/internal/stream"
)

// A published event allocates the string of its values, and nothing else.
func TestEncodeAllocations(t *testing.T) {
	e := sampleEvent()
	e.Meta = nil
	source, payload := stream.Source("0190a6c4-5b0e-7c3a-9f6e-1234567890ab"), []byte(`{"amount":5}`)
	stream.Recycle(stream.Encode(e, payload, source, 1))
	if got := testing.AllocsPerRun(100, func() { stream.Recycle(stream.Encode(e, payload, source, 1)) }); got != 1 {
		t.Errorf("%v allocations, want 1", got)
	}
}
