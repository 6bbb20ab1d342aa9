package scheduler_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/taskledger/taskledger/internal/scheduler"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
)

// messages is a log in memory: the levels and texts of its records.
type messages struct {
	slog.Handler

	mu  sync.Mutex
	all map[slog.Level][]string
}

func (m *messages) Enabled(context.Context, slog.Level) bool { return true }

func (m *messages) Handle(_ context.Context, r slog.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[r.Level] = append(m.all[r.Level], r.Message)
	return nil
}

func (m *messages) count(level slog.Level, text string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, one := range m.all[level] {
		if one == text {
			n++
		}
	}
	return n
}

// A task above a limit that an open transaction has appended to is discarded, or not, after that transaction. It is no
// reason to warn. The other tasks are discarded at once.
func TestDiscardOldestThatIsLocked(t *testing.T) {
	t.Parallel()
	b := setupLimit(t, 1)
	b.EnqueueMany(4)
	b.Project()
	log := &messages{Handler: slog.DiscardHandler, all: map[slog.Level][]string{}}
	s := servicetest.Try(scheduler.New(scheduler.Config{DB: b.As("relay"), Logger: slog.New(log)}))(t)

	tx := servicetest.Try(b.DB.Begin(b.Context()))(t)
	defer tx.Rollback(context.Background())
	servicetest.Try(ledger.Append(b.Context(), tx, ledger.AppendRequest{
		Key: orderKey("o-0001"), Expected: 1, Type: ledger.EventCancelled,
	}))(t)
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	b.Await("two passes that meet the lock", func() bool {
		const isLocked, isFault = "tasks above a limit are in use; trying again",
			"cannot discard tasks above a limit; retrying"
		return log.count(slog.LevelDebug, isLocked) >= 2 || log.count(slog.LevelWarn, isFault) > 0
	})
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	b.Project()
	if got := b.TasksIn(ledger.StateDiscarded); len(got) != 2 {
		t.Errorf("discarded beside the lock: %v", got)
	}
	if n := log.count(slog.LevelWarn, "cannot discard tasks above a limit; retrying"); n > 0 {
		t.Errorf("%d warnings", n)
	}
	if n := log.count(slog.LevelWarn, "too many tasks wait; the oldest were discarded"); n == 0 {
		t.Error("no record of what was discarded")
	}
}
