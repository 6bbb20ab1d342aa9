package projector_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
)

// A runner whose projection another one has taken over applies no parked event.
func TestFencedRetryAppliesNothing(t *testing.T) {
	t.Parallel()
	pool := ownPool(t)
	bad := coupons()
	bad.OnFailure = projector.Park
	stop := start(t, quick(pool, bad))
	key := ledger.Key{Kind: "coupon.send", BizID: "bad"}
	if _, err := ledger.Enqueue(t.Context(), pool, key, []byte(`{"campaign":"poison"}`), nil); err != nil {
		t.Fatal(err)
	}
	await(t, "the event is parked", func() bool { return registered(t, pool).Parked == 1 })
	awaitApplied(t, pool)
	stop()

	good, applied := bad, 0
	good.Apply = func(context.Context, pgx.Tx, []ledger.Event) error {
		applied++
		return nil
	}
	c := quick(pool, good)
	r, err := projector.New(c)
	if err != nil {
		t.Fatal(err)
	}
	fenced, owner := openFeed(t, pool, good), openFeed(t, pool, good)
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return owner.Mark(t.Context(), tx, nil) })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := projector.RetryParkedTask(t.Context(), pool, good.Name, key, projector.Act{}); err != nil {
		t.Fatal(err)
	}
	err = projector.RetryParked(t.Context(), r, good, fenced)
	if err == nil || registered(t, pool).Parked != 1 {
		t.Errorf("a runner that was fenced off: %v, %d events parked", err, registered(t, pool).Parked)
	}
	applied = 0
	if err := projector.RetryParked(t.Context(), r, good, owner); err != nil || applied != 1 {
		t.Errorf("the runner: %v, %d events applied", err, applied)
	}
	if n := registered(t, pool).Parked; n != 0 {
		t.Errorf("%d events are parked", n)
	}
}

// openFeed opens the feed of a projection.
func openFeed(t *testing.T, pool *pgxpool.Pool, p projector.Projection) *feed.Feed {
	t.Helper()
	f, err := feed.Open(t.Context(), pool, projector.ReaderOf(p), nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
