package outbox_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/rebuild"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

// couponsOf returns a version of the projection with a DDL of its own.
func couponsOf(version int) outbox.Subscription {
	p := coupons()
	p.Tables.Version = version
	if version > 1 {
		p.Tables.DDL += "; alter table campaign add column v" + string(rune('0'+version)) + " text"
	}
	return p
}

// blocked is a rebuild that waits after its first part.
type blocked struct {
	done    chan error
	release func()
}

// startBlocked begins a rebuild and returns when it waits.
func startBlocked(t *testing.T, pool *pgxpool.Pool, p outbox.Subscription, pageSize int) blocked {
	t.Helper()
	reached, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	b := blocked{done: make(chan error, 1), release: sync.OnceFunc(func() { close(release) })}
	t.Cleanup(b.release)
	go func() {
		b.done <- outbox.RebuildTables(context.WithoutCancel(t.Context()), on(pool, p), &rebuild.Options{
			PageSize: pageSize,
			Progress: func(_, _ int64) {
				once.Do(func() { close(reached) })
				<-release
			},
		})
	}()
	select {
	case <-reached:
	case err := <-b.done:
		t.Fatalf("the rebuild ended: %v", err)
	}
	return b
}

// The program of an older version leaves the build of a newer one, which drops that of an older one.
func TestOlderVersionLeavesTheBuildOfANewer(t *testing.T) {
	t.Parallel()
	pool := tablesPool(t)
	registerCoupons(1)(t, pool)
	enqueueCoupons(t, pool, "spring", 0, 40)
	second := startBlocked(t, pool, couponsOf(2), 10)
	third := startBlocked(t, pool, couponsOf(3), 10)
	second.release()
	if err := <-second.done; !errors.Is(err, feed.ErrSuperseded) {
		t.Errorf("the older build: %v", err)
	}
	for range 2 {
		if err := outbox.RebuildTables(t.Context(), on(pool, couponsOf(2)), nil); !errors.Is(err, feed.ErrSuperseded) {
			t.Errorf("version 2 beside the build of version 3: %v", err)
		}
	}
	other := couponsOf(3)
	other.Tables.DDL += "; alter table campaign add column note text"
	if err := outbox.RebuildTables(t.Context(), on(pool, other), nil); !errors.Is(err, feed.ErrSuperseded) {
		t.Errorf("another DDL beside the build: %v", err)
	}
	third.release()
	if err := <-third.done; err != nil {
		t.Errorf("the build of version 3: %v", err)
	}
	if have := registered(t, pool).Version; have != 3 {
		t.Errorf("version %d is in use", have)
	}
	verifyCoupons(t, pool, couponsOf(3))
}

// A build that has stopped is taken over, also by an older version.
func TestStoppedBuildIsTakenOver(t *testing.T) {
	pool := tablesPool(t)
	registerCoupons(1)(t, pool)
	enqueueCoupons(t, pool, "spring", 0, 40)
	broken := couponsOf(3)
	applied := 0
	broken.Handle = func(context.Context, pgx.Tx, []ledger.Event) error {
		if applied++; applied > 2 {
			return errPoison
		}
		return nil
	}
	var failure *outbox.HandleError
	if err := outbox.RebuildTables(t.Context(), on(pool, broken), &rebuild.Options{PageSize: 10}); !errors.As(err,
		&failure) {
		t.Fatalf("the newer build: %v", err)
	}
	if err := outbox.RebuildTables(t.Context(), on(pool, couponsOf(2)), nil); !errors.Is(err, feed.ErrSuperseded) {
		t.Errorf("at once: %v", err)
	}
	defer setStopped(0)()
	if err := outbox.RebuildTables(t.Context(), on(pool, couponsOf(2)), nil); err != nil {
		t.Fatal(err)
	}
	if have := registered(t, pool).Version; have != 2 {
		t.Errorf("version %d is in use", have)
	}
	verifyCoupons(t, pool, couponsOf(2))
	checkNothingLeft(t, pool)
}

// A rebuild that has caught up late replaces no newer version.
func TestLateRebuildReplacesNoNewerVersion(t *testing.T) {
	t.Parallel()
	pool := tablesPool(t)
	registerCoupons(1)(t, pool)
	enqueueCoupons(t, pool, "spring", 0, 5)
	late := startBlocked(t, pool, couponsOf(2), 1000) // all events are applied
	if err := outbox.RebuildTables(t.Context(), on(pool, couponsOf(3)), nil); err != nil {
		t.Fatal(err)
	}
	late.release()
	var version *outbox.VersionError
	if err := <-late.done; !errors.As(err, &version) && !errors.Is(err, feed.ErrSuperseded) {
		t.Errorf("the late rebuild: %v", err)
	}
	if have := registered(t, pool).Version; have != 3 {
		t.Errorf("version %d is in use", have)
	}
	verifyCoupons(t, pool, couponsOf(3))
	checkNothingLeft(t, pool)
}

// Of two verifications at a time, one works. A verification that ends removes what it has made.
func TestTwoVerifications(t *testing.T) {
	t.Parallel()
	pool := tablesPool(t)
	registerCoupons(1)(t, pool)
	enqueueCoupons(t, pool, "spring", 0, 40)
	stop := start(t, quick(pool, coupons()))
	awaitApplied(t, pool)
	stop()
	reached, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	done := make(chan error, 1)
	go func() {
		report, err := outbox.VerifyTables(t.Context(), on(pool, coupons()), &rebuild.Options{
			PageSize: 10, Progress: func(_, _ int64) {
				once.Do(func() { close(reached) })
				<-release
			},
		})
		if err == nil && (!report.Equal() || report.Events != 80) {
			err = errors.New("the tables differ")
		}
		done <- err
	}()
	<-reached
	for range 3 {
		_, err := outbox.VerifyTables(t.Context(), on(pool, coupons()), nil)
		if !errors.Is(err, feed.ErrSuperseded) {
			t.Errorf("the other verification: %v", err)
		}
	}
	close(release)
	if err := <-done; err != nil {
		t.Errorf("the verification: %v", err)
	}
	verifyCoupons(t, pool, coupons())
	checkNothingLeft(t, pool)
}

// setStopped sets the time without progress after which another program takes over a build.
func setStopped(d time.Duration) (restore func()) {
	old := rebuild.Stopped
	rebuild.Stopped = d
	return func() { rebuild.Stopped = old }
}
