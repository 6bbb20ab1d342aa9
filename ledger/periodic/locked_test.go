package periodic_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/periodic"
)

// lockedBuffer is a log that can be read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(line)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// An open transaction that has enqueued the keys of coming firings stops no other schedule, however many keys it has:
// the log has these schedules and the cause, and they fire when it has ended.
func TestFiringHeldByAnOpenTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const held = 60
	tick := periodic.Schedule{Name: "tick", Kind: "tick", Every: time.Second}
	schedules := []periodic.Schedule{tick}
	for i := range held {
		s := hourly(fmt.Sprintf("held-%d", i))
		s.Kind = "held"
		schedules = append(schedules, s)
	}
	b.apply(schedules...)
	tx, err := ledgertest.As(t, b.db, "producer").Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range schedules[1:] {
		b.due(s.Name, "1 hour")
		key := ledger.Key{Kind: s.Kind, BizID: ledger.BizID(s.Name + "@" + b.load(s.Name).NextAt.Format(time.RFC3339))}
		if _, err := ledger.Enqueue(t.Context(), tx, key, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	var log lockedBuffer
	b.run(periodic.NewRunner(b.db, slog.New(slog.NewTextHandler(&log, nil))))
	b.await("another schedule to fire", func() bool { return len(b.fired("tick")) >= 3 })
	for _, s := range schedules[1:] {
		line := "schedule=" + s.Name + " error=\"schedule " + s.Name + ": enqueue held/" + s.Name + "@"
		b.await("a line with the schedule and its key", func() bool { return strings.Contains(log.String(), line) })
	}
	if n := strings.Count(log.String(), "schedule waits for an open transaction"); n != held {
		t.Errorf("%d lines on %d schedules", n, held)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range schedules[1:] {
		b.await(s.Name+" to fire", func() bool { return len(b.fired(s.Name)) == 1 })
	}
	ledgertest.Check(t, b.db)
}
