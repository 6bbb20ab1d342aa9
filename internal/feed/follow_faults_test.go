package feed_test

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Another process advances the cursor of the followed feed, which is then opened again and finds nothing. A follower
// at the feed's former place reads the events that the other process has passed, without waiting for an event.
func TestFollowerOfAFeedThatWasMoved(t *testing.T) {
	t.Parallel()
	f := newFollowFixture(t, 0)
	follower := f.followAt()

	f.enqueue(f.pool, "passed by another process")
	f.drain(f.open(f.pool, nil))
	db, led := f.counted()
	leader := f.open(db, &feed.Options{AuditEvery: -1, Reports: f.findings})
	ctx, stop := context.WithCancel(f.ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); _, _ = leader.Next(ctx) }()
	defer func() { stop(); <-ended }()
	await(t, "the first report", func() bool { return led.n.Load() > 1 })

	polled := led.n.Load()
	got := f.awaitNext(follower)
	var id string
	await(t, "the follower, or a hundred polls", func() bool {
		select {
		case id = <-got:
			return true
		default:
			return led.n.Load() > polled+100
		}
	})
	if id != "passed by another process" {
		t.Errorf("the other feed polled %d times, and the follower delivered %q", led.n.Load()-polled, id)
		<-got
	}
}

// A follower with a long Gather does not wait longer for a live feed than for a stopped one, neither for its first
// report nor for the next page of a window.
func TestFollowerWithALongGatherReadsByItself(t *testing.T) {
	t.Parallel()
	f := newFollowFixture(t, 2)
	f.enqueue(f.pool, "a")
	ctx, cancel := context.WithTimeout(f.ctx, 20*time.Second)
	defer cancel()
	alone := f.follow("alone", feed.Options{Gather: time.Minute})
	if page, err := alone.Next(ctx); err != nil || len(page.Events) != 1 {
		t.Errorf("before the first report: %v, %v", idsOf(page.Events), err)
	}

	follower := f.follow("follower", feed.Options{Gather: time.Minute})
	f.page(f.leader)
	f.page(follower)
	f.enqueue(f.pool, "b", "c", "d", "e")
	f.page(f.leader)
	f.page(follower)
	if page, err := follower.Next(ctx); err != nil || !slices.Equal(idsOf(page.Events), []string{"d", "e"}) {
		t.Errorf("within a window: %v, %v", idsOf(page.Events), err)
	}
}

// Poll reads events even behind windows without events that the other feed has read.
func TestFollowerPollsBehindEmptyWindows(t *testing.T) {
	t.Parallel()
	f := newFollowFixture(t, 0)
	follower := f.followAt()
	rolledBack := f.begin()
	f.enqueue(rolledBack, "rolled back")
	if err := rolledBack.Rollback(f.ctx); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := f.leader.Poll(f.ctx); ok || err != nil {
		t.Fatal(ok, err)
	}
	f.enqueue(f.pool, "b")
	if got := idsOf(f.page(follower).Events); !slices.Equal(got, []string{"b"}) {
		t.Errorf("delivered %q", got)
	}
}

