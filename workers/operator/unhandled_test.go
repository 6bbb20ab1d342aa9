package workers_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
)

// A kind that nobody handles waits and is told, with the age of its oldest task unless that would
// cost too much; a worker that comes for it does its tasks.
func TestUnhandled(t *testing.T) {
	t.Parallel()
	b := setupServed(t, outbox.StreamConfig{})
	type found struct {
		kind    ledger.Kind
		waiting int64
		aged    bool
	}
	unhandled := func() (all []found) {
		for _, u := range try(workers.Unhandled(b.Context(), b.DB))(t) {
			all = append(all, found{u.Kind, u.Waiting, u.OldestMS != nil})
		}
		return all
	}
	few, many := ledger.MustKind[orderArgs]("test.few"), ledger.MustKind[orderArgs]("test.many")
	register := func(kinds ...ledger.TypedKind[orderArgs]) func(*workers.Pool) error {
		return func(p *workers.Pool) error {
			for _, k := range kinds {
				if err := workers.Register(p, k, insertEffect, nil); err != nil {
					return err
				}
			}
			return nil
		}
	}
	b.Work(workers.Config{}, register(order))
	var entries []ledger.Entry
	for i := range 1001 {
		entries = append(entries, try(many.Entry(ledger.BizID(fmt.Sprint("m-", i)), orderArgs{}, nil))(t))
		if i < 3 {
			entries = append(entries, try(few.Entry(ledger.BizID(fmt.Sprint("f-", i)), orderArgs{}, nil))(t))
		}
	}
	try(ledger.EnqueueMany(b.Context(), b.DB, entries))(t)
	b.Enqueue("o-1")
	b.AwaitSucceeded(1)
	b.AwaitProjected()
	if diff := cmp.Diff([]found{{few.Name(), 3, true}, {many.Name(), 1001, false}}, unhandled(), cmp.AllowUnexported(found{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	w := b.Work(workers.Config{}, register(few, many))
	b.AwaitSucceeded(1005)
	w.Stop()
	b.AwaitProjected()
	if all := unhandled(); all != nil {
		t.Errorf("nothing waits, and told: %v", all)
	}
}
