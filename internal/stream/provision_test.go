package stream_test

import (
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/stream"
)

// A server that has less storage than the stream may use refuses the stream. The error names the limit and its cures.
func TestStreamWithoutRoomNamesTheCure(t *testing.T) {
	t.Parallel()
	_, _, js := start(t, natsserver.Config{MaxStore: 1 << 20})
	_, err := stream.Ensure(t.Context(), js, stream.Config{}, "i")
	for _, part := range []string{"lacks space for 4096 MiB", "max_file_store", "--stream-max-bytes"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error is without %q: %v", part, err)
		}
	}
	if _, err := stream.Ensure(t.Context(), js, stream.Config{MaxBytes: 1 << 20}, "i"); err != nil {
		t.Error(err)
	}
}
