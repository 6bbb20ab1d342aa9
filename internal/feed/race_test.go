package feed_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

var raceTransactions = flag.Int("race-transactions", 150, "transactions of each of the 12 writers of TestFeedRace")

// TestFeedRace tests the first property of the feed: whatever transactions do, the feed delivers every committed event
// once, each task's events in order, and waits for no transaction.
//
// Writers contend for a few tasks, draw their xid early or late, use savepoints and roll back. A write transaction in
// another database and a prepared transaction stay open all along. The reader restarts repeatedly.
func TestFeedRace(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	f.exec(f.owner, "create database foreigner")
	foreign, err := f.connect("foreigner", ledgertest.Owner).Begin(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = foreign.Rollback(context.Background()) }()
	f.exec(foreign, "select pg_current_xact_id()")
	f.exec(f.owner, "begin; select pg_current_xact_id(); prepare transaction 'left over'")
	defer f.exec(f.owner, "rollback prepared 'left over'")

	const sessions, tasks = 12, 20
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	writing := make(chan struct{})
	var committed atomic.Int64
	var writers, group sync.WaitGroup
	for w := range sessions {
		writers.Go(func() {
			conn, err := pgx.Connect(f.ctx, f.pool.Config().ConnString())
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close(context.Background()) }()
			random := rand.New(rand.NewPCG(seed, uint64(w)))
			for range *raceTransactions {
				n, err := raceTransaction(f.ctx, conn, random, tasks)
				if err != nil && !raceLost(err) {
					t.Error(err)
				}
				committed.Add(int64(n))
			}
		})
	}
	go func() { writers.Wait(); close(writing) }()

	var bySQL []ledger.Event
	subscriber := f.connect(ledgertest.Database, "subscriber")
	group.Go(func() { // it ends after the writers, like the feed
		bySQL = raceReadSQL(f.ctx, t, subscriber, rand.New(rand.NewPCG(seed, 98)), writing,
			func() int { return int(committed.Load()) })
	})
	got := raceRead(f, rand.New(rand.NewPCG(seed, 99)), writing, func() int { return int(committed.Load()) })

	group.Wait()

	// Foreign and prepared transactions are still open here: the feed did not wait for them.
	want := map[ledger.Position]bool{}
	for e, err := range ledger.Read(f.ctx, f.pool, 0, 1_000_000) {
		if err != nil {
			t.Fatal(err)
		}
		want[e.Position] = true
	}
	for reader, got := range map[string][]ledger.Event{"feed": got, "read_feed": bySQL} {
		t.Run(reader, func(t *testing.T) { raceCheck(t, got, want) })
	}
}

// raceCheck checks that a reader got each committed event once, each task's events in order.
func raceCheck(t *testing.T, got []ledger.Event, want map[ledger.Position]bool) {
	t.Helper()
	versions := map[ledger.Key]ledger.Version{}
	seen := map[ledger.Position]bool{}
	for _, e := range got {
		if seen[e.Position] {
			t.Errorf("%s delivered twice", e.ID())
		}
		seen[e.Position] = true
		if !want[e.Position] {
			t.Errorf("%s delivered, but not committed", e.ID())
		}
		if e.Version != versions[e.Key]+1 {
			t.Errorf("%s delivered after version %d", e.ID(), versions[e.Key])
		}
		versions[e.Key] = e.Version
	}
	if len(got) != len(want) {
		t.Errorf("delivered %d events of %d", len(got), len(want))
	}
	t.Logf("%d events of %d tasks", len(want), len(versions))
}

// raceTransaction runs one writer's transaction and returns the number of events it committed.
func raceTransaction(ctx context.Context, conn *pgx.Conn, random *rand.Rand, tasks int) (int, error) {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if random.IntN(2) == 0 { // an xid long before the first event
		if _, err := tx.Exec(ctx, "select pg_current_xact_id()"); err != nil {
			return 0, err
		}
	}
	written := 0
	keys := random.Perm(tasks)[:1+random.IntN(3)]
	slices.Sort(keys)
	for _, key := range keys {
		n, err := raceAppend(ctx, tx, random, ledger.Key{Kind: "race", BizID: ledger.BizID(fmt.Sprint(key))})
		if err != nil {
			return 0, err
		}
		written += n
	}
	if random.IntN(10) == 0 {
		return 0, nil // roll back
	}
	if err := tx.Commit(ctx); err != nil {
		return 0, err
	}
	return written, nil
}

// raceAppend enqueues the task or appends to it, sometimes inside a savepoint that may be rolled back.
func raceAppend(ctx context.Context, tx pgx.Tx, random *rand.Rand, k ledger.Key) (int, error) {
	answer, err := ledger.Enqueue(ctx, tx, k, nil, nil)
	if err != nil {
		return 0, err
	}
	if answer.New {
		return 1, nil
	}
	request := ledger.AppendRequest{Key: k, Expected: answer.Version, Type: ledger.EventProgressed}
	if random.IntN(4) > 0 {
		_, err := ledger.Append(ctx, tx, request)
		return 1, err
	}
	inner, err := tx.Begin(ctx)
	if err != nil {
		return 0, err
	}
	if _, err := ledger.Append(ctx, inner, request); err != nil {
		return 0, err
	}
	if random.IntN(2) == 0 {
		return 0, inner.Rollback(ctx)
	}
	return 1, inner.Commit(ctx)
}

// raceLost reports whether err means that its transaction lost a race.
func raceLost(err error) bool {
	var conflict *ledger.ConflictError
	return errors.As(err, &conflict) || ledger.Retryable(err)
}

// raceRead reads until the writers are done and every committed event is delivered. Sometimes it opens the
// feed again at its cursor.
func raceRead(f *feedFixture, random *rand.Rand, writing <-chan struct{}, committed func() int) []ledger.Event {
	f.t.Helper()
	var got []ledger.Event
	done := false
	stalled := time.Now().Add(30 * time.Second) // long after the writers' end
	for {
		opened := f.open(f.pool, &feed.Options{PageSize: 1 + random.IntN(40), AuditEvery: time.Millisecond,
			Missed: func(_ context.Context, events int) {
				f.t.Errorf("an audit found %d events missing", events)
			}})
		for range 1 + random.IntN(50) {
			page, ok, err := opened.Poll(f.ctx)
			if err != nil {
				f.t.Fatal(err)
			}
			if !ok {
				select {
				case <-writing:
					done = true
				default:
				}
				if done && len(got) >= committed() || time.Now().After(stalled) {
					return got
				}
				continue
			}
			if random.IntN(20) == 0 {
				break // not advanced, so the page is read again
			}
			if err := page.Advance(f.ctx, nil, nil); err != nil {
				f.t.Fatal(err)
			}
			got = append(got, page.Events...)
			stalled = time.Now().Add(30 * time.Second)
		}
	}
}