// A feed that follows one feed and reports to others does not mislead them: they read the events that it has taken.
func TestFollowerOfAFollower(t *testing.T) {
	t.Parallel()
	f := newFollowFixture(t, 0)
	reports := feed.NewFindings()
	middle := f.follow("middle", feed.Options{Reports: reports})
	last, err := feed.Open(f.ctx, f.pool, "last", &feed.Options{AuditEvery: -1, Follows: reports})
	if err != nil {
		t.Fatal(err)
	}
	f.enqueue(f.pool, "a")
	f.page(middle) // by itself
	f.page(f.leader)
	f.enqueue(f.pool, "b")
	f.page(f.leader)
	f.page(middle) // up to the leader's place
	ctx, stop := context.WithTimeout(f.ctx, 10*time.Second)
	var polling sync.WaitGroup
	var middleMu sync.Mutex
	polling.Go(func() {
		for ctx.Err() == nil {
			middleMu.Lock()
			if _, ok, err := middle.Poll(ctx); ok || err != nil && ctx.Err() == nil {
				t.Error(ok, err)
			}
			middleMu.Unlock()
			time.Sleep(time.Millisecond)
		}
	})
	defer func() { stop(); polling.Wait() }()
	if page, err := last.Next(ctx); err != nil || !slices.Equal(idsOf(page.Events), []string{"a", "b"}) {
		t.Fatal(idsOf(page.Events), err)
	}
	got := make(chan []string, 1)
	polling.Go(func() {
		page, _ := last.Next(ctx)
		got <- idsOf(page.Events)
	})
	time.Sleep(100 * time.Millisecond) // it waits now, unless the machine is slow

	middleMu.Lock()
	f.enqueue(f.pool, "c")
	f.page(f.leader)
	f.page(middle)
	middleMu.Unlock()
	if ids := <-got; !slices.Equal(ids, []string{"c"}) {
		t.Errorf("delivered %q", ids)
	}
}

// followAt returns a follower at the place of the leader, behind an event.
func (f *followFixture) followAt() *feed.Feed {
	f.t.Helper()
	follower := f.follow("follower", feed.Options{})
	f.enqueue(f.pool, "a")
	f.page(f.leader)
	f.page(follower)
	return follower
}

// copyData copies the data of the stopped server, and putBack puts the copy back: the server has then the incarnation
// that it had, and assigns transaction ids and positions again.
func (f *followFixture) copyData() { f.restartAfter(`rm -rf "$1.copy"`, `cp -a "$1" "$1.copy"`) }
func (f *followFixture) putBack()  { f.restartAfter(`rm -rf "$1"`, `mv "$1.copy" "$1"`) }

func (f *followFixture) restartAfter(commands ...string) {
	f.t.Helper()
	conn, err := pgx.Connect(f.ctx, f.server.URL(ledgertest.Database))
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var data string
	if err := conn.QueryRow(f.ctx, "show data_directory").Scan(&data); err != nil {
		f.t.Fatal(err)
	}
	if err := f.server.Stop(f.ctx); err != nil {
		f.t.Fatal(err)
	}
	for _, c := range commands {
		if out, err := exec.Command("sh", "-c", c, "sh", data).CombinedOutput(); err != nil {
			f.t.Fatalf("%s: %v: %s", c, err, out)
		}
	}
	if err := f.server.Restart(f.ctx); err != nil {
		f.t.Fatal(err)
	}
	for _, pool := range []interface {
		Reset()
		Ping(ctx context.Context) error
	}{f.pool, f.owner, f.db} {
		pool.Reset()
		await(f.t, "the server", func() bool { return pool.Ping(f.ctx) == nil })
	}
}

// A follower whose place is ahead of a copy of the data that was put back fails. It does not go back to the edge of
// the other feed, before which it would take new events for delivered.
func TestFollowerAheadOfACopyThatWasPutBack(t *testing.T) {
	t.Parallel()
	f := newFollowFixture(t, 0)
	follower := f.followAt()
	f.copyData()
	undone := f.begin()
	f.enqueue(undone, numbers(0, 50)...)
	if err := undone.Rollback(f.ctx); err != nil {
		t.Fatal(err)
	}
	for _, opened := range []*feed.Feed{f.leader, follower} {
		if _, ok, err := opened.Poll(f.ctx); ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	f.putBack()
	if _, _, err := f.leader.Poll(f.ctx); !errors.Is(err, feed.ErrCrashed) {
		t.Fatal(err)
	}
	f.leader = f.lead(0)
	f.enqueue(f.pool, "after")
	f.page(f.leader)
	for range 3 {
		page, ok, err := follower.Poll(f.ctx)
		if errors.Is(err, feed.ErrCrashed) {
			follower = f.follow("follower", feed.Options{})
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			if got := idsOf(page.Events); !slices.Equal(got, []string{"after"}) {
				t.Errorf("delivered %q", got)
			}
			return
		}
	}
	t.Error("an event is lost")
}

// slowDB is a pool whose connections are all in use for a time.
type slowDB struct {
	ledger.DB
	asked, free chan struct{}
}

func (db *slowDB) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	select {
	case <-db.free:
	default:
		close(db.asked)
		<-db.free
	}
	return db.DB.Exec(ctx, sql, args...)
}

