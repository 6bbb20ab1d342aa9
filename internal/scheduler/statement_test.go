package scheduler_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/internal/scheduler"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	plantest.Prepare(t, ledgertest.URL(t, "relay"), nil)
}

// PostgreSQL compiles no plan of a statement that is executed repeatedly, on a ledger with a long history.
func TestNoPlanIsCompiled(t *testing.T) {
	t.Parallel()
	plain := ledgertest.Pool(t, ledgertest.Owner)
	plantest.Enlarge(t, plain)
	b := &fixture{servicetest.NewDatabaseOn(t, plain)}
	b.SetLimit(10, ledger.DiscardOldest)
	b.EnqueueMany(30)
	s := servicetest.Try(scheduler.New(scheduler.Config{DB: plantest.Pool(t, plain, "")}))(t)
	b.discard(s)
	if n := len(b.available()); n != 10 {
		t.Errorf("%d wait, want 10", n)
	}
	var keys []ledger.Key
	for i := range 3 {
		o := ledger.EnqueueOptions{RunIn: 50 * time.Millisecond, FinishBy: time.Now().Add(time.Hour)}
		keys = append(keys, b.Later(strconv.Itoa(i), o))
	}
	for _, k := range keys {
		for b.Task(k).State != ledger.StateAvailable {
			b.step(s)
		}
	}
}

// The scheduler works in each query mode of pgx, under any settings of the role.
func TestQueryModes(t *testing.T) {
	t.Parallel()
	database := func(t *testing.T) *pgxpool.Pool { return servicetest.Pool(t) }
	plantest.EachQueryMode(t, database, func(t *testing.T, db *pgxpool.Pool) {
		b := &fixture{servicetest.NewDatabaseOn(t, db)}
		s := b.scheduler()
		b.Later("far", ledger.EnqueueOptions{RunIn: time.Hour})
		k := b.Later("soon", ledger.EnqueueOptions{RunIn: 50 * time.Millisecond})
		for b.Task(k).State != ledger.StateAvailable {
			b.step(s)
		}
		status, err := scheduler.ReadTimers(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		if in := time.Until(status.NextAt); in < 50*time.Minute || in > 70*time.Minute {
			t.Errorf("the next timer is due in %v, want an hour", in)
		}
	})
}
