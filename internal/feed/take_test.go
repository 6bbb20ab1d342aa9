package feed_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

// A reader that processes a window in bulk is then given only later events, including late commits, and an audit
// misses nothing. A process that opens the feed in between sees the same window and mark.
func TestBulk(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	late := f.begin()
	f.enqueue(late, "late")
	f.enqueue(f.pool, "a", "b", "c")
	options := &feed.Options{AuditEvery: time.Nanosecond}
	opened := f.open(f.pool, options)
	window, ok, err := opened.Bulk(f.ctx)
	if err != nil || !ok {
		t.Fatalf("%v, %v", ok, err)
	}
	f.enqueue(f.pool, "d")
	mark := json.RawMessage(`{"done": 2}`)
	if err := opened.Mark(f.ctx, f.pool, mark); err != nil {
		t.Fatal(err)
	}
	again := f.open(f.pool, options)
	cursor := again.Cursor()
	if same, ok, err := again.Bulk(f.ctx); err != nil || !ok || same != window || string(cursor.Mark) != string(mark) {
		t.Errorf("opened again: %+v and mark %s, want %+v; %v", same, cursor.Mark, window, err)
	}
	if err := again.Pass(f.ctx, f.pool, nil); err != nil {
		t.Fatal(err)
	}
	if err := opened.Mark(f.ctx, f.pool, nil); !errors.Is(err, feed.ErrSuperseded) {
		t.Errorf("the other reader: %v", err)
	}
	if diff := difference.Of([]string{"d"}, f.drain(again)); diff != "" {
		t.Error(diff)
	}
	f.commit(late)
	if diff := difference.Of([]string{"late"}, f.drain(again)); diff != "" {
		t.Error(diff)
	}
	empty, ok, err := f.open(f.pool, options).Bulk(f.ctx)
	if err != nil || ok {
		t.Errorf("a window without events: %+v, %v, %v", empty, ok, err)
	}
}

