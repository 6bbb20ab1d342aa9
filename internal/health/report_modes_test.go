package health_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	plantest.Prepare(t, ledgertest.URL(t, "reader"), nil)
}

// A report is read in each query mode of pgx, under any settings of the role.
func TestQueryModes(t *testing.T) {
	t.Parallel()
	database := func(t *testing.T) *pgxpool.Pool { return ledgertest.Pool(t, ledgertest.App, "relay", "operator") }
	plantest.EachQueryMode(t, database, func(t *testing.T, db *pgxpool.Pool) {
		b := &bundle{t, db}
		b.takeLease()
		ledgertest.Enqueue(t, db, ledgertest.Key(t, "mail/1"), "")
		later := &ledger.EnqueueOptions{RunIn: time.Hour}
		if _, err := ledger.Enqueue(t.Context(), db, ledgertest.Key(t, "mail/2"), nil, later); err != nil {
			t.Fatal(err)
		}
		b.exec(`
			insert into taskledger.parked (position, kind, biz_id, version, reason)
			select position, kind, biz_id, version, 'a test' from taskledger.event order by position limit 1`)
		r := b.read(health.Config{})
		for what, at := range map[string]time.Time{
			"the report": r.At, "the oldest event": r.Outbox.OldestAt, "the lease": r.Outbox.Relay.Since,
			"the parked event": r.Outbox.ParkedAt,
		} {
			if age := time.Since(at); age < -time.Minute || age > time.Hour {
				t.Errorf("%s is of %v", what, at)
			}
		}
		if in := time.Until(r.Timers.NextAt); in < 50*time.Minute || in > 70*time.Minute {
			t.Errorf("the next timer is due in %v, want an hour", in)
		}
	})
}
