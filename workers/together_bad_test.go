package workers_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

var (
	someIDs  = []string{"a", "b", "c", "bad", "d", "e", "f", "g"}
	badFirst = []string{"bad", "a", "b", "c", "d", "e", "f", "g"}
)

// A task that fails in a shared transaction has the same outcome as alone, and the other tasks are not affected.
func TestOneOfTogetherMisbehaves(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Exec(schemaOfMisbehaviours)
	b.Dispatch()
	for name, test := range misbehaviours {
		t.Run(name, func(t *testing.T) { oneMisbehaves(t, b, name, test, someIDs) })
	}
	for _, name := range []string{"error", "goexit", "ignores"} { // where it is the first in the transaction
		t.Run(name+", the first", func(t *testing.T) { oneMisbehaves(t, b, name, misbehaviours[name], badFirst) })
	}
}

func oneMisbehaves(t *testing.T, b *bundle, name string, test misbehaviour, ids []string) {
	t.Parallel()
	b = b.in(t)
	var calls atomic.Int32
	times := int32(2) // shared, and alone
	if name == "ignores" {
		times = 1 // so that a slot stays free
	}
	never := make(chan struct{}) // until the test ends
	t.Cleanup(func() { close(never) })
	g := b.gather(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		if err := insertEffect(ctx, tx, job, args); err != nil || job.BizID != "bad" || calls.Add(1) > times {
			return err
		}
		ctx = context.WithValue(ctx, jobKey{}, job)
		return test.misbehave(context.WithValue(ctx, neverKey{}, never), tx)
	}, test.config)
	for _, k := range b.enqueueGathered(g, ids...) {
		b.AwaitState(k, ledger.StateSucceeded)
		b.WantOneEffect(k)
		failures := b.failures(k)
		if k.BizID != "bad" {
			if len(failures) > 0 {
				t.Errorf("%s has failed, too: %q", k, failures)
			}
			continue
		}
		if len(failures) == 0 || !strings.Contains(failures[0].Error.Message, test.message) {
			t.Errorf("failures %q, want one with the message %q", failures, test.message)
		}
	}
	// If the first one never returns, no other shares with it.
	if alone := name == "ignores" && ids[0] == "bad"; !alone && g.KindStatus().Attempts[workers.OutcomeRetried] == 0 {
		t.Error("no transaction was shared and undone")
	}
}

// If a handler has ended a shared transaction, the writes of any of its tasks may be committed.
func TestOneOfTogetherCommits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	for name, end := range map[string]func(ctx context.Context, tx pgx.Tx, id ledger.BizID) error{
		"commit": func(ctx context.Context, tx pgx.Tx, id ledger.BizID) (err error) {
			if id == "bad" {
				_, err = tx.Exec(ctx, "commit")
			}
			return err
		},
		"commit and begin": func(ctx context.Context, tx pgx.Tx, id ledger.BizID) (err error) {
			if id == "bad" {
				_, err = tx.Exec(ctx, "commit; begin")
			}
			return err
		},
		"commit, and an error": func(ctx context.Context, tx pgx.Tx, id ledger.BizID) (err error) {
			if id == "bad" {
				_, _ = tx.Exec(ctx, "commit")
				return errBoom
			}
			return nil
		},
		"commit and begin, and another error": func(ctx context.Context, tx pgx.Tx, id ledger.BizID) (err error) {
			switch id {
			case "bad":
				_, err = tx.Exec(ctx, "commit; begin")
			case "d":
				err = errBoom
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			g := b.gather(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
				return errors.Join(insertEffect(ctx, tx, job, args), end(ctx, tx, job.BizID))
			}, workers.KindConfig{Retry: ledger.RetryPolicy{Attempts: 2, Ladder: []time.Duration{0}}})
			dead := 0
			for _, k := range b.enqueueGathered(g, someIDs...) {
				b.Await("the end of "+k.String(), func() bool { return b.Task(k).State.Finished() })
				if n := b.Effects(k); n > 1 {
					t.Errorf("%s has %d effects", k, n)
				}
				if b.Task(k).State == ledger.StateDead {
					dead++
				}
			}
			if dead < 4 { // the tasks before it, and itself
				t.Errorf("%d tasks are dead", dead)
			}
		})
	}
}

// A task that is cancelled after its handler has returned is rolled back, as nothing is committed yet.
func TestOneOfTogetherIsCancelled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	var calls atomic.Int32
	o := operator.New(b.DB)
	g := b.gather(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		if job.BizID == "bad" && calls.Add(1) == 1 {
			if _, err := o.Cancel(
				ctx, ledger.Key{Kind: order.Name(), BizID: "c"}, operator.Audit{Actor: "test"},
			); err != nil {
				return err
			}
		}
		return insertEffect(ctx, tx, job, args)
	}, workers.KindConfig{})
	for _, k := range b.enqueueGathered(g, someIDs...) {
		if k.BizID == "c" {
			b.AwaitState(k, ledger.StateCancelled)
			continue
		}
		b.AwaitState(k, ledger.StateSucceeded)
		b.WantOneEffect(k)
	}
	if n := b.Effects(ledger.Key{Kind: order.Name(), BizID: "c"}); n != 0 {
		t.Errorf("what was cancelled had %d effects", n)
	}
}