// A reader whose cursor is held waits with its next page, and is superseded when the cursor has moved. A window that
// is opened while it is held contains all events that the reader has passed.
func TestTake(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	f.enqueue(f.pool, "a")
	follower := f.open(f.pool, nil)
	f.drain(follower)
	f.enqueue(f.pool, "b")
	page, ok, err := follower.Poll(f.ctx)
	if err != nil || !ok {
		t.Fatalf("%v, %v", ok, err)
	}
	advanced := make(chan error, 1)
	err = pgx.BeginFunc(f.ctx, f.pool, func(tx pgx.Tx) error {
		if err := feed.Hold(f.ctx, tx, "test"); err != nil {
			return err
		}
		go func() { advanced <- page.Advance(context.WithoutCancel(f.ctx), f.pool, nil) }()
		select {
		case err := <-advanced:
			t.Errorf("the reader has advanced: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		build, err := feed.Open(f.ctx, f.pool, "build", nil)
		if err != nil {
			return err
		}
		var ids []string
		for {
			page, ok, err := build.Poll(f.ctx)
			if err != nil || !ok {
				if err != nil {
					return err
				}
				break
			}
			for _, e := range page.Events {
				ids = append(ids, string(e.BizID))
			}
			if err := page.Advance(f.ctx, tx, nil); err != nil {
				return err
			}
		}
		if diff := difference.Of([]string{"a", "b"}, ids); diff != "" {
			t.Error(diff)
		}
		if err := feed.Take(f.ctx, tx, "test", "build", nil); err != nil {
			return err
		}
		return feed.Forget(f.ctx, tx, "build")
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-advanced; !errors.Is(err, feed.ErrSuperseded) {
		t.Errorf("the reader that waited: %v", err)
	}
	f.enqueue(f.pool, "c")
	if diff := difference.Of([]string{"c"}, f.drain(f.open(f.pool, nil))); diff != "" {
		t.Error(diff)
	}
	if _, found, err := feed.PlaceOf(f.ctx, f.pool, "build"); err != nil || found {
		t.Errorf("the cursor of the build: %v, %v", found, err)
	}
}

// A page that is under way when its reader is held is waited for, and the next one waits.
func TestHoldWaitsForThePageUnderWay(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	follower := f.open(f.pool, &feed.Options{PageSize: 1})
	f.enqueue(f.pool, "a", "b")
	underWay := f.begin()
	next := func() feed.Page {
		t.Helper()
		page, ok, err := follower.Poll(f.ctx)
		if err != nil || !ok {
			t.Fatalf("%v, %v", ok, err)
		}
		return page
	}
	if err := next().Advance(f.ctx, underWay, nil); err != nil {
		t.Fatal(err)
	}
	second := next()
	holder := f.begin()
	defer holder.Rollback(context.Background())
	held := make(chan error, 1)
	go func() { held <- feed.Hold(f.ctx, holder, "test") }()
	select {
	case err := <-held:
		t.Fatalf("the cursor is held beside a page: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	f.commit(underWay)
	if err := <-held; err != nil {
		t.Fatal(err)
	}
	later := f.begin()
	defer later.Rollback(context.Background())
	f.exec(later, "set local lock_timeout = '50ms'")
	if err := second.Advance(f.ctx, later, nil); !pgerr.Is(err, pgerr.LockNotAvailable) {
		t.Errorf("the next page while the cursor is held: %v", err)
	}
}

// If several processes restart a reader, one succeeds. A process that used its cursor before never advances it again,
// even if the rows between were removed.
func TestRestart(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	f.enqueue(f.pool, "a", "b", "c")
	one := &feed.Options{PageSize: 1}
	late := f.open(f.pool, one)
	stale, ok, err := late.Poll(f.ctx)
	if err != nil || !ok {
		t.Fatalf("%v, %v", ok, err)
	}
	restart := func(reader *feed.Feed) error {
		return pgx.BeginFunc(f.ctx, f.pool, func(tx pgx.Tx) error { return reader.Restart(f.ctx, tx, nil) })
	}
	first, second := f.open(f.pool, one), f.open(f.pool, one)
	if err := restart(first); err != nil {
		t.Fatal(err)
	}
	if err := restart(second); !errors.Is(err, feed.ErrSuperseded) {
		t.Errorf("the other one: %v", err)
	}
	if diff := difference.Of([]string{"a", "b", "c"}, f.drain(first)); diff != "" {
		t.Error(diff)
	}
	if err := feed.Forget(f.ctx, f.pool, "test"); err != nil {
		t.Fatal(err)
	}
	if err := restart(f.open(f.pool, one)); err != nil {
		t.Fatal(err)
	}
	if err := stale.Advance(f.ctx, f.pool, nil); !errors.Is(err, feed.ErrSuperseded) {
		t.Errorf("a page of the time before: %v", err)
	}
}

func TestClaim(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	f.enqueue(f.pool, "a")
	reader := f.open(f.pool, nil)
	claim := func(want bool) pgx.Tx {
		t.Helper()
		tx := f.begin()
		if have, err := feed.Claim(f.ctx, tx, "test"); err != nil || have != want {
			t.Errorf("claimed: %v, %v, want %v", have, err, want)
		}
		return tx
	}
	tx := claim(true)
	f.exec(claim(false), "rollback")
	if diff := difference.Of([]string{"a"}, f.drain(reader)); diff != "" {
		t.Error(diff)
	}
	f.exec(tx, "rollback")
	f.exec(claim(true), "rollback")
}

func TestPassed(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	f.enqueue(f.pool, "a")
	events := func() int64 {
		t.Helper()
		var last int64
		if err := f.pool.QueryRow(f.ctx, `select max(position) from taskledger.event`).Scan(&last); err != nil {
			t.Fatal(err)
		}
		return last
	}
	check := func(position int64, wantPassed, wantFound bool) {
		t.Helper()
		passed, found, err := feed.Passed(f.ctx, f.pool, "test", ledger.Position(position))
		if err != nil || passed != wantPassed || found != wantFound {
			t.Errorf("position %d: passed %v, found %v, %v", position, passed, found, err)
		}
	}
	check(events(), false, true)
	f.drain(f.open(f.pool, nil))
	check(events(), true, true)
	f.enqueue(f.pool, "b")
	check(events(), false, true)
	check(1<<40, false, false)
}
