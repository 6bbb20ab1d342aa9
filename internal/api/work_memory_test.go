package api_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/wire"
)

// A process keeps neither args nor results of ended attempts, whose repeated calls it answers.
func TestEndedAttemptsAreSmall(t *testing.T) {
	s := serveWork(t, 30*time.Second) // alone: it measures memory
	const tasks, size = 60, 200 << 10
	text := json.RawMessage(`"` + strings.Repeat("x", size) + `"`)
	ask := askFor(1, "a.large")
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	var before int64
	for i := range tasks {
		s.enqueue(fmt.Sprint("a.large/", i), string(text))
		task, got := s.one(ask)
		ask.Received = got.Batch
		s.end("finish", wire.Finish{AttemptRef: task.Ref(), Result: text})
		if i == tasks/3 {
			before = heap()
		}
	}
	if grown := heap() - before; grown > tasks*size/3 {
		t.Errorf("%d bytes more after %d results of %d bytes", grown, tasks*2/3, size)
	}
}
