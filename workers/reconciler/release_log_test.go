package reconciler_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers/reconciler"
)

// A restore can lose the messages of many tasks at once. The log has a line for a group of them, with their number.
func TestLostMessagesAreLoggedTogether(t *testing.T) {
	t.Parallel()
	b := setup(t, outbox.StreamConfig{})
	const tasks = 20
	for i := range tasks {
		b.Enqueue(fmt.Sprintf("o-%d", i))
	}
	b.AwaitProjected()
	b.AcknowledgeUnworked(tasks)
	var log bytes.Buffer // of this goroutine: passes run in it
	r := reconciler.Walk(servicetest.Try(reconciler.New(reconciler.Config{
		DB: b.DB, NATS: b.NC, Every: 50 * time.Millisecond, Grace: time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}))(t))
	b.passes(r, 3)
	if n := b.releases(); n != tasks {
		t.Fatalf("released %d tasks, want %d", n, tasks)
	}
	if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), "tasks=20 biz_id=o-") {
		t.Errorf("%d lines for %d tasks, want one with their number:\n%s", lines, tasks, log.String())
	}
}
