package outbox_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

// A process whose subscriber another one has taken over handles no parked event.
func TestFencedRetryAppliesNothing(t *testing.T) {
	t.Parallel()
	pool := tablesPool(t)
	bad := coupons()
	bad.OnFailure = outbox.Park
	stop := start(t, quick(pool, bad))
	key := ledger.Key{Kind: "coupon.send", BizID: "bad"}
	if _, err := ledger.Enqueue(t.Context(), pool, key, []byte(`{"campaign":"poison"}`), nil); err != nil {
		t.Fatal(err)
	}
	await(t, "the event is parked", func() bool { return registered(t, pool).Parked == 1 })
	awaitApplied(t, pool)
	stop()

	good, applied := bad, 0
	good.Handle = func(context.Context, pgx.Tx, []ledger.Event) error {
		applied++
		return nil
	}
	fenced, owner := openFeed(t, pool, good), openFeed(t, pool, good)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return owner.Mark(t.Context(), tx, nil) })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := subscribers.RetryParked(t.Context(), pool, good.Name, key, "", ""); err != nil {
		t.Fatal(err)
	}
	err = outbox.RetrySubscriber(t.Context(), on(pool, good), fenced)
	if err == nil || registered(t, pool).Parked != 1 {
		t.Errorf("a runner that was fenced off: %v, %d events parked", err, registered(t, pool).Parked)
	}
	applied = 0
	if err := outbox.RetrySubscriber(t.Context(), on(pool, good), owner); err != nil || applied != 1 {
		t.Errorf("the runner: %v, %d events applied", err, applied)
	}
	if n := registered(t, pool).Parked; n != 0 {
		t.Errorf("%d events are parked", n)
	}
}

// openFeed opens the feed of a subscriber.
func openFeed(t *testing.T, pool *pgxpool.Pool, p outbox.Subscription) *feed.Feed {
	t.Helper()
	f, err := feed.Open(t.Context(), pool, "subscriber/"+p.Name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
