package scheduler_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/scheduler"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
)

// Run returns after its context has ended, although the database has frozen in the middle of a batch.
func TestStopWhileTheDatabaseIsFrozen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	freezer, db := servicetest.NewFreezer(t, b.DB)
	for i := range 100 {
		b.Later(fmt.Sprint(i), ledger.EnqueueOptions{RunIn: time.Microsecond})
	}
	b.Later("keeps it busy", ledger.EnqueueOptions{RunIn: time.Hour})
	fired := make(chan struct{})
	closeFired := sync.OnceFunc(func() { close(fired) })
	h := scheduler.Hook{AfterBatch: func(context.Context, scheduler.Batch) { closeFired() }}
	s := servicetest.Try(scheduler.New(scheduler.Config{DB: db, Hook: h}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	<-fired
	freezer.Freeze()
	defer freezer.Thaw()
	b.Await("the scheduler to wait for an answer", func() bool {
		stat := db.Stat()
		return stat.AcquiredConns()+stat.ConstructingConns() >= 1
	})
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(servicetest.Patience):
		t.Fatal("it does not stop")
	}
}
