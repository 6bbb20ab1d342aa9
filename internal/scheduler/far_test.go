package scheduler_test

import (
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/scheduler"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A producer cannot set a timer for a time that no program can read. If the owner has set one, it stops neither the
// scheduler nor its status.
func TestTimersAtUnreadableTimes(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"infinity", "294275-12-31 00:00:00+00", "9999-01-01 00:00:00+00", "-infinity"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			b := &fixture{servicetest.NewDatabaseOn(t, ledgertest.Pool(t, ledgertest.Owner))}
			statement := `
				insert into taskledger.event (kind, biz_id, version, attempt, shard, type, actor)
				values ('far', '1', 1, 0, taskledger.shard_of('1'), 'scheduled', 'a');
				insert into taskledger.timer (due_at, kind, biz_id, version, reason)
				values ('` + at + `', 'far', '1', 1, 'due')`
			if _, err := b.As("producer").Exec(t.Context(), statement); !pgerr.Is(err, pgerr.InsufficientPrivilege) {
				t.Errorf("%v, want insufficient_privilege", err)
			}
			if _, err := b.DB.Exec(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
			s := b.scheduler()
			b.step(s)
			if _, err := scheduler.ReadTimers(t.Context(), b.DB); err != nil {
				t.Error(err)
			}
			k := b.Later("soon", ledger.EnqueueOptions{RunIn: 10 * time.Millisecond})
			for b.Task(k).State != ledger.StateAvailable {
				b.step(s)
			}
		})
	}
}
