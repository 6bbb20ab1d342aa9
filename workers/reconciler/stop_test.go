package reconciler_test

import (
	"context"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers/reconciler"
)

// Run returns after its context has ended, although the database has frozen in the middle of a pass.
func TestStopWhileTheDatabaseIsFrozen(t *testing.T) {
	t.Parallel()
	b := setup(t, outbox.StreamConfig{})
	freezer, db := servicetest.NewFreezer(t, b.DB)
	r := servicetest.Try(reconciler.New(reconciler.Config{DB: db, NATS: b.Connect(), Every: time.Millisecond}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	b.Await("the first pass", func() bool { return db.Stat().AcquireCount() > 0 })
	freezer.Freeze()
	defer freezer.Thaw()
	b.Await("the reconciler to wait for an answer", func() bool {
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
