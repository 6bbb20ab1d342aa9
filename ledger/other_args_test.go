package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// An enqueue of a task that exists with other args returns that task in an error. The caller's transaction stays
// usable and commits, and the task keeps the args of its first enqueue.
func TestEnqueueWithOtherArgs(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	k := ledger.Key{Kind: "coupon.send", BizID: "A-1"}
	made := ledgertest.Enqueue(t, pool, k, `{"cents":500}`)
	for name, o := range map[string]*ledger.EnqueueOptions{"due": nil, "later": {RunIn: 1e9}} {
		tx := beginLedgerTx(t, pool, nil)
		_, err := ledger.Enqueue(t.Context(), tx, k, json.RawMessage(`{"cents":600}`), o)
		other := wantErrorAs[*ledger.OtherArgsError](t, err)
		want := &ledger.OtherArgsError{Existing: ledger.Enqueued{
			Key: k, State: ledger.StateAvailable, Version: 1, Position: made.Position,
			Difference: "args.cents was 500, is 600",
		}}
		if diff := difference.Of(want, other); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if ledger.IsConflict(err) || ledger.Retryable(err) {
			t.Errorf("%s: %v is a conflict or retryable", name, err)
		}
		next := ledger.Key{Kind: k.Kind, BizID: ledger.BizID("after " + name)}
		if _, err := ledger.Enqueue(t.Context(), tx, next, nil, nil); err != nil {
			t.Fatalf("%s: the transaction is unusable: %v", name, err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if task, err := ledger.Load(t.Context(), pool, k); err != nil || string(task.Args) != `{"cents":500}` {
			t.Errorf("%s: %s, %v", name, task.Args, err)
		}
		if _, err := ledger.Load(t.Context(), pool, next); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	accept := &ledger.EnqueueOptions{IfExists: ledger.IfExistsIgnore}
	answer, err := ledger.Enqueue(t.Context(), pool, k, nil, accept)
	if err != nil || answer.New || answer.SameArgs || answer.Position != made.Position {
		t.Errorf("accepted: %+v, %v", answer, err)
	}
}

// Of many entries, those whose tasks exist with other args are reported, and the others are enqueued. A hook gets the
// error of its own entry.
func TestEnqueueManyWithOtherArgs(t *testing.T) {
	t.Parallel()
	for name, enqueue := range map[string]func(context.Context, ledger.DB, []ledger.Entry) ([]ledger.Enqueued, error){
		"many": ledger.EnqueueMany, "in order": ledger.EnqueueInOrder,
	} {
		pool := ledgertest.Pool(t)
		failed := map[ledger.BizID]bool{}
		noteFailed := func(_ context.Context, k ledger.Key, _ ledger.Enqueued, err error) {
			failed[k.BizID] = errors.As(err, new(*ledger.OtherArgsError))
		}
		kind := ledger.MustKind[int]("coupon.send", ledger.EnqueueHook{AfterEnqueue: noteFailed})
		for _, id := range []ledger.BizID{"same", "other-1", "other-2", "accepted"} {
			ledgertest.Enqueue(t, pool, kind.Key(id), "1")
		}
		var entries []ledger.Entry
		for _, e := range []struct {
			id   ledger.BizID
			args int
			o    *ledger.EnqueueOptions
		}{
			{id: "same", args: 1}, {id: "other-2", args: 2}, {id: "new", args: 1}, {id: "other-1", args: 2},
			{id: "accepted", args: 2, o: &ledger.EnqueueOptions{IfExists: ledger.IfExistsIgnore}},
		} {
			entry, err := kind.Entry(e.id, e.args, e.o)
			if err != nil {
				t.Fatal(err)
			}
			entries = append(entries, entry)
		}
		answers, err := enqueue(t.Context(), pool, entries)
		other := wantErrorAs[*ledger.OtherArgsError](t, err)
		if len(answers) != 5 || other.Existing != answers[1] || other.More != 1 || !answers[2].New {
			t.Errorf("%s: %+v, %+v", name, answers, other)
		}
		want := map[ledger.BizID]bool{"same": false, "other-2": true, "new": false, "other-1": true, "accepted": false}
		if diff := difference.Of(want, failed); diff != "" {
			t.Errorf("%s: hooks: %s", name, diff)
		}
		if _, err := ledger.Load(t.Context(), pool, kind.Key("new")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