// A feed that is being opened while a copy of the data is put back takes no page that was read before.
func TestFollowerOpenedWhileACopyIsPutBack(t *testing.T) {
	t.Parallel()
	f := newFollowFixture(t, 0)
	f.enqueue(f.pool, "a")
	f.page(f.leader)
	f.leader = f.lead(0)
	follower := f.follow("follower", feed.Options{})
	tick := f.begin()
	f.exec(tick, "select pg_current_xact_id()")
	f.commit(tick)
	f.enqueue(f.pool, "b")
	f.page(f.leader)
	f.drain(follower) // by pages of its own first
	f.enqueue(f.pool, "c")
	f.page(f.leader)
	f.page(follower)
	f.copyData()
	db := &slowDB{f.db, make(chan struct{}), make(chan struct{})}
	type result struct {
		*feed.Feed
		error
	}
	opened := make(chan result)
	go func() {
		follower, err := feed.Open(f.ctx, db, "follower", &feed.Options{AuditEvery: -1, Follows: f.findings})
		opened <- result{follower, err}
	}()
	<-db.asked
	f.enqueue(f.pool, "undone")
	f.page(f.leader)
	f.putBack()
	close(db.free)
	again := <-opened
	if again.error != nil {
		t.Fatal(again.error)
	}
	f.enqueue(f.pool, "after")
	if got := idsOf(f.page(again.Feed).Events); !slices.Equal(got, []string{"after"}) {
		t.Errorf("delivered %q", got)
	}
}

// A follower takes no page that was read long before, because a copy of the data may have been put back since.
func TestFollowerAfterACopyWasPutBack(t *testing.T) {
	t.Parallel()
	f := newFollowFixture(t, 0)
	follower := f.followAt()
	f.copyData()
	f.follow("another follower", feed.Options{}) // so that pages are kept
	f.enqueue(f.pool, "undone")
	f.page(f.leader)
	read := time.Now()
	f.putBack()
	f.enqueue(f.pool, "after")
	time.Sleep(time.Until(read.Add(feed.KeptFor)))
	if got := idsOf(f.page(follower).Events); !slices.Equal(got, []string{"after"}) {
		t.Errorf("delivered %q", got)
	}
}

// A page that was read before a copy of the data was put back advances no cursor, neither the reader's own nor the
// followed feed's, although the copy contains the incarnation and the newest row of the cursor.
func TestPageReadBeforeACopyWasPutBack(t *testing.T) {
	t.Parallel()
	f := newFollowFixture(t, 0)
	follower := f.followAt()
	f.copyData()
	f.enqueue(f.pool, "undone")
	page, ok, err := f.leader.Poll(f.ctx)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	f.putBack()
	taken, ok, err := follower.Poll(f.ctx) // unless 5 s have passed
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]feed.Page{"read": page, "taken": taken} {
		if name == "taken" && !ok {
			continue
		}
		if err := p.Advance(f.ctx, nil, nil); !errors.Is(err, feed.ErrSuperseded) {
			t.Errorf("page that was %s: %v, want ErrSuperseded", name, err)
		}
	}
	f.enqueue(f.pool, "after")
	for _, opened := range []*feed.Feed{f.lead(0), f.follow("follower", feed.Options{})} {
		if got := f.drain(opened); !slices.Equal(got, []string{"after"}) {
			t.Errorf("delivered %q", got)
		}
	}
}
