package operator_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/operator"
)

// A change in a transaction happens if and only if it commits. A refused one does not end the transaction.
func TestChangesInATransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := b.Enqueue("order-17")
	state := func() ledger.State { return servicetest.Try(ledger.Load(t.Context(), b.DB, k))(t).State }
	rolledBack := errors.New("rolled back")
	err := pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error {
		if _, err := operator.In(tx).Cancel(t.Context(), k, audit); err != nil {
			t.Error(err)
		}
		return rolledBack
	})
	if !errors.Is(err, rolledBack) || state() != ledger.StateAvailable {
		t.Errorf("after a rollback the task is %s, %v", state(), err)
	}
	for _, step := range []struct {
		name   string
		change func(context.Context, operator.Changer) (ledger.Event, error)
		want   ledger.State
	}{
		{
			name: "cancel", want: ledger.StateCancelled,
			change: func(ctx context.Context, c operator.Changer) (ledger.Event, error) {
				return c.Cancel(ctx, k, audit)
			},
		},
		{
			name: "release", want: ledger.StateAvailable,
			change: func(ctx context.Context, c operator.Changer) (ledger.Event, error) {
				return c.Release(ctx, k, audit)
			},
		},
		{
			name: "reschedule", want: ledger.StateScheduled,
			change: func(ctx context.Context, c operator.Changer) (ledger.Event, error) {
				return c.Reschedule(ctx, k, operator.Due{In: time.Hour}, audit)
			},
		},
		{
			name: "bury", want: ledger.StateDead,
			change: func(ctx context.Context, c operator.Changer) (ledger.Event, error) {
				return c.Bury(ctx, k, audit)
			},
		},
	} {
		other := ledger.Key{Kind: "test.other", BizID: ledger.BizID(step.name)}
		err := pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error {
			e, err := step.change(t.Context(), operator.In(tx))
			if err != nil || e.Actor != audit.Actor {
				t.Errorf("%s: %+v, %v", step.name, e, err)
			}
			var refused *ledger.TransitionError
			if step.name == "bury" {
				if _, err := operator.In(tx).Cancel(t.Context(), k, audit); !errors.As(err, &refused) {
					t.Errorf("cancel a dead task: %v", err)
				}
			}
			_, err = ledger.Enqueue(t.Context(), tx, other, nil, nil)
			return err
		})
		if err != nil || state() != step.want {
			t.Errorf("%s: the task is %s, want %s; %v", step.name, state(), step.want, err)
		}
	}
}

// A change in a transaction waits for another change of the same task, and then follows its outcome.
func TestChangesInTwoTransactions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := b.Enqueue("order-17")
	first := servicetest.Try(b.DB.Begin(t.Context()))(t)
	servicetest.Try(operator.In(first).Bury(t.Context(), k, audit))(t)
	second := make(chan error, 1)
	go func() {
		second <- pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error {
			_, err := operator.In(tx).Cancel(t.Context(), k, audit)
			return err
		})
	}()
	b.Await("the second one to wait", func() bool {
		var waits bool
		err := b.DB.QueryRow(t.Context(), `select exists (
			select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')`).Scan(&waits)
		return err == nil && waits
	})
	if err := first.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	var refused *ledger.TransitionError
	if err := <-second; !errors.As(err, &refused) || refused.State != ledger.StateDead {
		t.Errorf("got %v, want a refusal because the task is dead", err)
	}
}
