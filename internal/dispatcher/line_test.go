package dispatcher_test

import (
	"fmt"
	"testing"

	"github.com/taskledger/taskledger/internal/dispatcher"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// Lines in which nothing ends cost no statement, however many there are and whatever other tasks do.
func TestIdleLinesCostNoStatement(t *testing.T) {
	t.Parallel()
	b := servicetest.New(t)
	const keys = 2000
	var entries []ledger.Entry
	for i := range 2 * keys {
		entries = append(entries, ledger.Entry{Key: ledger.Key{Kind: "line.idle", BizID: ledger.BizID(fmt.Sprint(i))},
			Options: &ledger.EnqueueOptions{OrderKey: fmt.Sprint("line/", i%keys)}})
	}
	servicetest.Try(ledger.EnqueueMany(t.Context(), b.DB, entries))(t)
	turns := statements{begin: "-- Makes the next tasks of lines available"}
	b.Start(servicetest.Try(dispatcher.New(dispatcher.Config{
		DB: tracedPool(t, b.As("relay"), &turns), NATS: b.Connect(),
	}))(t).Run)
	b.Work(workers.Config{}, b.Exactly(servicetest.InsertEffect, nil))
	waiting := func() int {
		return servicetest.One[int](b, "select count(*) from taskledger.event where kind = 'line.idle' and version = 2")
	}
	b.Await("the first turns", func() bool { return waiting() == keys })
	last := ledger.Key{Kind: "line.last", BizID: "1"} // its turn comes after the pages with the others
	servicetest.Try(ledger.Enqueue(t.Context(), b.DB, last, nil, &ledger.EnqueueOptions{OrderKey: "line/last"}))(t)
	b.AwaitState(last, ledger.StateAvailable)
	before := turns.Load()
	for i := range 20 {
		b.AwaitState(b.Enqueue(fmt.Sprint("plain-", i)), ledger.StateSucceeded)
	}
	if n := turns.Load() - before; n != 0 {
		t.Errorf("%d searches for turns while 20 other tasks ran", n)
	}
	if n := waiting(); n != keys {
		t.Errorf("%d turns, want %d", n, keys)
	}
}
