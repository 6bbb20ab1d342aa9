package scheduler_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers/scheduler"
)

func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	plantest.Prepare(t, ledgertest.URL(t), nil)
}

// PostgreSQL compiles no plan of a statement that is executed repeatedly, on a ledger with a long history.
func TestNoPlanIsCompiled(t *testing.T) {
	t.Parallel()
	plain := ledgertest.Pool(t)
	plantest.Enlarge(t, plain)
	b := &fixture{&servicetest.Bundle{T: t, DB: plain}}
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
