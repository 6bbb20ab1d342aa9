package operator_test

import (
	"fmt"
	"testing"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
)

// A kind with waiting tasks and no worker is returned, with the age of its oldest task unless that would cost too
// much. It is not returned any more after a worker has run its tasks.
func TestUnhandled(t *testing.T) {
	t.Parallel()
	b := servicetest.NewServed(t, outbox.StreamConfig{})
	type found struct {
		kind    ledger.Kind
		waiting int64
		aged    bool
	}
	unhandled := func() (all []found) {
		for _, u := range servicetest.Try(operator.ReadUnhandled(b.Context(), b.DB))(t) {
			all = append(all, found{kind: u.Kind, waiting: u.Waiting, aged: u.OldestMS != nil})
		}
		return all
	}
	few, many := ledger.MustKind[servicetest.OrderArgs]("test.few"), ledger.MustKind[servicetest.OrderArgs]("test.many")
	register := func(kinds ...ledger.TypedKind[servicetest.OrderArgs]) func(*workers.Pool) error {
		return func(p *workers.Pool) error {
			for _, k := range kinds {
				if err := p.Register(workers.Handle(k, servicetest.InsertEffect, nil)); err != nil {
					return err
				}
			}
			return nil
		}
	}
	b.Work(workers.Config{}, register(servicetest.Order))
	var entries []ledger.Entry
	for i := range 1001 {
		entry := servicetest.Try(many.Entry(ledger.BizID(fmt.Sprint("m-", i)), servicetest.OrderArgs{}, nil))(t)
		entries = append(entries, entry)
		if i < 3 {
			entries = append(
				entries, servicetest.Try(few.Entry(ledger.BizID(fmt.Sprint("f-", i)), servicetest.OrderArgs{}, nil))(t),
			)
		}
	}
	servicetest.Try(ledger.EnqueueMany(b.Context(), b.DB, entries))(t)
	b.Enqueue("o-1")
	b.AwaitSucceeded(1)
	begun := ledger.AppendRequest{Key: few.Key("f-0"), Expected: 1, Type: ledger.EventStarted, Actor: "lost worker"}
	servicetest.Try(ledger.Append(b.Context(), b.DB, begun))(t)
	b.AwaitProjected()
	want := []found{{kind: few.Name(), waiting: 3, aged: true}, {kind: many.Name(), waiting: 1001}}
	if diff := difference.Of(want, unhandled()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	const explain = "explain (analyze, buffers, format json) select * from taskledger_internal.unhandled_kinds(1000)"
	var plan []struct {
		Plan struct {
			Hit int64 `json:"Shared Hit Blocks"`
		} `json:"Plan"`
	}
	if err := b.DB.QueryRow(b.Context(), explain).Scan(&plan); err != nil {
		t.Fatal(err)
	}
	if hit := plan[0].Plan.Hit; hit > 500 {
		t.Errorf("the tasks of a kind are read that has too many for its age: %d blocks", hit)
	}
	w := b.Work(workers.Config{}, register(few, many))
	b.AwaitSucceeded(1005)
	w.Stop()
	b.AwaitProjected()
	if all := unhandled(); all != nil {
		t.Errorf("no task waits, got %v", all)
	}
}
